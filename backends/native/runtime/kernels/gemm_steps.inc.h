/* The steps of a tile of gemm_tile.inc.h: rows of B times columns of A, added to the tile's sums.
 *
 * Where a multiply-add takes one lane of a vector, four steps at a time: one load reads four
 * elements of A. Parameters as in gemm_tile.inc.h.
 */

#if !defined(PE_VL) || !defined(PE_TILE_STEP) || !defined(PE_PARTIAL) || !defined(PE_A_ROW) ||     \
    !defined(PE_B_PANEL) || !defined(PE_PAIR_REACH)
#error "gemm_steps.inc.h needs what gemm_tile.inc.h defines"
#endif

#if PE_VL > 4 || (PE_A_ROW == 1 && !PE_PAIR_REACH)
#define PE_UNROLL_STEPS PE_UNROLL_4 /* 1.1 times as fast on a core that two threads share */
#else
#define PE_UNROLL_STEPS
#endif
#define PE_ROWS_BY_LANE (PE_VL == 4 && PE_A_STEP == 1 && PE_A_ROW != 1)
/* Sums that are complete after one run of steps start with a product. */
#define PE_FRESH (PE_PAIR_REACH && PE_VL == 4 && !PE_SEGMENTED && !PE_PARTIAL)
#define PE_AHEAD_STEPS (PE_PAIR_REACH && (PE_ROWS_BY_LANE || (PE_VL == 4 && PE_A_ROW == 1)))

/* Adds a product to a sum; the first product replaces a `fresh` sum, which needs no clearing. */
PE_INLINE pe_vf PE_FN(add)(const pe_vf sum, const pe_vf v, const float x, const int fresh) {
    return fresh ? v * x : PE_ADD_PRODUCT(sum, v, x);
}

#if PE_VL == 4 && PE_A_ROW == 1
/* Columns of A are contiguous: load four rows at once and multiply by single lanes. */
PE_INLINE void PE_FN(step)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b, const int rows,
                           const int vectors, const int lanes, const int fresh) {
    pe_vf va[(PE_MR + 3) / 4], vb[PE_NV];
    PE_FN(load_b)(vb, b, vectors, lanes);
    PE_UNROLL
    for (int i = 0; i < rows; i += 4) {
        va[i / 4] = pe_load_part(a + i, rows - i);
    }
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            c[i][j] = PE_FN(add)(c[i][j], vb[j], va[i / 4][i % 4], fresh);
        }
    }
}
#else
PE_INLINE void PE_FN(step)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b, const int rows,
                           const int vectors, const int lanes, const int fresh) {
    pe_vf vb[PE_NV];
    PE_FN(load_b)(vb, b, vectors, lanes);
#if PE_VL > 4 && !PE_B_PANEL
    /* The first tile of a panel reads rows of B on different pages: the prefetch makes it 1.4 times
     * as fast on weights of 9 MB, and costs nothing on small ones. */
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        __builtin_prefetch(b + j * PE_VL + 16 * (ptrdiff_t)PE_B_PITCH);
    }
#endif
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        const float x = a[i * (ptrdiff_t)PE_TILE_ROW];
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            c[i][j] = PE_FN(add)(c[i][j], vb[j], x, fresh);
        }
    }
}
#endif

#if PE_AHEAD_STEPS
#include "gemm_steps_ahead.inc.h"
#elif PE_ROWS_BY_LANE
/* Four steps on contiguous rows of A, which are loaded at once and multiplied by lanes. */
PE_INLINE void PE_FN(four_steps)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b,
                                 const ptrdiff_t pitch, const int rows, const int vectors,
                                 const int lanes) {
    pe_vf va[PE_MR], vb[PE_NV];
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        va[i] = pe_load(a + i * (ptrdiff_t)PE_A_ROW);
    }
    PE_UNROLL
    for (int q = 0; q < 4; q++) {
        PE_FN(load_b)(vb, b + q * pitch, vectors, lanes);
        PE_UNROLL
        for (int i = 0; i < rows; i++) {
            PE_UNROLL
            for (int j = 0; j < vectors; j++) {
                c[i][j] = PE_FN(add)(c[i][j], vb[j], va[i][q], 0);
            }
        }
    }
}
#endif

PE_INLINE void PE_FN(multiply)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b,
                               const ptrdiff_t pitch, const int depth, const int rows,
                               const int vectors, const int lanes) {
    int k = 0;
#if PE_AHEAD_STEPS
    if (depth >= 4) {
        k = PE_FN(steps_ahead)(c, a, b, pitch, depth, rows, vectors, lanes);
    } else if (PE_FRESH) {
        PE_FN(step)(c, a, b, rows, vectors, lanes, 1);
        k = 1;
    }
    a += k * PE_TILE_STEP;
    b += k * pitch;
#elif PE_ROWS_BY_LANE
    for (; k + 4 <= depth; k += 4) {
        PE_FN(four_steps)(c, a, b, pitch, rows, vectors, lanes);
        a += 4 * PE_TILE_STEP;
        b += 4 * pitch;
    }
#endif
    PE_UNROLL_STEPS
    for (; k < depth; k++) {
        PE_FN(step)(c, a, b, rows, vectors, lanes, 0);
        a += PE_TILE_STEP;
        b += pitch;
    }
}
