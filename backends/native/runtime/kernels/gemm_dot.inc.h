/* Matrix multiply y = epilogue(A Bᵀ) where A has few rows: the input gradient of a linear layer at
 * small batches.
 *
 * Transposing B would cost more than the product. Both matrices are read along the inner dimension
 * instead: vectors of partial sums for a tile of PE_MR rows and PE_NV rows of B, added up across
 * lanes at the end. Threads share the rows of B, in blocks of PE_VL.
 *
 * Parameters: PE_FN, PE_VL, PE_MR, PE_NV (divides PE_VL), PE_M, PE_N, PE_K, PE_A_ROW, PE_B_PITCH,
 * PE_BATCH, PE_A_BATCH(i), PE_B_BATCH(i), PE_FN(io), PE_FN(store) as in gemm.inc.h; PE_B_TYPE and
 * PE_LOAD_B(p, n) of an element of B, f32 by default.
 */

#if !defined(PE_K) || !defined(PE_M) || !defined(PE_MR) || !defined(PE_VL)
#error "gemm_dot.inc.h needs PE_K, PE_M, PE_MR and PE_VL"
#endif

#include "pe_prefetch.h"

#ifndef PE_B_TYPE
#define PE_B_TYPE float
#define PE_LOAD_B pe_load_part
#endif
#define PE_BLOCKS ((PE_N + PE_VL - 1) / PE_VL)

/* One vector of steps. */
PE_INLINE void PE_FN(dot_step)(pe_vf c[PE_MR][PE_NV], const float *a, const PE_B_TYPE *b,
                               const int rows, const int columns, const int lanes) {
    pe_vf vb[PE_NV];
    PE_UNROLL
    for (int j = 0; j < columns; j++) {
        vb[j] = PE_LOAD_B(b + j * (ptrdiff_t)PE_B_PITCH, lanes);
    }
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        const pe_vf va = pe_load_part(a + i * (ptrdiff_t)PE_A_ROW, lanes);
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            c[i][j] += va * vb[j];
        }
    }
}

/* sums[i * PE_VL + j] of `rows` rows of A with `columns` rows of B. */
PE_INLINE void PE_FN(dot)(float *sums, const float *a, const PE_B_TYPE *b, const int rows,
                          const int columns) {
    pe_vf c[PE_MR][PE_NV];
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            c[i][j] = pe_zero();
        }
    }
    int k = 0;
    for (; k + PE_VL <= PE_K; k += PE_VL) {
        PE_FN(dot_step)(c, a + k, b + k, rows, columns, PE_VL);
    }
#if PE_K % PE_VL
    PE_FN(dot_step)(c, a + k, b + k, rows, columns, PE_K % PE_VL);
#endif
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            sums[i * PE_VL + j] = pe_sum(c[i][j]);
        }
    }
}

/* Rows `row` to row + rows of one block of columns; `b` is the block's first row of B. */
PE_INLINE void PE_FN(dot_rows)(const PE_FN(io) * io, const float *a, const PE_B_TYPE *b,
                               const ptrdiff_t row, const int column, const int rows,
                               const int lanes) {
    float sums[PE_MR * PE_VL] = {0};
    int j = 0;
    for (; j + PE_NV <= lanes; j += PE_NV) {
        PE_FN(dot)(sums + j, a, b + j * (ptrdiff_t)PE_B_PITCH, rows, PE_NV);
    }
    for (; j < lanes; j++) {
        PE_FN(dot)(sums + j, a, b + j * (ptrdiff_t)PE_B_PITCH, rows, 1);
    }
    for (int i = 0; i < rows; i++) {
        PE_FN(store)(io, pe_load(sums + i * PE_VL), row + i, column, lanes);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *a, const PE_B_TYPE *b) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_BATCH * PE_BLOCKS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const ptrdiff_t batch = unit / PE_BLOCKS;
        const int column = (int)(unit - batch * PE_BLOCKS) * PE_VL;
        const int lanes = PE_N - column < PE_VL ? PE_N - column : PE_VL;
        const float *rows = a + PE_A_BATCH(batch);
        const PE_B_TYPE *columns = b + PE_B_BATCH(batch) + column * (ptrdiff_t)PE_B_PITCH;
        pe_read_in_order(columns, PE_B_PITCH, lanes, PE_K, sizeof *b);
        int i = 0;
        for (; i + PE_MR <= PE_M; i += PE_MR) {
            PE_FN(dot_rows)
            (io, rows + i * (ptrdiff_t)PE_A_ROW, columns, batch * PE_M + i, column, PE_MR, lanes);
        }
#if PE_M % PE_MR
        PE_FN(dot_rows)
        (io, rows + i * (ptrdiff_t)PE_A_ROW, columns, batch * PE_M + i, column, PE_M % PE_MR,
         lanes);
#endif
    }
}

#undef PE_BLOCKS
#include "undef.inc.h"
