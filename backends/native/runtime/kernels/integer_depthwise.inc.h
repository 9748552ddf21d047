/* Depthwise convolution of integers, and with PE_BACKWARD its gradient with respect to the input:
 * one channel per lane. Threads share the result's pixels.
 *
 * Parameters: those of integer_dot.inc.h, with PE_GROUPS channels and no others, and
 *   PE_BACKWARD   1: the source is dy
 */

#include "integer.inc.h"

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source,
                          const PE_B *weights) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H * PE_OUT_W, 1);
    for (ptrdiff_t pixel = share.begin; pixel < share.end; pixel++) {
        const ptrdiff_t line = pixel / PE_OUT_W;
        const int x = (int)(pixel % PE_OUT_W), y = (int)(line % PE_OUT_H);
        const PE_A *image =
            source + line / PE_OUT_H * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_GROUPS);
        for (int c = 0; c < PE_GROUPS; c += PE_VL) {
            const int lanes = PE_GROUPS - c < PE_VL ? PE_GROUPS - c : PE_VL;
            PE_SUMS sum = {0};
            for (int t = 0; t < PE_TAPS_H; t++) {
                const int row = PE_FN(source)(y, t, PE_STEP_H, PE_GAP_H, PE_TOP, PE_SOURCE_H);
                for (int u = 0; u < PE_TAPS_W && row >= 0; u++) {
                    const int column =
                        PE_FN(source)(x, u, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
                    if (column < 0) {
                        continue;
                    }
                    const ptrdiff_t at = (ptrdiff_t)row * PE_SOURCE_W + column;
                    sum += PE_LOAD_A(image + at * PE_GROUPS + c, lanes) *
                           PE_LOAD_B(weights + (t * PE_TAPS_W + u) * PE_GROUPS + c, lanes);
                }
            }
            PE_FN(store)(io, sum, pixel, c, lanes);
        }
    }
}

#include "integer_end.inc.h"
