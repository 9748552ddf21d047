/* The loops of a reduction over rows and columns: PE_OUTER x PE_ROWS x PE_COLUMNS elements to
 * PE_OUTER results.
 *
 * Threads share the outer indices if there are enough of them; else each reduces its columns of all
 * into scratch, and thread 0 finishes, adding the parts in the order of the threads.
 *
 * Parameters: as in reduce_columns.inc.h, except PE_STATES (one accumulator a value); PE_REDUCE is
 * not PE_REDUCE_MOMENTS.
 */

#if !defined(PE_BY_OUTER)
#error "reduce_rows.inc.h needs PE_BY_OUTER"
#endif

#include "reduce.inc.h"

/* The lanes of a row's last vector; kernels for several lengths pass it as a parameter. */
#ifndef PE_TAIL
#define PE_TAIL (PE_COLUMNS % PE_VL)
#endif

/* Combines all lanes of a vector, pairwise. */
PE_INLINE float PE_FN(across)(pe_vf s) {
    for (int half = PE_VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            const float a = s[i], b = s[i + half];
            s[i] = PE_COMBINE_FLOAT(a, b);
        }
    }
    return s[0];
}

PE_INLINE void PE_FN(add)(const PE_FN(io) * io, pe_vf s[PE_VALUES], const ptrdiff_t outer,
                          const ptrdiff_t row, const ptrdiff_t column, const int lanes) {
    pe_vf v[PE_VALUES][1];
    PE_FN(tile)(io, outer, row, column, lanes, 1, v);
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        if (lanes < PE_VL) {
            v[k][0] = pe_select(pe_first_lanes(lanes), v[k][0], pe_splat(PE_NEUTRAL));
        }
        s[k] = PE_COMBINE(s[k], v[k][0]);
    }
}

PE_INLINE void PE_FN(add_row)(const PE_FN(io) * io, pe_vf even[PE_VALUES], pe_vf odd[PE_VALUES],
                              const ptrdiff_t outer, const ptrdiff_t row, const pe_range columns) {
    ptrdiff_t column = columns.begin;
    for (; column + 2 * PE_VL <= columns.end; column += 2 * PE_VL) {
        PE_FN(add)(io, even, outer, row, column, PE_VL);
        PE_FN(add)(io, odd, outer, row, column + PE_VL, PE_VL);
    }
    if (column + PE_VL <= columns.end) {
        PE_FN(add)(io, even, outer, row, column, PE_VL);
        column += PE_VL;
    }
    if (PE_TAIL && column < columns.end) {
        PE_FN(add)(io, odd, outer, row, column, PE_TAIL);
    }
}

/* Reduces some columns of all rows of one outer into total[k]. */
PE_INLINE void PE_FN(reduce)(const PE_FN(io) * io, float total[PE_VALUES], const ptrdiff_t outer,
                             const pe_range columns) {
    pe_vf even[PE_VALUES], odd[PE_VALUES];
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        even[k] = odd[k] = pe_splat(PE_NEUTRAL);
    }
    for (ptrdiff_t row = 0; row < PE_ROWS; row++) {
        PE_FN(add_row)(io, even, odd, outer, row, columns);
    }
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        total[k] = PE_FN(across)(PE_COMBINE(even[k], odd[k]));
    }
}

PE_INLINE void PE_FN(store)(const PE_FN(io) * io, const ptrdiff_t outer,
                            const float total[PE_VALUES]) {
    pe_vf s[PE_VALUES][1];
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        s[k][0] = pe_splat(total[k]);
    }
    PE_FN(finish)(io, outer, 0, 0, 1, 1, s);
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, float *scratch) {
    float total[PE_VALUES];
#if PE_BY_OUTER
    (void)scratch;
    const pe_range share =
        pe_split(w, PE_OUTER, 16); /* results of a cache line: no false sharing */
    for (ptrdiff_t outer = share.begin; outer < share.end; outer++) {
        PE_FN(reduce)(io, total, outer, (pe_range){0, PE_COLUMNS});
        PE_FN(store)(io, outer, total);
    }
#else
    const pe_range share = pe_split(w, PE_COLUMNS, PE_VL);
    for (ptrdiff_t outer = 0; outer < PE_OUTER; outer++) {
        PE_FN(reduce)(io, total, outer, share);
        memcpy(scratch + (w->index * PE_OUTER + outer) * PE_VALUES, total, sizeof total);
    }
    pe_barrier(w);
    for (ptrdiff_t outer = 0; w->index == 0 && outer < PE_OUTER; outer++) {
        memcpy(total, scratch + outer * PE_VALUES, sizeof total);
        for (int t = 1; t < w->count; t++) {
            for (int k = 0; k < PE_VALUES; k++) {
                const float part = scratch[(t * PE_OUTER + outer) * PE_VALUES + k];
                total[k] = PE_COMBINE_FLOAT(total[k], part);
            }
        }
        PE_FN(store)(io, outer, total);
    }
#endif
}

#undef PE_BY_OUTER
#undef PE_COLUMNS
#undef PE_COMBINE
#undef PE_COMBINE_FLOAT
#undef PE_NEUTRAL
#undef PE_OUTER
#undef PE_REDUCE
#undef PE_ROWS
#undef PE_TAIL
#undef PE_VALUES
#include "undef.inc.h"
