/* The gradient of a convolution of integers with respect to its input, and products with a
 * transposed B: sums along the last axis of both operands, in vectors that are summed up at the
 * end.
 *
 * A lane past the end of B is 0, which is why B has no zero point. Threads share the result's
 * pixels and groups.
 *
 * Parameters: those of integer_conv.inc.h without the tile and the inner columns. The source is dy;
 * its groups have PE_N channels, those of the result PE_CHANNELS.
 */

#if !defined(PE_B_BYTES) || !defined(PE_B_ZERO)
#error "integer_dot.inc.h needs PE_B_BYTES and PE_B_ZERO"
#endif

#define PE_BACKWARD 1
#include "integer.inc.h"

#if PE_B_BYTES == 1 && PE_B_ZERO
#error "a transposed operand has no zero point"
#endif

/* `lanes` sums for the channels from `c` on. */
PE_INLINE PE_SUMS PE_FN(sums)(const PE_FN(io) * io, const PE_A *image, const PE_B *weights,
                              const int y, const int x, const int group, const int c,
                              const int lanes) {
    (void)io;
    PE_SUMS sums[PE_VL], result = {0};
    PE_UNROLL
    for (int i = 0; i < PE_VL; i++) {
        sums[i] = (PE_SUMS){0};
    }
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = PE_FN(source)(y, t, PE_STEP_H, PE_GAP_H, PE_TOP, PE_SOURCE_H);
        for (int u = 0; u < PE_TAPS_W && row >= 0; u++) {
            const int column = PE_FN(source)(x, u, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
            if (column < 0) {
                continue;
            }
            const PE_A *a =
                image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_SOURCE_C + group * PE_N;
            const PE_B *b = weights +
                            ((ptrdiff_t)(t * PE_TAPS_W + u) * PE_CHANNELS + c) * PE_SOURCE_C +
                            group * PE_N;
            for (int k = 0; k < PE_N; k += PE_VL) {
                const int rest = PE_N - k < PE_VL ? PE_N - k : PE_VL;
                const PE_SUMS va = PE_LOAD_A(a + k, rest);
                PE_UNROLL
                for (int i = 0; i < PE_VL; i++) {
                    if (i < lanes) {
                        sums[i] += va * PE_LOAD_B(b + i * PE_SOURCE_C + k, rest);
                    }
                }
            }
        }
    }
    PE_UNROLL
    for (int i = 0; i < PE_VL; i++) {
        result[i] = PE_SUM_LANES(sums[i]);
    }
    return result;
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source,
                          const PE_B *weights) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H * PE_OUT_W * PE_GROUPS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const int group = (int)(unit % PE_GROUPS);
        const ptrdiff_t pixel = unit / PE_GROUPS, row = pixel / PE_OUT_W;
        const int x = (int)(pixel % PE_OUT_W), y = (int)(row % PE_OUT_H);
        const PE_A *image =
            source + row / PE_OUT_H * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
        for (int c = 0; c < PE_CHANNELS; c += PE_VL) {
            const int lanes = PE_CHANNELS - c < PE_VL ? PE_CHANNELS - c : PE_VL;
            const PE_SUMS v = PE_FN(sums)(io, image, weights, y, x, group, c, lanes);
            PE_FN(store)(io, v, pixel, group * PE_CHANNELS + c, lanes);
        }
    }
}

#include "integer_end.inc.h"
