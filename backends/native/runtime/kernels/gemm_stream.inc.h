/* Matrix multiply y = epilogue(A B) where A has few rows and B exceeds the caches: a token of a
 * decoder, or a classifier at batch 1.
 *
 * B is read once, in the order of memory, which takes half as long as panels of columns do: sums of
 * all columns stay in the first-level cache, and each pass adds PE_STEPS rows of B. Threads share
 * the columns.
 *
 * Parameters: PE_FN, PE_VL, PE_M, PE_N, PE_K, PE_A_ROW, PE_B_PITCH, PE_FN(io), PE_FN(store) as in
 * gemm.inc.h; PE_STEPS; PE_PITCH, of the rows of sums, whole vectors; PE_B_TYPE and PE_LOAD_B(p, n)
 * of an element of B, f32 by default. With PE_BY_LANE, factors of PE_VL steps are one vector, whose
 * lanes are multiplied; else each is a vector.
 */

#if !defined(PE_BY_LANE) || !defined(PE_K) || !defined(PE_N) || !defined(PE_STEPS) ||              \
    !defined(PE_VL)
#error "gemm_stream.inc.h needs PE_BY_LANE, PE_K, PE_N, PE_STEPS and PE_VL"
#endif

#include "pe_prefetch.h"

#if PE_BY_LANE
#define PE_FACTORS ((PE_STEPS + PE_VL - 1) / PE_VL)
#define PE_FACTOR(row, k) pe_splat((row)[(k) / PE_VL][(k) % PE_VL])
#else
#define PE_FACTORS PE_STEPS
#define PE_FACTOR(row, k) (row)[k]
#endif

#ifndef PE_B_TYPE
#define PE_B_TYPE float
#define PE_LOAD_B pe_load_part
#endif

/* Adds the products of `steps` rows of B with one vector of columns to its sums. */
PE_INLINE void PE_FN(vector)(float *sums, pe_vf a[PE_M][PE_FACTORS], const PE_B_TYPE *b,
                             const int steps, const int lanes, const int first) {
    pe_vf rows[PE_STEPS];
    PE_UNROLL
    for (int k = 0; k < steps; k++) {
        rows[k] = PE_LOAD_B(b + k * (ptrdiff_t)PE_B_PITCH, lanes);
    }
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        pe_vf sum = first ? pe_zero() : pe_load(sums + i * PE_PITCH);
        PE_UNROLL
        for (int k = 0; k < steps; k++) {
            sum += PE_FACTOR(a[i], k) * rows[k];
        }
        pe_store(sums + i * PE_PITCH, sum);
    }
}

/* Adds the products of `steps` rows of B to the sums of the columns. */
PE_INLINE void PE_FN(pass)(float *sums, const float *a, const PE_B_TYPE *b, const pe_range columns,
                           const int steps, const int first) {
    pe_vf factors[PE_M][PE_FACTORS];
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        const float *row = a + i * (ptrdiff_t)PE_A_ROW;
#if PE_BY_LANE
        PE_UNROLL
        for (int k = 0; k < steps; k += PE_VL) {
            factors[i][k / PE_VL] = pe_load_part(row + k, steps - k < PE_VL ? steps - k : PE_VL);
        }
#else
        PE_UNROLL
        for (int k = 0; k < steps; k++) {
            factors[i][k] = pe_splat(row[k]);
        }
#endif
    }
    ptrdiff_t column = columns.begin;
    pe_read_in_order(b + column, PE_B_PITCH, steps, columns.end - column, sizeof *b);
    for (; column + PE_VL <= columns.end; column += PE_VL) {
        PE_FN(vector)(sums + column, factors, b + column, steps, PE_VL, first);
    }
#if PE_N % PE_VL
    if (column < columns.end) {
        PE_FN(vector)(sums + column, factors, b + column, steps, PE_N % PE_VL, first);
    }
#endif
}

PE_INLINE void PE_FN(run)(const pe_worker *w, const PE_FN(io) * io, const float *a,
                          const PE_B_TYPE *b, float *sums) {
    const pe_range columns = pe_split(w, PE_N, 16); /* a line of sums belongs to one thread */
    PE_FN(pass)(sums, a, b, columns, PE_STEPS, 1);
    int k = PE_STEPS;
    for (; k + PE_STEPS <= PE_K; k += PE_STEPS) {
        PE_FN(pass)(sums, a + k, b + k * (ptrdiff_t)PE_B_PITCH, columns, PE_STEPS, 0);
    }
#if PE_K % PE_STEPS
    PE_FN(pass)(sums, a + k, b + k * (ptrdiff_t)PE_B_PITCH, columns, PE_K % PE_STEPS, 0);
#endif
    for (int i = 0; i < PE_M; i++) {
        for (ptrdiff_t column = columns.begin; column < columns.end; column += PE_VL) {
            const int left = (int)(columns.end - column), lanes = left < PE_VL ? left : PE_VL;
            PE_FN(store)(io, pe_load(sums + i * PE_PITCH + column), i, (int)column, lanes);
        }
    }
}

#undef PE_BY_LANE
#undef PE_FACTOR
#undef PE_FACTORS
#undef PE_PITCH
#undef PE_STEPS
#include "undef.inc.h"
