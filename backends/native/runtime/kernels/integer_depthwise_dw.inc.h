/* The gradient of a depthwise convolution of integers with respect to its weights: one channel per
 * lane, summed over all pixels. Threads share the taps and the vectors of channels.
 *
 * Parameters: those of integer_dw.inc.h, with PE_GROUPS channels and no others.
 */

#define PE_BACKWARD 0
#include "integer.inc.h"

#define PE_RUNS ((PE_GROUPS + PE_VL - 1) / PE_VL)

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source, const PE_B *dy) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_TAPS_H * PE_TAPS_W * PE_RUNS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const int tap = (int)(unit / PE_RUNS), c = (int)(unit % PE_RUNS) * PE_VL;
        const int lanes = PE_GROUPS - c < PE_VL ? PE_GROUPS - c : PE_VL;
        PE_SUMS sum = {0};
        for (ptrdiff_t line = 0; line < (ptrdiff_t)PE_IMAGES * PE_OUT_H; line++) {
            const int row = PE_FN(source)((int)(line % PE_OUT_H), tap / PE_TAPS_W, PE_STEP_H,
                                          PE_GAP_H, PE_TOP, PE_SOURCE_H);
            const ptrdiff_t from = (line / PE_OUT_H * PE_SOURCE_H + row) * PE_SOURCE_W;
            for (int x = 0; x < PE_OUT_W && row >= 0; x++) {
                const int column =
                    PE_FN(source)(x, tap % PE_TAPS_W, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
                if (column >= 0) {
                    sum += PE_LOAD_A(source + (from + column) * PE_GROUPS + c, lanes) *
                           PE_LOAD_B(dy + (line * PE_OUT_W + x) * PE_GROUPS + c, lanes);
                }
            }
        }
        PE_FN(store)(io, sum, tap, c, lanes);
    }
}

#undef PE_RUNS
#include "integer_end.inc.h"
