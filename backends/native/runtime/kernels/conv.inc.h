/* Convolution, and its gradient with respect to the input, as matrix multiplies of image windows.
 *
 * The pixels of a result row are the rows of A: neighbors have a constant distance in the window
 * (image_window.inc.h). The taps are segments of the inner dimension, each contiguous, so that sums
 * stay in registers from tap to tap. The weights are B, unchanged.
 *
 * The input's gradient is the same computation on dy, with weights that are transposed tap by tap
 * first. A stride s splits the input's pixels into s x s grids, each of which uses its own taps
 * (none if the stride exceeds the window: these pixels get zeros). Threads share the rows of
 * positions, each with its own window, or the columns of the result, with one window.
 *
 * Parameters, besides those of image_window.inc.h and gemm_tile.inc.h:
 *   PE_GRIDS, PE_GRID_TABLE   grids, and their initializers; PE_ROWS is the maximum of their rows
 *   PE_SEGMENT_TABLE          offsets of the segments in the window, grid by grid
 *   PE_IMAGES, PE_GROUPS      batch; groups, with PE_CHANNELS read and PE_N written channels each
 *   PE_OUT_H, PE_OUT_W, PE_OUT_STEP_H, PE_OUT_STEP_W   result; its pixels between positions
 *   PE_BLOCK_ROWS, PE_BLOCK_SEGMENTS   rows of positions and segments in a block
 *   PE_TRANSPOSED, PE_TAPS, PE_TAP_TABLE  1: weights are transposed; all taps, in the grids' order
 *   PE_SPLIT, PE_THREADS      as in gemm.inc.h, ROWS or COLUMNS
 *   PE_WINDOW_FLOATS          scratch for a window
 */

#if !defined(PE_SPLIT) || !defined(PE_TRANSPOSED)
#error "conv.inc.h needs PE_SPLIT and PE_TRANSPOSED"
#endif

#define PE_OUT_C (PE_GROUPS * PE_N)
#define PE_A_ROW (PE_STEP_W * PE_PIXEL)
#define PE_A_STEP 1
#define PE_B_PITCH (PE_TRANSPOSED ? PE_N : PE_OUT_C)
#define PE_B_TRANSPOSED 0
#define PE_OUTPUT_ROW(i) (t->row + (i) * PE_OUT_STEP_W)
#define PE_PARTIAL_PITCH PE_OUT_C
#define PE_SEGMENTED 1
#include "team.inc.h"

#include "gemm_tile.inc.h"
#include "image_window.inc.h"

/* Positions at equal distances that see the source through the same taps. */
typedef struct PE_FN(grid) {
    int rows, columns;
    int first_segment, segments, depth; /* depth: steps of a segment */
    int first_tap;                      /* place of its taps among those of all grids */
    int out_y, out_x;                   /* result pixel of position 0 */
} PE_FN(grid);

static const PE_FN(grid) PE_FN(grids)[PE_GRIDS] = {PE_GRID_TABLE};
static const int32_t PE_FN(segments)[] = {PE_SEGMENT_TABLE};

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

/* One grid and one group on a window; `weights` are the group's and the grid's. */
PE_INLINE void PE_FN(convolve)(PE_FN(block_args) * t, const PE_FN(grid) * g, const float *weights) {
    t->row_end = g->columns;
    t->depth = g->depth;
    t->b_segment = g->depth * (ptrdiff_t)PE_B_PITCH;
    int done = 0;
    do {
        const int rest = g->segments - done;
        t->segments = PE_FN(segments) + g->first_segment + done;
        t->segment_count = rest < PE_BLOCK_SEGMENTS ? rest : PE_BLOCK_SEGMENTS;
        t->b = weights + done * t->b_segment;
        t->first = done == 0;
        done += t->segment_count;
        t->last = done == g->segments;
        PE_FN(block)(t);
    } while (done < g->segments);
}

/* Rows `begin` to `end` of positions of one image, in every grid and group. */
PE_INLINE void PE_FN(convolve_rows)(PE_FN(block_args) * t, const float *window,
                                    const float *weights, const int image, const int begin,
                                    const int end) {
    for (const PE_FN(grid) *g = PE_FN(grids); g < PE_FN(grids) + PE_GRIDS; g++) {
        const int y = image * PE_OUT_H + g->out_y + begin * PE_OUT_STEP_H;
        t->row = (ptrdiff_t)y * PE_OUT_W + g->out_x;
        t->runs = (end < g->rows ? end : g->rows) - begin;
        for (int group = 0; group < PE_GROUPS; group++) {
            t->a = window + group * PE_CHANNELS;
            t->column = group * PE_N;
#if PE_TRANSPOSED
            const ptrdiff_t tap = (ptrdiff_t)group * PE_TAPS + g->first_tap;
            PE_FN(convolve)(t, g, weights + tap * PE_CHANNELS * PE_N);
#else
            PE_FN(convolve)(t, g, weights + group * PE_N);
#endif
        }
    }
}

/* `packed` has the transposed weights, if they are transposed; `windows` the copied rows. */
PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source,
                          const float *weights, float *partial, float *packed, float *windows) {
    PE_FN(block_args) t = {.io = io, .partial = partial};
    t.a_run = PE_STEP_H * (ptrdiff_t)PE_LINE;
    t.row_run = PE_OUT_STEP_H * PE_OUT_W;
    (void)packed;
#if PE_TRANSPOSED
    PE_FN(transpose_weights)(w, packed, weights);
    pe_barrier(w);
    weights = packed;
#endif
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range rows = {0, PE_IMAGES * PE_ROWS}, panels = PE_FN(share)(w, PE_PANELS, 1);
#else
    const pe_range rows = PE_FN(share)(w, PE_IMAGES * PE_ROWS, 1), panels = {0, PE_PANELS};
    windows += (w->index < PE_THREADS ? w->index : 0) * (ptrdiff_t)PE_WINDOW_FLOATS;
#endif
    t.panel_begin = (int)panels.begin;
    t.panel_end = (int)panels.end;
    for (int row = (int)rows.begin; row < rows.end;) {
        const int image = row / PE_ROWS, begin = row - image * PE_ROWS;
        const int rest = (int)rows.end - image * PE_ROWS;
        const int last = rest < PE_ROWS ? rest : PE_ROWS;
        const int end = begin + PE_BLOCK_ROWS < last ? begin + PE_BLOCK_ROWS : last;
        const float *pixels = source + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
        const float *window = PE_FN(fill_window)(w, windows, pixels, begin, end);
        PE_FN(convolve_rows)(&t, window, weights, image, begin, end);
        row += end - begin;
    }
}

#include "undef.inc.h"
