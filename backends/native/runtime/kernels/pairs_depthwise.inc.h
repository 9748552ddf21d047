/* Depthwise convolution of integers by halves of words, or a part of its gradient with respect to
 * the input: one grid of result pixels that see the source through the same taps.
 *
 * Four channels at a time: a word of the source is widened to two pairs, and each half multiplied
 * by that of the packed weights. Threads share the groups of four channels; each has a part of
 * the scratch. The file may be included for several grids, each with a PE_GRID of its own;
 * integer_end.inc.h ends them.
 *
 * Parameters, besides those of the epilogue:
 *   PE_GRID(name)                    as PE_FN, for this grid alone
 *   PE_A_ZERO, PE_THREAD_WORDS       zero point of the source; words of scratch of a thread
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_OUT_H, PE_OUT_W, PE_CHANNELS   source and result
 *   PE_KERNEL_W                      columns of the whole window
 *   PE_TAIL                          channels past the last four
 *   for rows (and columns, _W):
 *   PE_POSITIONS_H                   of the grid
 *   PE_TAPS_H, PE_START_H, PE_GAP_H  taps, the source pixel of the first, and their distance
 *   PE_STEP_H                        distance of the source pixels of neighboring positions
 *   PE_KERNEL_FIRST_H, PE_KERNEL_STEP_H   places of the taps in the window
 *   PE_OUT_FIRST_H, PE_OUT_STEP_H    result pixels of the positions
 *   PE_INNER_BEGIN, PE_INNER_END     positions of a row whose taps all exist
 */

#if !defined(PE_TAIL)
#error "pairs_depthwise.inc.h needs PE_TAIL"
#endif

#include "pe_pairs.h"

PE_INLINE void PE_GRID(pack)(const PE_FN(io) * io, pe_pair *to, const int8_t *weights,
                             const int lanes) {
    (void)io;
    for (int t = 0; t < PE_TAPS_H; t++) {
        for (int u = 0; u < PE_TAPS_W; u++, to += 2) {
            const int tap = (PE_KERNEL_FIRST_H + t * PE_KERNEL_STEP_H) * PE_KERNEL_W +
                            PE_KERNEL_FIRST_W + u * PE_KERNEL_STEP_W;
            const uint32_t bytes = pe_load_bytes(weights + tap * PE_CHANNELS, lanes);
            to[0] = pe_even_bytes(bytes, 0), to[1] = pe_odd_bytes(bytes, 0);
        }
    }
}

PE_INLINE pe_vi PE_GRID(add)(const PE_FN(io) * io, pe_vi sum, const int8_t *from,
                             const pe_pair *packed, const int lanes) {
    (void)io;
    const uint32_t bytes = pe_load_bytes(from, lanes);
    const pe_pair even = pe_even_bytes(bytes, pe_twice(-PE_A_ZERO));
    const pe_pair odd = pe_odd_bytes(bytes, pe_twice(-PE_A_ZERO));
    sum[0] = pe_add_lower(even, packed[0], sum[0]);
    sum[1] = pe_add_lower(odd, packed[1], sum[1]);
    sum[2] = pe_add_upper(even, packed[0], sum[2]);
    sum[3] = pe_add_upper(odd, packed[1], sum[3]);
    return sum;
}

/* Four sums of a position whose first column is `left`, of the rows from `top` to `bottom`. */
PE_INLINE pe_vi PE_GRID(sums)(const PE_FN(io) * io, const int8_t *image, const pe_pair *packed,
                              const int line, const int left, const int top, const int bottom,
                              const int whole, const int lanes) {
    pe_vi sum = {0};
    for (int t = top; t < bottom; t++) {
        const int8_t *from =
            image + ((ptrdiff_t)(line + t * PE_GAP_H) * PE_SOURCE_W + left) * PE_CHANNELS;
        const pe_pair *pair = packed + 2 * t * PE_TAPS_W;
        if (whole) {
            PE_UNROLL
            for (int u = 0; u < PE_TAPS_W; u++) {
                sum = PE_GRID(add)(io, sum, from + u * PE_GAP_W * PE_CHANNELS, pair + 2 * u, lanes);
            }
            continue;
        }
        for (int u = 0; u < PE_TAPS_W; u++) {
            const int column = left + u * PE_GAP_W;
            if (column >= 0 && column < PE_SOURCE_W) {
                sum = PE_GRID(add)(io, sum, from + u * PE_GAP_W * PE_CHANNELS, pair + 2 * u, lanes);
            }
        }
    }
    return sum;
}

PE_INLINE void PE_GRID(channels)(const PE_FN(io) * io, const int8_t *source, const pe_pair *packed,
                                 const int c, const int lanes) {
    for (int i = 0; i < PE_IMAGES * PE_POSITIONS_H; i++) {
        const int position = i % PE_POSITIONS_H, line = position * PE_STEP_H + PE_START_H;
        int top = 0, bottom = PE_TAPS_H;
        for (; top < bottom && line + top * PE_GAP_H < 0; top++) {
        }
        for (; top < bottom && line + (bottom - 1) * PE_GAP_H >= PE_SOURCE_H; bottom--) {
        }
        const int8_t *image =
            source + (ptrdiff_t)(i / PE_POSITIONS_H) * PE_SOURCE_H * PE_SOURCE_W * PE_CHANNELS + c;
        const ptrdiff_t row = ((ptrdiff_t)(i / PE_POSITIONS_H) * PE_OUT_H + PE_OUT_FIRST_H +
                               position * PE_OUT_STEP_H) *
                                  PE_OUT_W +
                              PE_OUT_FIRST_W;
        for (int x = 0; x < PE_POSITIONS_W; x++) {
            const int left = x * PE_STEP_W + PE_START_W;
            const ptrdiff_t pixel = row + x * PE_OUT_STEP_W;
            if (x >= PE_INNER_BEGIN && x < PE_INNER_END) {
                PE_FN(store)(io,
                             PE_GRID(sums)(io, image, packed, line, left, top, bottom, 1, lanes),
                             pixel, c, lanes);
            } else {
                PE_FN(store)(io,
                             PE_GRID(sums)(io, image, packed, line, left, top, bottom, 0, lanes),
                             pixel, c, lanes);
            }
        }
    }
}

PE_INLINE void PE_GRID(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                            const int8_t *weights, void *scratch) {
    pe_pair *packed = (pe_pair *)scratch + (ptrdiff_t)w->index * PE_THREAD_WORDS;
    const pe_range share = pe_split(w, PE_CHANNELS, 4);
    for (int c = (int)share.begin; c < (int)share.end; c += 4) {
        if (c + 4 <= PE_CHANNELS) {
            PE_GRID(pack)(io, packed, weights + c, 4);
            PE_GRID(channels)(io, source, packed, c, 4);
            continue;
        }
#if PE_TAIL
        PE_GRID(pack)(io, packed, weights + c, PE_TAIL);
        PE_GRID(channels)(io, source, packed, c, PE_TAIL);
#endif
    }
}

#include "grid_undef.inc.h"
