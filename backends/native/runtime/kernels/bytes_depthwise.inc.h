/* Depthwise convolution of bytes: each channel a lane, PE_T pixels of a row at once, products of
 * i16 that are summed in i32. With flipped weights it is the gradient with respect to the input.
 *
 * Where the window leaves the image, or fewer pixels are left, the source pixels are copied into
 * scratch first, with the zero point for missing ones. Threads share the result's rows.
 *
 * Parameters: the window of integer_conv.inc.h with PE_GROUPS channels and no others,
 *   PE_L, PE_VL                  lanes of sums, and those that the epilogue takes
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are result pixels
 *   PE_T                         pixels of a tile
 *   PE_FLIPPED                   1: taps are in reverse order
 *   PE_A_ZERO                    zero point of the source
 *   PE_THREADS, PE_PATCH_BYTES   most threads that take part, and scratch of each
 */

#if !defined(PE_GROUPS) || !defined(PE_L)
#error "bytes_depthwise.inc.h needs PE_GROUPS and PE_L"
#endif

#include "team.inc.h"

#define PE_TAPS (PE_TAPS_H * PE_TAPS_W)
#define PE_REACH ((PE_T - 1) * PE_STEP_W + (PE_TAPS_W - 1) * PE_GAP_W + 1)

#include "bytes_lanes.inc.h"

/* PE_T pixels of `lanes` channels, whose first tap is at `a`; rows of the source are `pitch` apart.
 * The first `count` are stored. */
PE_INLINE void PE_FN(tile)(const PE_FN(io) * io, const int8_t *a, const ptrdiff_t pitch,
                           const PE_FN(shorts) weights[PE_TAPS], const PE_SUMS first,
                           const ptrdiff_t pixel, const int c, const int count, const int lanes) {
    PE_SUMS sum[PE_T];
    PE_UNROLL
    for (int i = 0; i < PE_T; i++) {
        sum[i] = first;
    }
    PE_UNROLL
    for (int t = 0; t < PE_TAPS_H; t++) {
        PE_FN(shorts) x[PE_REACH];
        PE_UNROLL
        for (int o = 0; o < PE_REACH; o++) {
            x[o] = PE_FN(load)(a + t * PE_GAP_H * pitch + o * PE_GROUPS, lanes);
        }
        PE_UNROLL
        for (int u = 0; u < PE_TAPS_W; u++) {
            PE_UNROLL
            for (int i = 0; i < PE_T; i++) {
                sum[i] =
                    PE_FN(add)(sum[i], x[i * PE_STEP_W + u * PE_GAP_W], weights[t * PE_TAPS_W + u]);
            }
        }
    }
    PE_UNROLL
    for (int i = 0; i < PE_T; i++) {
        if (i < count) {
            PE_FN(put)(io, sum[i], pixel + i, c, lanes);
        }
    }
}

/* Reads the weights of `lanes` channels; returns the initial values of their sums. */
PE_INLINE PE_SUMS PE_FN(begin)(PE_FN(shorts) to[PE_TAPS], const int8_t *weights, const int c,
                               const int lanes) {
    PE_SUMS sum = {0};
    PE_UNROLL
    for (int t = 0; t < PE_TAPS; t++) {
        to[t] = PE_FN(load)(weights + (PE_FLIPPED ? PE_TAPS - 1 - t : t) * PE_GROUPS + c, lanes);
        sum += __builtin_convertvector(to[t], PE_SUMS);
    }
    return sum * -PE_A_ZERO;
}

/* Whole tiles of some channels from pixel `x` of a row to `end`. */
PE_INLINE void PE_FN(inner)(const PE_FN(io) * io, const int8_t *a, const int8_t *weights,
                            const ptrdiff_t pixel, const int x, const int end, const int c,
                            const int lanes) {
    PE_FN(shorts) taps[PE_TAPS];
    const PE_SUMS first = PE_FN(begin)(taps, weights, c, lanes);
    for (int i = x; i < end; i += PE_T, a += PE_T * PE_STEP_W * PE_GROUPS) {
        PE_FN(tile)(io, a + c, (ptrdiff_t)PE_SOURCE_W * PE_GROUPS, taps, first, pixel + i, c, PE_T,
                    lanes);
    }
}

/* Copies the source pixels that PE_T result pixels from (y, x) on read. */
PE_INLINE void PE_FN(copy_patch)(int8_t *to, const int8_t *image, const int y, const int x) {
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = y * PE_STEP_H - PE_TOP + t * PE_GAP_H;
        for (int o = 0; o < PE_REACH; o++) {
            const int column = x * PE_STEP_W - PE_LEFT + o;
            int8_t *at = to + (t * PE_GAP_H * PE_REACH + o) * (ptrdiff_t)PE_GROUPS;
            if (row < 0 || row >= PE_SOURCE_H || column < 0 || column >= PE_SOURCE_W) {
                pe_fill_bytes(at, PE_A_ZERO, PE_GROUPS);
            } else {
                pe_copy_bytes(at, image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_GROUPS,
                              PE_GROUPS);
            }
        }
    }
}

/* Up to PE_T pixels from `x` on whose windows extend beyond the image. */
PE_INLINE void PE_FN(edge)(const PE_FN(io) * io, const int8_t *image, const int8_t *weights,
                           int8_t *patch, const ptrdiff_t pixel, const int y, const int x) {
    const int count = PE_OUT_W - x < PE_T ? PE_OUT_W - x : PE_T;
    PE_FN(copy_patch)(patch, image, y, x);
    PE_FN(shorts) taps[PE_TAPS];
    int c = 0;
    for (; c + PE_L <= PE_GROUPS; c += PE_L) {
        const PE_SUMS first = PE_FN(begin)(taps, weights, c, PE_L);
        PE_FN(tile)(io, patch + c, (ptrdiff_t)PE_REACH * PE_GROUPS, taps, first, pixel + x, c,
                    count, PE_L);
    }
#if PE_GROUPS % PE_L
    const PE_SUMS first = PE_FN(begin)(taps, weights, c, PE_GROUPS % PE_L);
    PE_FN(tile)(io, patch + c, (ptrdiff_t)PE_REACH * PE_GROUPS, taps, first, pixel + x, c, count,
                PE_GROUPS % PE_L);
#endif
}

/* One row of the result. */
PE_INLINE void PE_FN(line)(const PE_FN(io) * io, const int8_t *image, const int8_t *weights,
                           int8_t *patch, const ptrdiff_t pixel, const int y) {
    const int row = y * PE_STEP_H - PE_TOP;
    int begin = (PE_LEFT + PE_STEP_W * PE_T - 1) / (PE_STEP_W * PE_T) * PE_T, end = begin;
    if (row >= 0 && row + (PE_TAPS_H - 1) * PE_GAP_H < PE_SOURCE_H) {
        while (end + PE_T <= PE_OUT_W && end * PE_STEP_W - PE_LEFT + PE_REACH <= PE_SOURCE_W) {
            end += PE_T;
        }
    } else {
        begin = end = 0;
    }
    for (int x = 0; x < PE_OUT_W; x += PE_T) {
        if (x < begin || x >= end) {
            PE_FN(edge)(io, image, weights, patch, pixel, y, x);
        }
    }
    if (begin < end) {
        const int8_t *a =
            image + ((ptrdiff_t)row * PE_SOURCE_W + begin * PE_STEP_W - PE_LEFT) * PE_GROUPS;
        int c = 0;
        for (; c + PE_L <= PE_GROUPS; c += PE_L) {
            PE_FN(inner)(io, a, weights, pixel, begin, end, c, PE_L);
        }
#if PE_GROUPS % PE_L
        PE_FN(inner)(io, a, weights, pixel, begin, end, c, PE_GROUPS % PE_L);
#endif
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *weights, void *scratch) {
    const pe_range share = PE_FN(share)(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H, 1);
    if (share.begin == share.end) {
        return;
    }
    int8_t *patch = (int8_t *)scratch + w->index * (ptrdiff_t)PE_PATCH_BYTES;
    for (ptrdiff_t line = share.begin; line < share.end; line++) {
        const int8_t *image =
            source + line / PE_OUT_H * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_GROUPS);
        PE_FN(line)(io, image, weights, patch, line * PE_OUT_W, (int)(line % PE_OUT_H));
    }
}

#undef PE_FLIPPED
#undef PE_PATCH_BYTES
#undef PE_REACH
#undef PE_T
#include "bytes_end.inc.h"
