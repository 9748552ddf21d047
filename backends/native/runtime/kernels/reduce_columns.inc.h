/* The loops of a reduction over rows: PE_OUTER x PE_ROWS x PE_COLUMNS elements to PE_OUTER x
 * PE_COLUMNS results. Columns are vectors, so no sums across lanes are needed.
 *
 * Threads share the outer indices if there are enough of them; else each reduces its own rows into
 * its part of scratch, and then the team finishes the columns, adding the parts in the order of the
 * threads. Blocked summation over rows limits rounding errors in long columns; sums are pairwise
 * where that is no more work: AArch64 sums products of a block by multiply-adds.
 *
 * Parameters:
 *   PE_FN(name), PE_VL, PE_OUTER, PE_ROWS, PE_COLUMNS
 *   PE_BY_OUTER        1: threads share the outer indices
 *   PE_REDUCE          a value of reduce.inc.h
 *   PE_VALUES          reduced values of an element (moments: 1)
 *   PE_STATES          accumulators of a column (moments: 2, the mean and the sum of squares)
 *   PE_FN(io), PE_FN(tile)(io, outer, row, column, lanes, rows, v)
 *                      v[k][i] = value k of row i
 *   PE_FN(finish)(io, outer, row, column, lanes, rows, s)
 *                      stores the results of a column from its accumulators s[k][0]
 */

#if !defined(PE_BY_OUTER) || !defined(PE_REDUCE)
#error "reduce_columns.inc.h needs PE_BY_OUTER and PE_REDUCE"
#endif

#include "reduce.inc.h"

/* The lanes of a row's last vector; kernels for several lengths pass it as a parameter. */
#ifndef PE_TAIL
#define PE_TAIL (PE_COLUMNS % PE_VL)
#endif

#define PE_CHAINED (PE_PAIR_REACH && PE_REDUCE == PE_REDUCE_SUM)
/* Rows of a block's tiles. */
#if PE_REDUCE != PE_REDUCE_MOMENTS
#define PE_TILE_ROWS (PE_CHAINED ? 8 : 4)
#define PE_PART_ROWS 4
#else
#define PE_TILE_ROWS (PE_PAIR_REACH ? 32 : 8)
#define PE_PART_ROWS 8
#endif
#define PE_PITCH ((PE_COLUMNS + PE_VL - 1) / PE_VL * PE_VL)

#if PE_REDUCE == PE_REDUCE_MOMENTS
/* Merges the mean and squared deviations of `rows` rows into those of `seen` earlier ones by Chan's
 * formula, which is stable for any mean. */
PE_INLINE void PE_FN(merge)(pe_vf s[PE_STATES][1], const pe_vf mean, const pe_vf squares,
                            const float rows, const float seen) {
    const pe_vf delta = mean - s[0][0];
    const float share = rows / (rows + seen);
    s[0][0] += delta * share;
    s[1][0] += squares + delta * delta * (seen * share);
}

#elif !PE_CHAINED
PE_INLINE void PE_FN(accumulate)(pe_vf s[PE_STATES][1], pe_vf v[PE_VALUES][PE_TILE_ROWS],
                                 const int rows) {
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        if (rows == PE_TILE_ROWS) {
            const pe_vf low = PE_COMBINE(v[k][0], v[k][1]);
            const pe_vf high = PE_COMBINE(v[k][2], v[k][3]);
            s[k][0] = PE_COMBINE(s[k][0], PE_COMBINE(low, high));
        } else {
            s[k][0] = PE_COMBINE(s[k][0], v[k][0]);
        }
    }
}
#endif

/* The number of tiles of a block over which a column's accumulators stay in registers. */
#if PE_CHAINED
#define PE_BLOCK_TILES 4
#else
#define PE_BLOCK_TILES (PE_TILE_ROWS > PE_PART_ROWS ? 1 : 2)
#endif

PE_INLINE void PE_FN(load_state)(const PE_FN(io) * io, pe_vf s[PE_STATES][1], const float *state,
                                 const ptrdiff_t column) {
    (void)io;
    PE_UNROLL
    for (int k = 0; k < PE_STATES; k++) {
        s[k][0] = pe_load(state + k * PE_PITCH + column);
    }
}

PE_INLINE void PE_FN(store_state)(const PE_FN(io) * io, pe_vf s[PE_STATES][1], float *state,
                                  const ptrdiff_t column) {
    (void)io;
    PE_UNROLL
    for (int k = 0; k < PE_STATES; k++) {
        pe_store(state + k * PE_PITCH + column, s[k][0]);
    }
}

#if PE_REDUCE == PE_REDUCE_MOMENTS
/* Adds `tiles` tiles of `rows` rows to the mean and squared deviations of `lanes` columns.
 *
 * Differences from the running mean are summed; it starts as the first row's value. A block far
 * from the mean loses digits, but its deviation is then large enough to hide them. */
PE_INLINE void PE_FN(add_block)(const PE_FN(io) * io, float *state, const ptrdiff_t outer,
                                const ptrdiff_t row, const ptrdiff_t column, const int lanes,
                                const int tiles, const int rows, const ptrdiff_t seen) {
    pe_vf s[PE_STATES][1], v[PE_VALUES][PE_TILE_ROWS], sum = pe_zero(), squares = pe_zero();
    PE_FN(load_state)(io, s, state, column);
    PE_UNROLL
    for (int tile = 0; tile < tiles; tile++) {
        PE_FN(tile)(io, outer, row + tile * rows, column, lanes, rows, v);
        if (seen == 0 && tile == 0) {
            s[0][0] = v[0][0];
        }
        PE_UNROLL
        for (int i = 0; i < rows; i++) {
            const pe_vf delta = v[0][i] - s[0][0];
            sum = tile + i == 0 ? delta : sum + delta;
            squares = tile + i == 0 ? delta * delta : squares + delta * delta;
        }
    }
    const float count = (float)(tiles * rows), share = count / (count + (float)seen);
    const pe_vf delta = sum * (1.0f / count);
    s[0][0] += delta * share;
    s[1][0] += squares - delta * delta * (count * share);
    PE_FN(store_state)(io, s, state, column);
}
#else
/* Adds `tiles` tiles of `rows` rows to the accumulators of some columns. */
PE_INLINE void PE_FN(add_block)(const PE_FN(io) * io, float *state, const ptrdiff_t outer,
                                const ptrdiff_t row, const ptrdiff_t column, const int lanes,
                                const int tiles, const int rows, const ptrdiff_t seen) {
    (void)seen;
    pe_vf s[PE_STATES][1], v[PE_VALUES][PE_TILE_ROWS];
#if PE_CHAINED
    pe_vf sums[PE_VALUES];
    PE_UNROLL
    for (int tile = 0; tile < tiles; tile++) {
        PE_FN(tile)(io, outer, row + tile * rows, column, lanes, rows, v);
        PE_UNROLL
        for (int at = 0; at < PE_VALUES * rows; at++) {
            const int k = at / rows, i = at % rows;
            sums[k] = tile + i == 0 ? v[k][i] : sums[k] + v[k][i];
        }
    }
    PE_FN(load_state)(io, s, state, column);
    PE_UNROLL
    for (int k = 0; k < PE_VALUES; k++) {
        s[k][0] += sums[k];
    }
#else
    PE_FN(load_state)(io, s, state, column);
    for (int tile = 0; tile < tiles; tile++) {
        PE_FN(tile)(io, outer, row + tile * rows, column, lanes, rows, v);
        PE_FN(accumulate)(s, v, rows);
    }
#endif
    PE_FN(store_state)(io, s, state, column);
}
#endif

PE_INLINE void PE_FN(add_rows)(const PE_FN(io) * io, float *state, const ptrdiff_t outer,
                               const ptrdiff_t row, const int tiles, const int rows,
                               const ptrdiff_t seen) {
    ptrdiff_t column = 0;
    for (; column + PE_VL <= PE_COLUMNS; column += PE_VL) {
        PE_FN(add_block)(io, state, outer, row, column, PE_VL, tiles, rows, seen);
    }
    if (PE_TAIL) {
        PE_FN(add_block)(io, state, outer, row, column, PE_TAIL, tiles, rows, seen);
    }
}

/* Reduces rows `begin` to `end` of one outer into `state`. */
PE_INLINE void PE_FN(reduce)(const PE_FN(io) * io, float *state, const ptrdiff_t outer,
                             const ptrdiff_t begin, const ptrdiff_t end) {
    const ptrdiff_t block = PE_BLOCK_TILES * PE_TILE_ROWS;
    ptrdiff_t row = begin;
    for (int i = 0; i < PE_STATES * PE_PITCH; i++) {
        state[i] = PE_NEUTRAL;
    }
    for (; row + block <= end; row += block) {
        PE_FN(add_rows)(io, state, outer, row, PE_BLOCK_TILES, PE_TILE_ROWS, row - begin);
    }
    for (; row + PE_PART_ROWS <= end; row += PE_PART_ROWS) {
        PE_FN(add_rows)(io, state, outer, row, 1, PE_PART_ROWS, row - begin);
    }
    for (; row < end; row++) {
        PE_FN(add_rows)(io, state, outer, row, 1, 1, row - begin);
    }
}

/* Adds up the parts of all threads for some columns, and stores the results. */
PE_INLINE void PE_FN(finish_columns)(const pe_worker *w, const PE_FN(io) * io, const float *states,
                                     const ptrdiff_t outer, const ptrdiff_t column,
                                     const int lanes) {
    pe_vf s[PE_STATES][1], other[PE_STATES][1];
    PE_FN(load_state)(io, s, states, column);
    for (int t = 1; !PE_BY_OUTER && t < w->count; t++) {
        PE_FN(load_state)(io, other, states + t * PE_STATES * (ptrdiff_t)PE_PITCH, column);
#if PE_REDUCE == PE_REDUCE_MOMENTS
        const pe_worker part = {t, w->count, w->team};
        const pe_range rows = pe_split(&part, PE_ROWS, 1);
        if (rows.end > rows.begin) {
            PE_FN(merge)(s, other[0][0], other[1][0], (float)(rows.end - rows.begin),
                         (float)rows.begin);
        }
#else
        PE_UNROLL
        for (int k = 0; k < PE_STATES; k++) {
            s[k][0] = PE_COMBINE(s[k][0], other[k][0]);
        }
#endif
    }
    PE_FN(finish)(io, outer, 0, column, lanes, 1, s);
}

PE_INLINE void PE_FN(finish_range)(const pe_worker *w, const PE_FN(io) * io, const float *states,
                                   const ptrdiff_t outer, const pe_range columns) {
    ptrdiff_t column = columns.begin;
    for (; column + PE_VL <= columns.end; column += PE_VL) {
        PE_FN(finish_columns)(w, io, states, outer, column, PE_VL);
    }
    if (PE_TAIL && column < columns.end) {
        PE_FN(finish_columns)(w, io, states, outer, column, PE_TAIL);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, float *scratch) {
    float *mine = scratch + w->index * PE_STATES * (ptrdiff_t)PE_PITCH;
#if PE_BY_OUTER
    const pe_range share = pe_split(w, PE_OUTER, 1);
    for (ptrdiff_t outer = share.begin; outer < share.end; outer++) {
        PE_FN(reduce)(io, mine, outer, 0, PE_ROWS);
        PE_FN(finish_range)(w, io, mine, outer, (pe_range){0, PE_COLUMNS});
    }
#else
    const pe_range rows = pe_split(w, PE_ROWS, 1);
    for (ptrdiff_t outer = 0; outer < PE_OUTER; outer++) {
        PE_FN(reduce)(io, mine, outer, rows.begin, rows.end);
        pe_barrier(w);
        PE_FN(finish_range)(w, io, scratch, outer, pe_split(w, PE_COLUMNS, PE_VL));
        if (outer + 1 < PE_OUTER) {
            pe_barrier(w);
        }
    }
#endif
}

#undef PE_BLOCK_TILES
#undef PE_BY_OUTER
#undef PE_CHAINED
#undef PE_COLUMNS
#undef PE_COMBINE
#undef PE_COMBINE_FLOAT
#undef PE_NEUTRAL
#undef PE_OUTER
#undef PE_PART_ROWS
#undef PE_PITCH
#undef PE_REDUCE
#undef PE_ROWS
#undef PE_STATES
#undef PE_TAIL
#undef PE_TILE_ROWS
#undef PE_VALUES
#include "undef.inc.h"
