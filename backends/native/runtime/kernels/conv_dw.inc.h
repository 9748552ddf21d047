/* Gradient of a convolution with respect to its weights: image windows, transposed, times dy.
 *
 * The result's rows are taps and channels, its columns the output channels; the sum runs over all
 * positions. The channels of a tap (of a row of taps, where those are neighbors in memory) are the
 * rows of A, the rows of positions its segments. Threads share the rows of positions, each with its
 * own sums, which are added up at the end; or the columns of a large result, with one window.
 *
 * Parameters, besides those of image_window.inc.h and gemm_tile.inc.h:
 *   PE_IMAGES, PE_ROWS, PE_COLUMNS  positions
 *   PE_SEGMENTS, PE_SEGMENT_TABLE   runs of PE_M taps and channels, and their offsets in the window
 *   PE_GROUPS                 groups, with PE_CHANNELS read and PE_N result channels each
 *   PE_BLOCK_ROWS, PE_BLOCK_IMAGES   rows of positions in a block; images whose rows it takes, more
 *                             than one only if it takes all rows and threads share the columns
 *   PE_SPLIT, PE_THREADS      as in gemm.inc.h, INNER or COLUMNS
 *   PE_PART_FLOATS, PE_WINDOW_FLOATS  scratch of a thread for its sums, and for an image's window
 */

#if !defined(PE_SPLIT)
#error "conv_dw.inc.h needs PE_SPLIT"
#endif

#define PE_OUT_C (PE_GROUPS * PE_N)
#define PE_OUT_ROWS (PE_SEGMENTS * PE_M)
#define PE_OTHER_M PE_M
#define PE_A_ROW 1
#define PE_A_STEP (PE_STEP_W * PE_PIXEL)
#define PE_B_PITCH PE_OUT_C
#define PE_B_TRANSPOSED 0
#define PE_OUTPUT_ROW(i) (t->row + (i))
#define PE_PARTIAL_PITCH PE_OUT_C
#define PE_SEGMENTED 1
#include "team.inc.h"

#include "add_parts.inc.h"
#include "gemm_tile.inc.h"
#include "image_window.inc.h"

static const int32_t PE_FN(taps)[PE_SEGMENTS] = {PE_SEGMENT_TABLE};

/* The sums of all taps and groups over the positions of a window; `dy` is its first position's. */
PE_INLINE void PE_FN(correlate)(PE_FN(block_args) * t, const float *window, const float *dy) {
    for (int group = 0; group < PE_GROUPS; group++) {
        t->column = group * PE_N;
        t->b = dy + group * PE_N;
        for (int s = 0; s < PE_SEGMENTS; s++) {
            t->a = window + group * PE_CHANNELS + PE_FN(taps)[s];
            t->row = s * PE_M;
            PE_FN(block)(t);
        }
    }
}

/* The windows of a block that starts at a row of positions; its rows are counted in `t`. */
PE_INLINE const float *PE_FN(fill_windows)(pe_worker *w, PE_FN(block_args) * t, float *windows,
                                           const float *x, const int row, const int row_end) {
    enum { source_floats = PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C };
    const int image = row / PE_ROWS, begin = row - image * PE_ROWS;
    const int rest = row_end - image * PE_ROWS;
    const int last = rest < PE_ROWS ? rest : PE_ROWS;
    const int end = begin + PE_BLOCK_ROWS < last ? begin + PE_BLOCK_ROWS : last;
    const float *pixels = x + image * (ptrdiff_t)source_floats;
    const float *window = PE_FN(fill_window)(w, windows, pixels, begin, end);
    t->segment_count = end - begin;
    for (int i = 1; i < PE_BLOCK_IMAGES && image + i < PE_IMAGES; i++) {
        PE_FN(fill_window)(w, windows + i * (ptrdiff_t)PE_WINDOW_FLOATS,
                           pixels + i * (ptrdiff_t)source_floats, begin, end);
        t->segment_count += PE_ROWS;
    }
    return window;
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *partial, float *windows) {
    enum { next = PE_COPY ? PE_WINDOW_FLOATS : PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C };
    int32_t lines[PE_BLOCK_IMAGES * PE_BLOCK_ROWS];
    for (int i = 0; i < PE_BLOCK_IMAGES * PE_BLOCK_ROWS; i++) {
        lines[i] = i / PE_BLOCK_ROWS * next + i % PE_BLOCK_ROWS * PE_STEP_H * PE_LINE;
    }
    PE_FN(block_args) t = {.io = io, .partial = partial, .row_end = PE_M, .runs = 1};
    t.segments = lines;
    t.depth = PE_COLUMNS;
    t.b_segment = PE_COLUMNS * PE_OUT_C;
#if PE_SPLIT == PE_SPLIT_INNER
    const pe_range rows = PE_FN(share)(w, PE_IMAGES * PE_ROWS, 1), panels = {0, PE_PANELS};
    const int member = w->index < PE_THREADS ? w->index : 0;
    t.partial += member * (ptrdiff_t)PE_PART_FLOATS;
    windows += member * (ptrdiff_t)PE_WINDOW_FLOATS;
    if (rows.begin == rows.end && w->index < PE_THREADS) {
        memset(t.partial, 0, PE_PART_FLOATS * sizeof(float));
    }
#else
    const pe_range rows = {0, PE_IMAGES * PE_ROWS}, panels = PE_FN(share)(w, PE_PANELS, 1);
#endif
    t.panel_begin = (int)panels.begin;
    t.panel_end = (int)panels.end;
    t.first = 1;
    for (int row = (int)rows.begin; row < rows.end;) {
        const float *window = PE_FN(fill_windows)(w, &t, windows, x, row, (int)rows.end);
        row += t.segment_count;
        t.last = PE_SPLIT != PE_SPLIT_INNER && row == rows.end;
        PE_FN(correlate)(&t, window, dy + (row - t.segment_count) * t.b_segment);
        t.first = 0;
    }
#if PE_SPLIT == PE_SPLIT_INNER
    pe_barrier(w);
    PE_FN(add_parts)(w, io, partial);
#endif
}

#include "undef.inc.h"
