/* Gradient of a depthwise convolution with respect to its weights.
 *
 * For one vector of channels, a block of dy's pixels of one row is loaded once and multiplied
 * by the input's pixels of each row of taps. The taps' sums are in registers during that time, and
 * otherwise in a chunk of channels that fits in the L1 cache. Threads share dy's rows,
 * each with its own sums, which are added up at the end; or the channels.
 *
 * Parameters as in depthwise.inc.h, from the convolution's perspective: the source is the input x,
 * the result pixels are dy's. PE_PART_FLOATS is from one thread's sums to the next's.
 */

#if !defined(PE_CHANNELS) || !defined(PE_SPLIT) || !defined(PE_VL)
#error "depthwise_dw.inc.h needs PE_CHANNELS, PE_SPLIT and PE_VL"
#endif

#define PE_OUT_ROWS (PE_TAPS_H * PE_TAPS_W)
#define PE_OUT_C PE_CHANNELS
#include "team.inc.h"

#include "add_parts.inc.h"

#include "depthwise_reach.inc.h"

/* A row of dy, the first input row that it reads and the row of taps for it, with the steps to the
 * next ones. */
typedef struct PE_FN(row) {
    const float *dy;
    int count;
    int channel_begin, channel_end;
    const float *source;
    float *sums;
    ptrdiff_t source_step, sums_step;
} PE_FN(row);

PE_INLINE void PE_FN(vector)(const PE_FN(row) * t, const int c, const int column, const int pixels,
                             const int first, const int last, const int lanes) {
    pe_vf dy[PE_BLOCK];
    const float *near = t->dy;
    PE_UNROLL
    for (int i = 0; i < pixels; i++) {
        near = PE_FN(next_pixel)(t->dy + column * PE_CHANNELS + c, near, i);
        dy[i] = pe_load_part(near, lanes);
    }
    const float *source = t->source + (ptrdiff_t)PE_SOURCE_COLUMN(column) * PE_CHANNELS + c;
    float *sums = t->sums + c;
    for (int r = 0; r < t->count; r++) {
        pe_vf sum[PE_TAPS_W];
        PE_UNROLL
        for (int k = 0; k < PE_TAPS_W; k++) {
            sum[k] = pe_load_part(sums + k * PE_CHANNELS, lanes);
        }
        PE_UNROLL
        for (int i = first; i < last; i++) {
            near = PE_FN(next_pixel)(source + first * PE_CHANNELS, near, i - first);
            const pe_vf pixel = pe_load_part(near, lanes);
            PE_UNROLL
            for (int k = 0; k < PE_TAPS_W; k++) {
                const int to = PE_TARGET(i, k);
                if (to >= 0 && to < pixels) {
                    sum[k] += pixel * dy[to];
                }
            }
        }
        PE_UNROLL
        for (int k = 0; k < PE_TAPS_W; k++) {
            pe_store_part(sums + k * PE_CHANNELS, sum[k], lanes);
        }
        source += t->source_step;
        sums += t->sums_step;
    }
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

PE_INLINE void PE_FN(correlate_row)(PE_FN(row) * t, const float *x, const float *dy, float *sums,
                                    ptrdiff_t row) {
    const ptrdiff_t image = row / PE_OUT_H;
    const int y = (int)(row - image * PE_OUT_H);
    t->dy = dy + row * ((ptrdiff_t)PE_OUT_W * PE_CHANNELS);
    t->source = x;
    t->sums = sums;
    t->count = 0;
    for (int tap = 0; tap < PE_TAPS_H; tap++) {
        const int from = PE_SOURCE_ROW(y, tap);
        if (from >= 0 && from < PE_SOURCE_H) {
            float *row_of_sums = sums + tap * (PE_TAPS_W * PE_CHANNELS);
            const float *pixels =
                x + (image * PE_SOURCE_H + from) * ((ptrdiff_t)PE_SOURCE_W * PE_CHANNELS);
            if (t->count == 0) {
                t->source = pixels;
                t->sums = row_of_sums;
            } else if (t->count == 1) {
                t->source_step = pixels - t->source;
                t->sums_step = row_of_sums - t->sums;
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

/* The sums of all rows in `rows` for the channels in `channels`. */
PE_INLINE void PE_FN(correlate)(const float *x, const float *dy, float *sums, pe_range rows,
                                pe_range channels) {
    PE_FN(row) t = {0};
    for (int tap = 0; tap < PE_OUT_ROWS; tap++) {
        memset(sums + tap * PE_CHANNELS + channels.begin, 0,
               (size_t)(channels.end - channels.begin) * sizeof *sums);
    }
    for (int c = (int)channels.begin; c < channels.end; c += PE_CHUNK) {
        t.channel_begin = c;
        t.channel_end = c + PE_CHUNK < channels.end ? c + PE_CHUNK : (int)channels.end;
        for (ptrdiff_t row = rows.begin; row < rows.end; row++) {
            PE_FN(correlate_row)(&t, x, dy, sums, row);
        }
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *parts) {
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range rows = {0, PE_IMAGES * PE_OUT_H}, channels = pe_split(w, PE_CHANNELS, PE_VL);
    PE_FN(correlate)(x, dy, parts, rows, channels);
    for (int tap = 0; tap < PE_OUT_ROWS; tap++) {
        for (int c = (int)channels.begin; c < channels.end; c += PE_VL) {
            const int lanes = PE_CHANNELS - c < PE_VL ? PE_CHANNELS - c : PE_VL;
            PE_FN(store)(io, pe_load_part(parts + tap * PE_CHANNELS + c, lanes), tap, c, lanes);
        }
    }
#else
    const pe_range rows = PE_FN(share)(w, PE_IMAGES * PE_OUT_H, 1), channels = {0, PE_CHANNELS};
    if (w->index < PE_THREADS) {
        PE_FN(correlate)(x, dy, parts + w->index * (ptrdiff_t)PE_PART_FLOATS, rows, channels);
    }
    pe_barrier(w);
    PE_FN(add_parts)(w, io, parts);
#endif
}

#include "undef.inc.h"
