/* A product of matrices, of which each element is where functions say: also any convolution.
 *
 * PE_M, PE_N, PE_K      rows and columns of the result, and what is summed over
 * PE_BATCHES            products, one after another
 * PE_PARTS, PE_SHARE    parts that what is summed over falls into, and how much of it each has;
 *                       `part` is a group's own
 * PE_MR, PE_NR          sums that an item has; a group of 16 x 16 has a tile of 16 PE_MR x 16 PE_NR
 * PE_A, PE_B            operands; PE_A_AT(batch, row, k), PE_B_AT(batch, k, column) are places in
 *                       them, negative for a zero
 * PE_C_AT               place of (batch, row, column) in the result
 * PE_END(sum, i)        statements that store a sum at place i
 */
#define PE_TILE_M (16 * PE_MR)
#define PE_TILE_N (16 * PE_NR)
#define PE_ROW_TILES ((PE_M + PE_TILE_M - 1) / PE_TILE_M)
#define PE_COLUMN_TILES ((PE_N + PE_TILE_N - 1) / PE_TILE_N)

/* Every sum of an item. */
#define PE_EACH(i, j)                                                                              \
    PE_UNROLL                                                                                      \
    for (int i = 0; i < PE_MR; i++)                                                                \
        PE_UNROLL                                                                                  \
    for (int j = 0; j < PE_NR; j++)

PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, tile_a, 16 * PE_TILE_M);
    PE_SHARED(float, tile_b, 16 * PE_TILE_N);
    const int x = pe_item() % 16, y = pe_item() / 16;
    const int tile = pe_group() / PE_COLUMN_TILES, row0 = tile % PE_ROW_TILES * PE_TILE_M;
    const int column0 = pe_group() % PE_COLUMN_TILES * PE_TILE_N;
    const int part = PE_PARTS > 1 ? tile / (PE_ROW_TILES * PE_BATCHES) : 0;
    const int batch = tile / PE_ROW_TILES - part * PE_BATCHES;
    const int first = part * PE_SHARE;
    const int last = PE_PARTS > 1 && first + PE_SHARE < PE_K ? first + PE_SHARE : PE_K;
    float sums[PE_MR][PE_NR];
    PE_EACH(i, j) { sums[i][j] = 0.0f; }
    for (int k0 = first; k0 < last; k0 += 16) {
        for (int e = pe_item(); e < 16 * PE_TILE_M; e += 256) {
            const int row = row0 + e / 16, k = k0 + e % 16;
            const int at = row < PE_M && k < last ? PE_A_AT(batch, row, k) : -1;
            tile_a[e % 16 * PE_TILE_M + e / 16] = at < 0 ? 0.0f : PE_A[at];
        }
        for (int e = pe_item(); e < 16 * PE_TILE_N; e += 256) {
            const int column = column0 + e % PE_TILE_N, k = k0 + e / PE_TILE_N;
            const int at = column < PE_N && k < last ? PE_B_AT(batch, k, column) : -1;
            tile_b[e] = at < 0 ? 0.0f : PE_B[at];
        }
        pe_barrier();
        for (int k = 0; k < 16; k++) {
            PE_EACH(i, j) {
                const float a = tile_a[k * PE_TILE_M + y + 16 * i];
                sums[i][j] = PE_MATH(fma)(a, tile_b[k * PE_TILE_N + x + 16 * j], sums[i][j]);
            }
        }
        pe_barrier();
    }
    PE_EACH(i, j) {
        const int row = row0 + y + 16 * i, column = column0 + x + 16 * j;
        if (row < PE_M && column < PE_N) {
            const int at = PE_C_AT(batch, row, column);
            PE_END(sums[i][j], at)
        }
    }
}

#undef PE_EACH
#undef PE_TILE_M
#undef PE_TILE_N
#undef PE_ROW_TILES
#undef PE_COLUMN_TILES
