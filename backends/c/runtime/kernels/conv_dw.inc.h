/* Gradient of a convolution with respect to its weights: gathered pixels, transposed, times dy.
 *
 * The result's rows are taps and channels, its columns the output channels; the sum runs over all
 * positions of the window. Taps are taken in blocks, and for each the positions in blocks, so that
 * the gathered matrix stays in the cache. Threads share the positions, each with its own sums,
 * which are added up at the end; or the columns of a large result, gathering together.
 *
 * Parameters, besides those of gather.inc.h and gemm_tile.inc.h:
 *   PE_GRID_TABLE, PE_POSITIONS, PE_TAPS  the window's one grid, its positions in all images, its
 * taps PE_GROUPS                 groups, with PE_CHANNELS gathered and PE_N result channels each
 *   PE_WINDOW_ROWS, PE_WINDOW_TAPS        positions and taps in a block; the latter divides PE_TAPS
 *   PE_SPLIT, PE_THREADS      as in gemm.inc.h, INNER or COLUMNS
 *   PE_PART_FLOATS, PE_WINDOW_FLOATS      scratch of a thread for its sums, and for a gathered
 * block
 */

#define PE_OUT_C (PE_GROUPS * PE_N)
#define PE_OUT_ROWS (PE_TAPS * PE_CHANNELS)
#define PE_M (PE_WINDOW_TAPS * PE_CHANNELS)
#define PE_A_ROW 1
#define PE_A_STEP PE_GATHER_PITCH
#define PE_B_PITCH PE_OUT_C
#define PE_B_TRANSPOSED 0
#define PE_OUTPUT_ROW(i) (t->row + (i))
#define PE_PARTIAL_PITCH PE_OUT_C
#define PE_PADDED_ROWS 0
#include "add_parts.inc.h"
#include "gather.inc.h"
#include "gemm_tile.inc.h"
#include "team.inc.h"

static const PE_FN(grid) PE_FN(window) = PE_GRID_TABLE;

/* Gather positions `begin` to `end`: each thread its own, or all threads together. */
PE_INLINE void PE_FN(fill)(pe_worker *w, float *window, const float *x, ptrdiff_t begin,
                           ptrdiff_t end, int tap) {
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range share = pe_split(w, end - begin, 1);
    pe_barrier(w); /* nobody reads the block before this one any more */
    PE_FN(gather)(window + share.begin * PE_GATHER_PITCH, x, &PE_FN(window), begin + share.begin,
                  begin + share.end, tap, tap + PE_WINDOW_TAPS);
    pe_barrier(w);
#else
    (void)w;
    PE_FN(gather)(window, x, &PE_FN(window), begin, end, tap, tap + PE_WINDOW_TAPS);
#endif
}

/* The sums of one group and one block of taps over `positions`. */
PE_INLINE void PE_FN(correlate)(pe_worker *w, PE_FN(block_args) * t, const float *x,
                                const float *dy, float *window, int tap, pe_range positions) {
    t->row = (ptrdiff_t)tap * PE_CHANNELS;
    t->row_end = PE_M;
    t->a = window;
    for (ptrdiff_t begin = positions.begin; begin < positions.end; begin += PE_WINDOW_ROWS) {
        const ptrdiff_t rest = positions.end - begin;
        t->depth = (int)(rest < PE_WINDOW_ROWS ? rest : PE_WINDOW_ROWS);
        PE_FN(fill)(w, window, x, begin, begin + t->depth, tap);
        t->b = dy + begin * PE_OUT_C;
        t->first = begin == positions.begin;
        t->last = PE_SPLIT != PE_SPLIT_INNER && rest <= PE_WINDOW_ROWS;
        PE_FN(block)(t);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *partial, float *windows) {
    PE_FN(block_args) t = {.io = io, .partial = partial};
#if PE_SPLIT == PE_SPLIT_INNER
    const pe_range positions = PE_FN(share)(w, PE_POSITIONS, 1), panels = {0, PE_PANELS};
    if (w->index < PE_THREADS) {
        t.partial += w->index * (ptrdiff_t)PE_PART_FLOATS;
        windows += w->index * (ptrdiff_t)PE_WINDOW_FLOATS;
        if (positions.begin == positions.end) {
            memset(t.partial, 0, PE_PART_FLOATS * sizeof(float));
        }
    }
#else
    const pe_range positions = {0, PE_POSITIONS}, panels = PE_FN(share)(w, PE_PANELS, 1);
#endif
    t.panel_begin = (int)panels.begin;
    t.panel_end = (int)panels.end;
    for (int group = 0; group < PE_GROUPS; group++) {
        t.column = group * PE_N;
        for (int tap = 0; tap < PE_TAPS; tap += PE_WINDOW_TAPS) {
            PE_FN(correlate)(w, &t, x + group * PE_CHANNELS, dy + group * PE_N, windows, tap,
                             positions);
        }
    }
#if PE_SPLIT == PE_SPLIT_INNER
    pe_barrier(w);
    PE_FN(add_parts)(w, io, partial);
#endif
}

#include "undef.inc.h"
