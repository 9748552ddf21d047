/* The loops of an elementwise kernel over PE_OUTER x PE_ROWS x PE_COLUMNS elements.
 *
 * Parameters:
 *   PE_FN(name), PE_VL           name of a function of this kernel, lanes
 *   PE_OUTER, PE_ROWS, PE_COLUMNS
 *   PE_BY_COLUMNS                1: threads share the columns, 0: the rows
 *   PE_FN(io), PE_FN(tile)(io, outer, row, column, lanes, rows)
 *                                loads, computes and stores `rows` rows of `lanes` columns
 */

#if !defined(PE_BY_COLUMNS) || !defined(PE_PAIR_REACH)
#error "elementwise.inc.h needs PE_BY_COLUMNS, and pe_vec.h"
#endif

/* The lanes of a row's last vector; kernels for several lengths pass it as a parameter. */
#ifndef PE_TAIL
#define PE_TAIL (PE_COLUMNS % PE_VL)
#endif

/* A pragma for the loop over columns. */
#ifndef PE_COLUMN_LOOP
#define PE_COLUMN_LOOP
#endif

/* The number of rows that share row-independent loads and computations. */
#if PE_PAIR_REACH
#define PE_TILE_ROWS 16
#else
#define PE_TILE_ROWS 4
#endif

PE_INLINE void PE_FN(rows)(const PE_FN(io) * io, const ptrdiff_t outer, const ptrdiff_t row,
                           const int rows, const ptrdiff_t begin, const ptrdiff_t end) {
    ptrdiff_t column = begin;
    PE_COLUMN_LOOP
    for (; column + PE_VL <= end; column += PE_VL) {
        PE_FN(tile)(io, outer, row, column, PE_VL, rows);
    }
    if (PE_TAIL && column < end) { /* only the last share has a partial vector */
        PE_FN(tile)(io, outer, row, column, PE_TAIL, rows);
    }
}

/* Rows `row` to `row_end` of one outer index. */
PE_INLINE void PE_FN(segment)(const PE_FN(io) * io, const ptrdiff_t outer, ptrdiff_t row,
                              const ptrdiff_t row_end, const ptrdiff_t begin, const ptrdiff_t end) {
    for (; row + PE_TILE_ROWS <= row_end; row += PE_TILE_ROWS) {
        PE_FN(rows)(io, outer, row, PE_TILE_ROWS, begin, end);
    }
#if PE_TILE_ROWS > 4
    for (; row + 4 <= row_end; row += 4) {
        PE_FN(rows)(io, outer, row, 4, begin, end);
    }
#endif
    for (; row < row_end; row++) {
        PE_FN(rows)(io, outer, row, 1, begin, end);
    }
}

PE_INLINE void PE_FN(run)(const pe_worker *w, const PE_FN(io) * io) {
#if PE_BY_COLUMNS
    const pe_range share = pe_split(w, PE_COLUMNS, 64);
    for (ptrdiff_t outer = 0; outer < PE_OUTER; outer++) {
        PE_FN(segment)(io, outer, 0, PE_ROWS, share.begin, share.end);
    }
#else
    const pe_range share = pe_split(w, (ptrdiff_t)PE_OUTER * PE_ROWS, 1);
    for (ptrdiff_t at = share.begin; at < share.end;) {
        const ptrdiff_t outer = at / PE_ROWS;
        const ptrdiff_t row = at - outer * PE_ROWS;
        const ptrdiff_t left = share.end - at;
        const ptrdiff_t row_end = left < PE_ROWS - row ? row + left : PE_ROWS;
        PE_FN(segment)(io, outer, row, row_end, 0, PE_COLUMNS);
        at += row_end - row;
    }
#endif
}

#undef PE_TAIL
#undef PE_COLUMN_LOOP
#undef PE_TILE_ROWS
#undef PE_OUTER
#undef PE_ROWS
#undef PE_COLUMNS
#undef PE_BY_COLUMNS
#include "undef.inc.h"
