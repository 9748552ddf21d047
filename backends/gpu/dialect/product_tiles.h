/* Shared by the templates of products: the tile of a group, and the bounds of the operands. The
 * templates define PE_TILE_M and PE_TILE_N, rows and columns of a tile, and PE_STEP, the length of
 * the sum per step. */
#ifndef PE_PRODUCT_TILES_H
#define PE_PRODUCT_TILES_H

#define PE_ROW_TILES ((PE_M + PE_TILE_M - 1) / PE_TILE_M)
#define PE_COLUMN_TILES ((PE_N + PE_TILE_N - 1) / PE_TILE_N)
#define PE_TILE (pe_group() / PE_COLUMN_TILES)
#define PE_ROW0 (PE_TILE % PE_ROW_TILES * PE_TILE_M)
#define PE_COLUMN0 (pe_group() % PE_COLUMN_TILES * PE_TILE_N)
#define PE_PART (PE_PARTS > 1 ? PE_TILE / (PE_ROW_TILES * PE_BATCHES) : 0)
#define PE_BATCH (PE_TILE / PE_ROW_TILES % PE_BATCHES)

/* End of a part of the sum. */
#define PE_LAST(first) (PE_PARTS > 1 && (first) + PE_SHARE < PE_K ? (first) + PE_SHARE : PE_K)

/* No bounds checks where tiles divide the operands. */
#define PE_ROW_INSIDE(row) (PE_M % PE_TILE_M == 0 || (row) < PE_M)
#define PE_COLUMN_INSIDE(column) (PE_N % PE_TILE_N == 0 || (column) < PE_N)
#define PE_K_INSIDE(k) (PE_K % PE_STEP == 0 || (k) < last)

/* Offsets of elements, -1 out of bounds. */
#define PE_A_PLACE(row, k) (PE_ROW_INSIDE(row) && PE_K_INSIDE(k) ? PE_A_AT(batch, row, k) : -1)
#define PE_B_PLACE(k, column)                                                                      \
    (PE_COLUMN_INSIDE(column) && PE_K_INSIDE(k) ? PE_B_AT(batch, k, column) : -1)

#endif
