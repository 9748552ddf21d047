/* A matrix product as in product.inc.h on tensor cores, with operands rounded to bf16 and f32
 * sums.
 *
 * Macros are those of product.inc.h, except
 * PE_MR, PE_NR          tiles of 16 x 16 sums of a warp, down and across; a group of 2 x 4
 *                       warps has a tile of 32 PE_MR x 64 PE_NR
 */
#include "bf16_tiles.h"
#include "product_tiles.h"
#define PE_TILE_M (32 * PE_MR)
#define PE_TILE_N (64 * PE_NR)
#define PE_STEP PE_DEEP_STEP

/* Pairs of a tile that each of 256 items writes. */
#define PE_TURNS(lines) (PE_STEP / 2 * (lines) / 256)

/* Loops over the sums of an item. */
#define PE_EACH(i)                                                                                 \
    PE_UNROLL                                                                                      \
    for (int i = 0; i < 8 * PE_MR * PE_NR; i++)

PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(pe_fragment, tiles_a, PE_STEP * PE_TILE_M / 8);
    PE_SHARED(pe_fragment, tiles_b, PE_STEP * PE_TILE_N / 8);
    const int row0 = PE_ROW0, column0 = PE_COLUMN0, part = PE_PART, batch = PE_BATCH;
    const int first = part * PE_SHARE, last = PE_LAST(first);
    float sums[8 * PE_MR * PE_NR];
    PE_EACH(i) { sums[i] = 0.0f; }
    for (int k0 = first; k0 < last; k0 += PE_STEP) {
        for (int turn = 0; turn < PE_TURNS(PE_TILE_M); turn++) {
            const int e = turn * 256 + pe_item();
            const int line = pe_line(e, PE_TILE_M, PE_A_DEEP), row = row0 + line;
            const int step = pe_depth(e, PE_TILE_M, PE_A_DEEP), k = k0 + step;
            const int low = PE_A_PLACE(row, k), high = PE_A_PLACE(row, k + 1);
            tiles_a[pe_number_at(PE_TILE_M, line, step)].part[pe_part_a(line, step)] =
                pe_pair_bf16(low < 0 ? 0.0f : PE_A[low], high < 0 ? 0.0f : PE_A[high]);
        }
        for (int turn = 0; turn < PE_TURNS(PE_TILE_N); turn++) {
            const int e = turn * 256 + pe_item();
            const int line = pe_line(e, PE_TILE_N, PE_B_DEEP), column = column0 + line;
            const int step = pe_depth(e, PE_TILE_N, PE_B_DEEP), k = k0 + step;
            const int low = PE_B_PLACE(k, column), high = PE_B_PLACE(k + 1, column);
            tiles_b[pe_number_at(PE_TILE_N, line, step)].part[pe_part_b(line, step)] =
                pe_pair_bf16(low < 0 ? 0.0f : PE_B[low], high < 0 ? 0.0f : PE_B[high]);
        }
        pe_barrier();
        pe_multiply_tiles(sums, tiles_a, PE_MR, tiles_b, PE_NR);
        pe_barrier();
    }
    PE_EACH(i) {
        const int row = row0 + pe_sum_row(i, PE_MR, PE_NR);
        const int column = column0 + pe_sum_column(i, PE_NR);
        if (PE_ROW_INSIDE(row) && PE_COLUMN_INSIDE(column)) {
            const int at = PE_C_AT(batch, row, column);
            PE_END(sums[i], at)
        }
    }
}

#undef PE_EACH
#undef PE_TURNS
#undef PE_TILE_M
#undef PE_TILE_N
#undef PE_STEP
