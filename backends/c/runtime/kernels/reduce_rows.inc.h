/* The loops of a reduction over columns: PE_OUTER rows of PE_COLUMNS elements to one result a row.
 *
 * Threads share the rows where there are enough of them; else each reduces its columns of every row
 * into scratch, and thread 0 finishes, adding the parts in the order of the threads.
 *
 * Parameters: as of reduce_columns.inc.h, but for PE_ROWS (there is one row in each outer) and
 * PE_STATES (one accumulator a value); PE_REDUCE is PE_REDUCE_SUM or PE_REDUCE_MAX.
 */

#if PE_REDUCE == PE_REDUCE_MAX
#define PE_NEUTRAL (-__builtin_inff())
#define PE_COMBINE(a, b) pe_maximum(a, b)
#else
#define PE_NEUTRAL 0.0f
#define PE_COMBINE(a, b) ((a) + (b))
#endif

/* All lanes of a vector in one, in pairs. */
PE_INLINE float PE_FN(across)(pe_vf s) {
    for (int half = PE_VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            const float a = s[i], b = s[i + half];
#if PE_REDUCE == PE_REDUCE_MAX
            s[i] = a > b || a != a ? a : b;
#else
            s[i] = a + b;
#endif
        }
    }
    return s[0];
}

PE_INLINE void PE_FN(add_columns)(const PE_FN(io) * io, pe_vf s[PE_VALUES], const ptrdiff_t outer,
                                  const ptrdiff_t column, const int lanes) {
    pe_vf v[PE_VALUES][1];
    PE_FN(tile)(io, outer, 0, column, lanes, 1, v);
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        if (lanes < PE_VL) {
            v[k][0] = pe_select(pe_first_lanes(lanes), v[k][0], pe_splat(PE_NEUTRAL));
        }
        s[k] = PE_COMBINE(s[k], v[k][0]);
    }
}

/* Reduces columns `begin` to `end` of one row into total[k]. */
PE_INLINE void PE_FN(reduce)(const PE_FN(io) * io, float total[PE_VALUES], const ptrdiff_t outer,
                             const ptrdiff_t begin, const ptrdiff_t end) {
    pe_vf even[PE_VALUES], odd[PE_VALUES];
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        even[k] = odd[k] = pe_splat(PE_NEUTRAL);
    }
    ptrdiff_t column = begin;
    for (; column + 2 * PE_VL <= end; column += 2 * PE_VL) {
        PE_FN(add_columns)(io, even, outer, column, PE_VL);
        PE_FN(add_columns)(io, odd, outer, column + PE_VL, PE_VL);
    }
    if (column + PE_VL <= end) {
        PE_FN(add_columns)(io, even, outer, column, PE_VL);
        column += PE_VL;
    }
    if (column < end) {
        PE_FN(add_columns)(io, odd, outer, column, (int)(end - column));
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
        PE_FN(reduce)(io, total, outer, 0, PE_COLUMNS);
        PE_FN(store)(io, outer, total);
    }
#else
    const pe_range share = pe_split(w, PE_COLUMNS, PE_VL);
    for (ptrdiff_t outer = 0; outer < PE_OUTER; outer++) {
        PE_FN(reduce)(io, total, outer, share.begin, share.end);
        memcpy(scratch + (w->index * PE_OUTER + outer) * PE_VALUES, total, sizeof total);
    }
    pe_barrier(w);
    for (ptrdiff_t outer = 0; w->index == 0 && outer < PE_OUTER; outer++) {
        memcpy(total, scratch + outer * PE_VALUES, sizeof total);
        for (int t = 1; t < w->count; t++) {
            for (int k = 0; k < PE_VALUES; k++) {
                const float part = scratch[(t * PE_OUTER + outer) * PE_VALUES + k];
#if PE_REDUCE == PE_REDUCE_MAX
                total[k] = part > total[k] || part != part ? part : total[k];
#else
                total[k] += part;
#endif
            }
        }
        PE_FN(store)(io, outer, total);
    }
#endif
}

#undef PE_BY_OUTER
#undef PE_COLUMNS
#undef PE_COMBINE
#undef PE_NEUTRAL
#undef PE_OUTER
#undef PE_REDUCE
#undef PE_VALUES
#include "undef.inc.h"
