/* A matrix product whose elements are located by functions; also any convolution.
 *
 * PE_M, PE_N, PE_K      rows and columns of the result, and length of the sums
 * PE_BATCHES            products, one after another
 * PE_PARTS, PE_SHARE    parts of each sum, and their length; `part` is that of the group
 * PE_MR, PE_NR          rows and columns of the sums of an item: adjacent rows, read at once,
 *                       and columns 16 apart, so that adjacent items write adjacent
 *                       elements; a group of 16 x 16 has a tile of 16 PE_MR x 16 PE_NR
 * PE_A, PE_B            operands; PE_A_AT(batch, row, k), PE_B_AT(batch, k, column) are offsets
 *                       in them, negative for a zero
 * PE_A_DEEP, PE_B_DEEP  whether k and k + 1 are adjacent in memory, instead of rows or columns
 * PE_C_AT               offset of (batch, row, column) in the result
 * PE_END(sum, i)        statements that store a sum at place i
 */
#include "product_tiles.h"
#define PE_STEP 16
#define PE_TILE_M (16 * PE_MR)
#define PE_TILE_N (16 * PE_NR)
/* Padding of the rows of a transposed operand, which avoids bank conflicts of writes; by four, so
 * that four numbers of A remain one read. */
#define PE_PITCH_A (PE_TILE_M + 4 * PE_A_DEEP)
#define PE_PITCH_B (PE_TILE_N + PE_B_DEEP)

/* Loops over the sums of an item. */
#define PE_EACH(i, j)                                                                              \
    PE_UNROLL                                                                                      \
    for (int i = 0; i < PE_MR; i++)                                                                \
        PE_UNROLL                                                                                  \
    for (int j = 0; j < PE_NR; j++)

PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, tile_a, 16 * PE_PITCH_A);
    PE_SHARED(float, tile_b, 16 * PE_PITCH_B);
    const int x = pe_item() % 16, y = pe_item() / 16;
    const int row0 = PE_ROW0, column0 = PE_COLUMN0, part = PE_PART, batch = PE_BATCH;
    const int first = part * PE_SHARE, last = PE_LAST(first);
    float sums[PE_MR][PE_NR];
    PE_EACH(i, j) { sums[i][j] = 0.0f; }
    for (int k0 = first; k0 < last; k0 += PE_STEP) {
        for (int e = pe_item(); e < 16 * PE_TILE_M; e += 256) {
            const int line = PE_A_DEEP ? e / 16 : e % PE_TILE_M, row = row0 + line;
            const int step = PE_A_DEEP ? e % 16 : e / PE_TILE_M, k = k0 + step;
            const int at = PE_A_PLACE(row, k);
            tile_a[step * PE_PITCH_A + line] = at < 0 ? 0.0f : PE_A[at];
        }
        for (int e = pe_item(); e < 16 * PE_TILE_N; e += 256) {
            const int line = PE_B_DEEP ? e / 16 : e % PE_TILE_N, column = column0 + line;
            const int step = PE_B_DEEP ? e % 16 : e / PE_TILE_N, k = k0 + step;
            const int at = PE_B_PLACE(k, column);
            tile_b[step * PE_PITCH_B + line] = at < 0 ? 0.0f : PE_B[at];
        }
        pe_barrier();
        for (int k = 0; k < 16; k++) {
            PE_EACH(i, j) {
                const float a = tile_a[k * PE_PITCH_A + y * PE_MR + i];
                sums[i][j] = PE_MATH(fma)(a, tile_b[k * PE_PITCH_B + x + 16 * j], sums[i][j]);
            }
        }
        pe_barrier();
    }
    PE_EACH(i, j) {
        const int row = row0 + y * PE_MR + i, column = column0 + x + 16 * j;
        if (PE_ROW_INSIDE(row) && PE_COLUMN_INSIDE(column)) {
            const int at = PE_C_AT(batch, row, column);
            PE_END(sums[i][j], at)
        }
    }
}

#undef PE_EACH
#undef PE_STEP
#undef PE_TILE_M
#undef PE_TILE_N
#undef PE_PITCH_A
#undef PE_PITCH_B
