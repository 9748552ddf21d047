/* A tile of an integer product: PE_MR rows and PE_NV vectors of sums in registers.
 *
 * Parameters, besides those of integer.inc.h:
 *   PE_MR, PE_NV   rows and vectors of a tile; the functions take those of a partial tile
 */

#define PE_NR (PE_NV * PE_VL)

/* Columns past the last whole tile; kernels for several sizes pass it as a parameter. */
#ifndef PE_TAIL
#define PE_TAIL (PE_N % PE_NR)
#endif

PE_INLINE void PE_FN(clear)(PE_SUMS sum[PE_MR][PE_NV], const int count, const int vectors) {
    PE_UNROLL
    for (int i = 0; i < count; i++) {
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = (PE_SUMS){0};
        }
    }
}

/* Add the products of one number of A per row, `pitch` apart, and a row of B. */
PE_INLINE void PE_FN(add_products)(const PE_FN(io) * io, PE_SUMS sum[PE_MR][PE_NV], const PE_A *a,
                                   const int pitch, const PE_B *b, const int count,
                                   const int vectors, const int lanes) {
    (void)io;
    PE_SUMS vb[PE_NV];
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        vb[j] = PE_LOAD_B(b + j * PE_VL, j == vectors - 1 ? lanes : PE_VL);
    }
    PE_UNROLL
    for (int i = 0; i < count; i++) {
        const PE_NUMBER v = PE_ONE_A(a[i * pitch]);
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            sum[i][j] += vb[j] * v;
        }
    }
}

/* Pass the sums to the epilogue, as rows from `row` and columns from `column`. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, PE_SUMS sum[PE_MR][PE_NV], const ptrdiff_t row,
                             const int column, const int count, const int vectors,
                             const int lanes) {
    PE_UNROLL
    for (int i = 0; i < count; i++) {
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            PE_FN(store)(io, sum[i][j], row + i, column + j * PE_VL,
                         j == vectors - 1 ? lanes : PE_VL);
        }
    }
}
