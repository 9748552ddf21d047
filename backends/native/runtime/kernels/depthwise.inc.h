/* Depthwise convolution, and its gradient with respect to the input, without gathering.
 *
 * Both slide the weights over a source image and sum in registers: a block of neighboring result
 * pixels of one row stays in registers for one vector of channels; each source pixel is loaded once
 * for each row of taps, and multiplied for every result pixel that reads it. These are known at
 * compile time: all inner blocks of a row run the same code, and the blocks at its ends have copies
 * without the source pixels that do not exist.
 *
 * Channels are taken in chunks whose weights stay in the first-level cache. Threads share the rows
 * of all images, or the channels.
 *
 * Parameters:
 *   PE_FN, PE_VL              as in gemm_tile.inc.h
 *   PE_FN(io), PE_FN(store)(io, acc, pixel, channel, lanes)   the epilogue
 *   PE_MOVES, PE_FN(move)     as in gemm_tile.inc.h
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_OUT_H, PE_OUT_W, PE_CHANNELS, PE_CHUNK
 *   PE_TAPS_H, PE_TAPS_W      the window
 *   PE_SOURCE_ROW(row, tap)   source row that a tap of a result row reads; out of bounds if there
 * is none PE_SOURCE_COLUMN(column)  first source column of the block that starts at this result
 * column PE_TARGET(i, tap)         result pixel of a block that a tap of its i-th source column
 * goes to, or a negative number PE_BLOCK, PE_SPAN         result pixels of a block, and its source
 * columns PE_PEELED                 1: AArch64's first row of taps has separate code
 *   PE_INNER_BEGIN, PE_INNER_END, PE_EDGE_BLOCKS(BLOCK)   the inner blocks; BLOCK(column, pixels,
 *                             first, last) for each other one, with the source columns that exist
 *   PE_SPLIT, PE_THREADS      PE_SPLIT_ROWS or PE_SPLIT_COLUMNS (channels)
 */

#if !defined(PE_CHANNELS) || !defined(PE_PEELED) || !defined(PE_SPLIT) || !defined(PE_VL) ||       \
    !defined(PE_PAIR_REACH)
#error "depthwise.inc.h needs PE_CHANNELS, PE_PEELED, PE_SPLIT, PE_VL, and pe_vec.h"
#endif

#include "team.inc.h"

#include "depthwise_reach.inc.h"

/* A result row, the first source row that it reads and the row of taps for it, with the steps to
 * the next ones. */
typedef struct PE_FN(row) {
    const PE_FN(io) * io;
    ptrdiff_t pixel; /* first result pixel of the row */
    int count;
    int channel_begin, channel_end;
    const float *source, *weights;
    ptrdiff_t source_step, weights_step;
} PE_FN(row);

/* One row of taps. The first product of a sum that is `fresh` replaces it. */
PE_INLINE void PE_FN(add_row)(pe_vf sum[PE_BLOCK], const float *source, const float *weights,
                              const int pixels, const int first, const int last, const int lanes,
                              const int fresh) {
    pe_vf tap[PE_TAPS_W];
    PE_UNROLL
    for (int k = 0; k < PE_TAPS_W; k++) {
        tap[k] = pe_load_part(weights + k * PE_CHANNELS, lanes);
    }
    int added[PE_BLOCK] = {0};
    const float *near = source;
    PE_UNROLL
    for (int i = first; i < last; i++) {
        near = PE_FN(next_pixel)(source + first * PE_CHANNELS, near, i - first);
        const pe_vf pixel = pe_load_part(near, lanes);
        PE_UNROLL
        for (int k = 0; k < PE_TAPS_W; k++) {
            const int to = PE_TARGET(i, k);
            if (to >= 0 && to < pixels) {
                sum[to] = fresh && !added[to] ? pixel * tap[k] : sum[to] + pixel * tap[k];
                added[to] = 1;
            }
        }
    }
}

/* `pixels` result pixels from `column` on, for the vector of channels at `c`. */
PE_INLINE void PE_FN(vector)(const PE_FN(row) * t, const int c, const int column, const int pixels,
                             const int first, const int last, const int lanes) {
    /* A copy, because stores to memory of unknown type would reload the pointers every time. */
    PE_FN(io) io = *t->io;
    pe_vf sum[PE_BLOCK];
    PE_UNROLL
    for (int i = 0; i < pixels; i++) {
        sum[i] = pe_zero();
    }
    const float *source = t->source + (ptrdiff_t)PE_SOURCE_COLUMN(column) * PE_CHANNELS + c;
    const float *weights = t->weights + c;
    int r = 0;
#if PE_PAIR_REACH && PE_PEELED
    if (t->count > 0) {
        PE_FN(add_row)(sum, source, weights, pixels, first, last, lanes, 1);
        source += t->source_step;
        weights += t->weights_step;
        r = 1;
    }
#endif
    for (; r < t->count; r++) {
        PE_FN(add_row)(sum, source, weights, pixels, first, last, lanes, 0);
        source += t->source_step;
        weights += t->weights_step;
    }
#if defined(PE_MOVES)
    PE_FN(move)(&io, t->pixel + column, c);
    PE_UNROLL
    for (int i = 0; i < pixels; i++) {
        if (i > 0 && i % (PE_NEAR + 1) == 0) {
            PE_FN(move)(&io, PE_NEAR + 1, 0);
        }
        PE_FN(store)(&io, sum[i], i % (PE_NEAR + 1), 0, lanes);
    }
#else
    ptrdiff_t result = 0;
    PE_UNROLL
    for (int i = 0; i < pixels; i++) {
        result = PE_STARTS_NEAR(i) ? pe_fresh_index(t->pixel + column + i) : result + 1;
        PE_FN(store)(&io, sum[i], result, c, lanes);
    }
#endif
}

PE_INLINE void PE_FN(block)(const PE_FN(row) * t, const int column, const int pixels,
                            const int first, const int last) {
    int c = t->channel_begin;
    for (; c + PE_VL <= t->channel_end; c += PE_VL) {
        PE_FN(vector)(t, c, column, pixels, first, last, PE_VL);
    }
#if PE_CHANNELS % PE_VL
    if (c < t->channel_end) {
        PE_FN(vector)(t, c, column, pixels, first, last, PE_CHANNELS % PE_VL);
    }
#endif
}

/* Row `row` of the images taken as one tall image. */
PE_INLINE void PE_FN(convolve_row)(PE_FN(row) * t, const float *source, const float *weights,
                                   ptrdiff_t row) {
    const ptrdiff_t image = row / PE_OUT_H;
    const int y = (int)(row - image * PE_OUT_H);
    t->pixel = row * PE_OUT_W;
    t->source = source;
    t->weights = weights;
    t->count = 0;
    for (int tap = 0; tap < PE_TAPS_H; tap++) {
        const int from = PE_SOURCE_ROW(y, tap);
        if (from >= 0 && from < PE_SOURCE_H) {
            const float *row_of_taps = weights + tap * (PE_TAPS_W * PE_CHANNELS);
            const float *pixels =
                source + (image * PE_SOURCE_H + from) * ((ptrdiff_t)PE_SOURCE_W * PE_CHANNELS);
            if (t->count == 0) {
                t->source = pixels;
                t->weights = row_of_taps;
            } else if (t->count == 1) {
                t->source_step = pixels - t->source;
                t->weights_step = row_of_taps - t->weights;
            }
            t->count++;
        }
    }
#define PE_EDGE(column, pixels, first, last) PE_FN(block)(t, column, pixels, first, last);
    PE_EDGE_BLOCKS(PE_EDGE)
#undef PE_EDGE
    for (int column = PE_INNER_BEGIN; column < PE_INNER_END; column += PE_BLOCK) {
        PE_FN(block)(t, column, PE_BLOCK, 0, PE_SPAN);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source,
                          const float *weights) {
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range rows = {0, PE_IMAGES * PE_OUT_H}, channels = pe_split(w, PE_CHANNELS, PE_VL);
#else
    const pe_range rows = pe_split(w, PE_IMAGES * PE_OUT_H, 1), channels = {0, PE_CHANNELS};
#endif
    PE_FN(row) t = {.io = io};
    for (int c = (int)channels.begin; c < channels.end; c += PE_CHUNK) {
        t.channel_begin = c;
        t.channel_end = c + PE_CHUNK < channels.end ? c + PE_CHUNK : (int)channels.end;
        for (ptrdiff_t row = rows.begin; row < rows.end; row++) {
            PE_FN(convolve_row)(&t, source, weights, row);
        }
    }
}

#include "undef.inc.h"
