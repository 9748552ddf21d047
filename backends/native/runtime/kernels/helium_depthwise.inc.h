/* Depthwise convolution of bytes by vectors of i16, or a part of its gradient with respect to the
 * input: one grid of result pixels that see the source through the same taps.
 *
 * Eight channels at a time: their weights are widened once for all pixels. If all taps of a
 * pixel exist, the sums of the weights correct for zero points, else they are subtracted from the
 * source. Threads share the groups of eight channels; each has a part of the scratch. The file may
 * be included for several grids, each with a PE_GRID of its own; integer_end.inc.h ends them.
 *
 * Parameters: those of pairs_depthwise.inc.h, with PE_THREAD_BYTES of scratch of a thread.
 */

#if !defined(PE_CHANNELS)
#error "helium_depthwise.inc.h needs PE_CHANNELS"
#endif

#include "pe_helium.h"

#define PE_TAPS (PE_TAPS_H * PE_TAPS_W)

/* Widens the weights of `lanes` channels; returns the initial values of their sums. */
PE_INLINE pe_halves_sums PE_GRID(pack)(pe_halves *to, const int8_t *weights, const int lanes) {
    const pe_halves zeros = (pe_halves){0} - PE_A_ZERO;
    pe_halves_sums sums = {{0}, {0}};
    for (int t = 0; t < PE_TAPS_H; t++) {
        for (int u = 0; u < PE_TAPS_W; u++, to++) {
            const int tap = (PE_KERNEL_FIRST_H + t * PE_KERNEL_STEP_H) * PE_KERNEL_W +
                            PE_KERNEL_FIRST_W + u * PE_KERNEL_STEP_W;
            *to = pe_load_halves(weights + tap * PE_CHANNELS, lanes);
            sums = pe_add_halves(sums, zeros, *to);
        }
    }
    return sums;
}

/* The sums of a pixel whose taps all exist, the first at `from`. */
PE_INLINE pe_halves_sums PE_GRID(inner)(const int8_t *from, const pe_halves *packed,
                                        pe_halves_sums sums, const int lanes) {
    PE_UNROLL
    for (int t = 0; t < PE_TAPS_H; t++) {
        PE_UNROLL
        for (int u = 0; u < PE_TAPS_W; u++) {
            const int8_t *at = from + (t * PE_GAP_H * PE_SOURCE_W + u * PE_GAP_W) * PE_CHANNELS;
            sums = pe_add_halves(sums, pe_load_halves(at, lanes), packed[t * PE_TAPS_W + u]);
        }
    }
    return sums;
}

/* The taps [begin, end) of a row or a column that exist, of which the first is at `start`. */
PE_INLINE pe_range PE_GRID(taps)(const int start, const int gap, const int taps, const int size) {
    pe_range range = {0, taps};
    for (; range.begin < range.end && start + range.begin * gap < 0; range.begin++) {
    }
    for (; range.begin < range.end && start + (range.end - 1) * gap >= size; range.end--) {
    }
    return range;
}

/* The sums of a pixel with taps out of bounds: short loops, which are slower if unrolled. */
PE_INLINE pe_halves_sums PE_GRID(edge)(const int8_t *image, const pe_halves *packed, const int line,
                                       const int left, const pe_range rows, const int lanes) {
    const pe_range columns = PE_GRID(taps)(left, PE_GAP_W, PE_TAPS_W, PE_SOURCE_W);
    pe_halves_sums sums = {{0}, {0}};
    PE_ROLLED
    for (ptrdiff_t t = rows.begin; t < rows.end; t++) {
        const int8_t *from =
            image +
            ((line + t * PE_GAP_H) * PE_SOURCE_W + left + columns.begin * PE_GAP_W) * PE_CHANNELS;
        const pe_halves *weights = packed + t * PE_TAPS_W + columns.begin;
        PE_ROLLED
        for (ptrdiff_t u = columns.begin; u < columns.end; u++, from += PE_GAP_W * PE_CHANNELS) {
            const pe_halves a = pe_load_halves(from, lanes) - PE_A_ZERO;
            sums = pe_add_halves(sums, a, *weights++);
        }
    }
    return sums;
}

/* Passes eight sums to the epilogue. */
PE_INLINE void PE_GRID(put)(const PE_FN(io) * io, const pe_halves_sums sums, const ptrdiff_t pixel,
                            const int c, const int lanes) {
    int32_t ordered[8];
    pe_order_sums(ordered, sums);
    PE_FN(store)(io, pe_load_i(ordered), pixel, c, lanes < 4 ? lanes : 4);
    if (lanes > 4) {
        PE_FN(store)(io, pe_load_i(ordered + 4), pixel, c + 4, lanes - 4);
    }
}

PE_INLINE void PE_GRID(channels)(const PE_FN(io) * io, const int8_t *source,
                                 const pe_halves *packed, const pe_halves_sums first, const int c,
                                 const int lanes) {
    for (int i = 0; i < PE_IMAGES * PE_POSITIONS_H; i++) {
        const int position = i % PE_POSITIONS_H, line = position * PE_STEP_H + PE_START_H;
        const pe_range rows = PE_GRID(taps)(line, PE_GAP_H, PE_TAPS_H, PE_SOURCE_H);
        const int whole = rows.end - rows.begin == PE_TAPS_H;
        const int begin = whole ? PE_INNER_BEGIN : 0, end = whole ? PE_INNER_END : 0;
        const int8_t *image =
            source + (ptrdiff_t)(i / PE_POSITIONS_H) * PE_SOURCE_H * PE_SOURCE_W * PE_CHANNELS + c;
        const ptrdiff_t row = ((ptrdiff_t)(i / PE_POSITIONS_H) * PE_OUT_H + PE_OUT_FIRST_H +
                               position * PE_OUT_STEP_H) *
                                  PE_OUT_W +
                              PE_OUT_FIRST_W;
        const int8_t *from =
            image + ((ptrdiff_t)line * PE_SOURCE_W + begin * PE_STEP_W + PE_START_W) * PE_CHANNELS;
        for (int x = begin; x < end; x++, from += PE_STEP_W * PE_CHANNELS) {
            PE_GRID(put)(io, PE_GRID(inner)(from, packed, first, lanes), row + x * PE_OUT_STEP_W, c,
                         lanes);
        }
        for (int x = begin ? 0 : end; x < PE_POSITIONS_W; x = x + 1 == begin ? end : x + 1) {
            const int left = x * PE_STEP_W + PE_START_W;
            PE_GRID(put)(io, PE_GRID(edge)(image, packed, line, left, rows, lanes),
                         row + x * PE_OUT_STEP_W, c, lanes);
        }
    }
}

PE_INLINE void PE_GRID(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                            const int8_t *weights, void *scratch) {
    pe_halves *packed = (pe_halves *)((int8_t *)scratch + (ptrdiff_t)w->index * PE_THREAD_BYTES);
    const pe_range share = pe_split(w, PE_CHANNELS, 8);
    for (int c = (int)share.begin; c < (int)share.end; c += 8) {
        if (c + 8 <= PE_CHANNELS) {
            const pe_halves_sums first = PE_GRID(pack)(packed, weights + c, 8);
            PE_GRID(channels)(io, source, packed, first, c, 8);
            continue;
        }
#if PE_CHANNELS % 8
        const pe_halves_sums first = PE_GRID(pack)(packed, weights + c, PE_CHANNELS % 8);
        PE_GRID(channels)(io, source, packed, first, c, PE_CHANNELS % 8);
#endif
    }
}

#undef PE_TAPS
#include "grid_undef.inc.h"
