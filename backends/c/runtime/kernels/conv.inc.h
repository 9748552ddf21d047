/* Convolution, and its gradient with respect to the input, by gathering and multiplying.
 *
 * A block of window positions is gathered (gather.inc.h) and multiplied by the weights, whose rows
 * are taps and channels. The input's gradient is the same computation: dy is gathered, the weights
 * are transposed tap by tap first, and a stride s splits the input's pixels into s x s grids, each
 * of which meets its own taps (none at all where the stride is the larger: those get zeros).
 * Threads share the positions, each gathering its own, or the columns, gathering together.
 *
 * Parameters, besides those of gather.inc.h and gemm_tile.inc.h:
 *   PE_GRIDS, PE_GRID_TABLE   grids, and their initialisers
 *   PE_IMAGES, PE_GROUPS      batch; groups, with PE_CHANNELS gathered and PE_N written channels
 * each PE_OUT_H, PE_OUT_W, PE_OUT_STEP_H, PE_OUT_STEP_W   result; its pixels between positions
 *   PE_WINDOW_ROWS, PE_WINDOW_TAPS   positions and taps in a block
 *   PE_TRANSPOSED, PE_TAPS, PE_TAP_TABLE  1: weights are transposed; all taps, in the grids' order
 *   PE_SPLIT, PE_THREADS      as in gemm.inc.h, ROWS or COLUMNS
 *   PE_WINDOW_FLOATS          scratch for a gathered block
 */

#define PE_OUT_C (PE_GROUPS * PE_N)
#define PE_A_ROW PE_GATHER_PITCH
#define PE_A_STEP 1
#define PE_B_PITCH (PE_TRANSPOSED ? PE_N : PE_OUT_C)
#define PE_B_TRANSPOSED 0
#define PE_M PE_MR
#define PE_OUTPUT_ROW(i) (PE_GRIDS > 1 ? t->rows[i] : t->row + (i))
#define PE_PARTIAL_PITCH PE_OUT_C
#define PE_PADDED_ROWS 1
#include "gather.inc.h"
#include "gemm_tile.inc.h"
#include "team.inc.h"

static const PE_FN(grid) PE_FN(grids)[PE_GRIDS] = {PE_GRID_TABLE};

#if PE_TRANSPOSED
/* w[tap][n][group, channel] to [group][place of the tap][channel][n]. */
static void PE_FN(transpose_weights)(const pe_worker *w, float *to, const float *from) {
    enum { columns = 64, parts = (PE_CHANNELS + columns - 1) / columns };
    static const int16_t order[PE_TAPS] = {PE_TAP_TABLE};
    const ptrdiff_t pitch = PE_GROUPS * PE_CHANNELS;
    const pe_range share = pe_split(w, PE_GROUPS * PE_TAPS * parts, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const ptrdiff_t group = unit / (PE_TAPS * parts), place = unit / parts % PE_TAPS;
        const ptrdiff_t first = unit % parts * columns;
        const ptrdiff_t rest = PE_CHANNELS - first;
        pe_transpose(to + ((group * PE_TAPS + place) * PE_CHANNELS + first) * PE_N, PE_N,
                     from + order[place] * PE_N * pitch + group * PE_CHANNELS + first, pitch, PE_N,
                     rest < columns ? rest : columns, PE_VL >= 8 ? 8 : 4);
    }
}
#endif

/* The result pixels of a grid's positions `begin` to `end`. */
PE_INLINE void PE_FN(result_pixels)(int32_t *rows, const PE_FN(grid) * g, ptrdiff_t begin,
                                    ptrdiff_t end) {
    const int positions = g->rows * g->columns;
    for (ptrdiff_t p = begin; p < end; p++) {
        const int image = (int)(p / positions), at = (int)(p - (ptrdiff_t)image * positions);
        const int y = g->out_y + at / g->columns * PE_OUT_STEP_H;
        const int x = g->out_x + at % g->columns * PE_OUT_STEP_W;
        rows[p - begin] = (image * PE_OUT_H + y) * PE_OUT_W + x;
    }
}

/* Fill the window: each thread its own, or all threads one together. */
PE_INLINE void PE_FN(fill)(pe_worker *w, float *window, const float *source, const PE_FN(grid) * g,
                           ptrdiff_t begin, ptrdiff_t end, int tap_begin, int tap_end) {
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range share = pe_split(w, end - begin, 1);
    pe_barrier(w); /* nobody reads the block before this one any more */
    PE_FN(gather)(window + share.begin * PE_GATHER_PITCH, source, g, begin + share.begin,
                  begin + share.end, tap_begin, tap_end);
    pe_barrier(w);
#else
    (void)w;
    PE_FN(gather)(window, source, g, begin, end, tap_begin, tap_end);
#endif
}

/* One grid and one group; `weights` are the group's and the grid's. */
PE_INLINE void PE_FN(convolve)(pe_worker *w, PE_FN(block_args) * t, const PE_FN(grid) * g,
                               const float *source, const float *weights, float *window) {
    const ptrdiff_t positions = (ptrdiff_t)PE_IMAGES * g->rows * g->columns;
    const int taps = g->taps_h * g->taps_w;
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range mine = {0, positions}, panels = PE_FN(share)(w, PE_PANELS, 1);
    t->panel_begin = (int)panels.begin;
    t->panel_end = (int)panels.end;
#else
    const pe_range mine = PE_FN(share)(w, positions, PE_MR);
    t->panel_end = PE_PANELS;
#endif
    int32_t rows[PE_WINDOW_ROWS];
    for (ptrdiff_t begin = mine.begin; begin < mine.end; begin += PE_WINDOW_ROWS) {
        const ptrdiff_t rest = mine.end - begin;
        t->row_end = (int)(rest < PE_WINDOW_ROWS ? rest : PE_WINDOW_ROWS);
        t->row = begin;
        t->rows = rows;
        if (PE_GRIDS > 1) {
            PE_FN(result_pixels)(rows, g, begin, begin + t->row_end);
        }
        int tap = 0;
        do {
            const int tap_end = tap + PE_WINDOW_TAPS < taps ? tap + PE_WINDOW_TAPS : taps;
            PE_FN(fill)(w, window, source, g, begin, begin + t->row_end, tap, tap_end);
            t->a = window;
            t->b = weights + (ptrdiff_t)tap * PE_CHANNELS * PE_B_PITCH;
            t->depth = (tap_end - tap) * PE_CHANNELS;
            t->first = tap == 0;
            t->last = tap_end == taps;
            PE_FN(block)(t);
            tap = tap_end;
        } while (tap < taps);
    }
}

/* `packed` holds the transposed weights, where they are; `windows` the gathered blocks. */
PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source,
                          const float *weights, float *partial, float *packed, float *windows) {
    PE_FN(block_args) t = {.io = io, .partial = partial};
#if PE_TRANSPOSED
    PE_FN(transpose_weights)(w, packed, weights);
    pe_barrier(w);
#else
    (void)packed;
#endif
#if PE_SPLIT == PE_SPLIT_ROWS
    if (w->index >= PE_THREADS) {
        return;
    }
    windows += w->index * (ptrdiff_t)PE_WINDOW_FLOATS;
#endif
    for (const PE_FN(grid) *g = PE_FN(grids); g < PE_FN(grids) + PE_GRIDS; g++) {
        for (int group = 0; group < PE_GROUPS; group++) {
            t.column = group * PE_N;
#if PE_TRANSPOSED
            const ptrdiff_t tap = (ptrdiff_t)group * PE_TAPS + g->first_tap;
            const float *b = packed + tap * PE_CHANNELS * PE_N;
#else
            const float *b = weights + group * PE_N;
#endif
            PE_FN(convolve)(w, &t, g, source + group * PE_CHANNELS, b, windows);
        }
    }
}

#include "undef.inc.h"
