/* The gradient of a depthwise convolution of bytes with respect to its weights: each channel a
 * lane, products of i16 summed in i32 over all pixels. A row of taps is summed at once, so that dy
 * is read once for it. Threads share the rows of taps and the vectors of channels.
 *
 * Parameters: those of bytes_depthwise.inc.h, except scratch, PE_T and PE_FLIPPED.
 */

#if !defined(PE_NEON)
#error "bytes_depthwise_dw.inc.h needs pe_vec.h"
#endif

#include "bytes_lanes.inc.h"

#define PE_RUNS ((PE_GROUPS + PE_L - 1) / PE_L)

/* One pixel of dy; `a` is the source of its first tap, in `column`. */
PE_INLINE void PE_FN(add_pixel)(PE_SUMS sum[PE_TAPS_W], const int8_t *a, const int8_t *dy,
                                const int column, const int inside, const int lanes) {
    const PE_FN(shorts) b = PE_FN(load)(dy, lanes);
    PE_UNROLL
    for (int u = 0; u < PE_TAPS_W; u++) {
        const int at = column + u * PE_GAP_W;
        if (inside || (at >= 0 && at < PE_SOURCE_W)) {
            sum[u] = PE_FN(add)(sum[u], PE_FN(load)(a + at * PE_GROUPS, lanes) - PE_A_ZERO, b);
        }
    }
}

/* One row of dy; `a` is the row of the source that the taps read. */
PE_INLINE void PE_FN(add_line)(PE_SUMS sum[PE_TAPS_W], const int8_t *a, const int8_t *dy,
                               const int lanes) {
    const int begin = (PE_LEFT > 0 ? PE_LEFT + PE_STEP_W - 1 : 0) / PE_STEP_W;
    const int last = PE_SOURCE_W - 1 - (PE_TAPS_W - 1) * PE_GAP_W + PE_LEFT;
    int x = 0;
    for (; x < begin && x < PE_OUT_W; x++) {
        PE_FN(add_pixel)(sum, a, dy + x * PE_GROUPS, x * PE_STEP_W - PE_LEFT, 0, lanes);
    }
#if PE_NEON /* neighbors read the same pixels, which stay in registers */
    for (; x + 3 < PE_OUT_W && (x + 3) * PE_STEP_W <= last; x += 4) {
        PE_UNROLL
        for (int i = 0; i < 4; i++) {
            PE_FN(add_pixel)(sum, a, dy + (x + i) * PE_GROUPS, (x + i) * PE_STEP_W - PE_LEFT, 1,
                             lanes);
        }
    }
#endif
    for (; x < PE_OUT_W && x * PE_STEP_W <= last; x++) {
        PE_FN(add_pixel)(sum, a, dy + x * PE_GROUPS, x * PE_STEP_W - PE_LEFT, 1, lanes);
    }
    for (; x < PE_OUT_W; x++) {
        PE_FN(add_pixel)(sum, a, dy + x * PE_GROUPS, x * PE_STEP_W - PE_LEFT, 0, lanes);
    }
}

/* Row `t` of the taps of `lanes` channels from `c` on. */
PE_INLINE void PE_FN(taps)(const PE_FN(io) * io, const int8_t *source, const int8_t *dy,
                           const int t, const int c, const int lanes) {
    PE_SUMS sum[PE_TAPS_W];
    memset(sum, 0, sizeof sum);
    for (ptrdiff_t line = 0; line < (ptrdiff_t)PE_IMAGES * PE_OUT_H; line++) {
        const int row = (int)(line % PE_OUT_H) * PE_STEP_H - PE_TOP + t * PE_GAP_H;
        if (row >= 0 && row < PE_SOURCE_H) {
            const ptrdiff_t from = (line / PE_OUT_H * PE_SOURCE_H + row) * PE_SOURCE_W;
            PE_FN(add_line)(sum, source + from * PE_GROUPS + c,
                            dy + line * PE_OUT_W * PE_GROUPS + c, lanes);
        }
    }
    PE_UNROLL
    for (int u = 0; u < PE_TAPS_W; u++) {
        PE_FN(put)(io, sum[u], t * PE_TAPS_W + u, c, lanes);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *dy) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_TAPS_H * PE_RUNS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const int t = (int)(unit / PE_RUNS), c = (int)(unit % PE_RUNS) * PE_L;
        if (PE_GROUPS % PE_L == 0 || c + PE_L <= PE_GROUPS) {
            PE_FN(taps)(io, source, dy, t, c, PE_L);
        } else {
            PE_FN(taps)(io, source, dy, t, c, PE_GROUPS % PE_L);
        }
    }
}

#undef PE_RUNS
#include "bytes_end.inc.h"
