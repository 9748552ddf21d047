/* The gradient of a strided depthwise convolution of integers with respect to its input: one
 * channel per lane.
 *
 * The taps of a result pixel depend on its phase, the remainders of its row and column modulo the
 * strides. Each phase has its own code, without bounds checks away from the edges. Threads share
 * the result's rows.
 *
 * Parameters: those of integer_depthwise.inc.h
 */

#if !defined(PE_BACKWARD) || !PE_BACKWARD
#error "integer_depthwise_dx.inc.h needs PE_BACKWARD"
#endif

#include "integer.inc.h"

/* The offset of a tap in one direction; it has a source pixel if the stride divides it. */
#define PE_PLACE_H(phase, tap) ((phase) + PE_TOP - (tap) * PE_GAP_H)
#define PE_PLACE_W(phase, tap) ((phase) + PE_LEFT - (tap) * PE_GAP_W)

/* All channels of the result pixel at (row, column) times the strides plus its phases. `inside`:
 * all its taps exist. */
PE_INLINE void PE_FN(pixel)(const PE_FN(io) * io, const PE_A *image, const PE_B *weights,
                            const ptrdiff_t pixel, const int row, const int column,
                            const int phase_h, const int phase_w, const int inside) {
    const PE_A *source = image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_GROUPS;
    for (int c = 0; c < PE_GROUPS; c += PE_VL) {
        const int lanes = PE_GROUPS - c < PE_VL ? PE_GROUPS - c : PE_VL;
        PE_SUMS sum = {0};
        PE_UNROLL
        for (int t = 0; t < PE_TAPS_H; t++) {
            const int place_h = PE_PLACE_H(phase_h, t), up = place_h / PE_STEP_H;
            if (place_h % PE_STEP_H || (!inside && (row + up < 0 || row + up >= PE_SOURCE_H))) {
                continue;
            }
            PE_UNROLL
            for (int u = 0; u < PE_TAPS_W; u++) {
                const int place_w = PE_PLACE_W(phase_w, u), on = place_w / PE_STEP_W;
                if (place_w % PE_STEP_W ||
                    (!inside && (column + on < 0 || column + on >= PE_SOURCE_W))) {
                    continue;
                }
                sum += PE_LOAD_A(source + (up * PE_SOURCE_W + on) * PE_GROUPS + c, lanes) *
                       PE_LOAD_B(weights + (t * PE_TAPS_W + u) * PE_GROUPS + c, lanes);
            }
        }
        PE_FN(store)(io, sum, pixel, c, lanes);
    }
}

/* The result row at `row` times the stride plus its phase; its first pixel is `pixel`. */
PE_INLINE void PE_FN(line)(const PE_FN(io) * io, const PE_A *image, const PE_B *weights,
                           const ptrdiff_t pixel, const int row, const int phase) {
    const int y = row * PE_STEP_H;
    const int rows_exist = PE_PLACE_H(y + phase, PE_TAPS_H - 1) >= 0 &&
                           PE_PLACE_H(y + phase, 0) < PE_SOURCE_H * PE_STEP_H;
    for (int column = 0; column * PE_STEP_W < PE_OUT_W; column++) {
        const int x = column * PE_STEP_W, end = x + PE_STEP_W;
        if (rows_exist && end <= PE_OUT_W && PE_PLACE_W(x, PE_TAPS_W - 1) >= 0 &&
            PE_PLACE_W(end - 1, 0) < PE_SOURCE_W * PE_STEP_W) {
            PE_UNROLL
            for (int p = 0; p < PE_STEP_W; p++) {
                PE_FN(pixel)(io, image, weights, pixel + x + p, row, column, phase, p, 1);
            }
            continue;
        }
        for (int p = 0; p < PE_STEP_W && x + p < PE_OUT_W; p++) {
            PE_FN(pixel)(io, image, weights, pixel + x + p, row, column, phase, p, 0);
        }
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source,
                          const PE_B *weights) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H, 1);
    for (ptrdiff_t line = share.begin; line < share.end; line++) {
        const ptrdiff_t image = line / PE_OUT_H;
        const int y = (int)(line - image * PE_OUT_H), phase = y % PE_STEP_H;
        const PE_A *dy = source + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_GROUPS);
        PE_UNROLL
        for (int p = 0; p < PE_STEP_H; p++) {
            if (p == phase) {
                PE_FN(line)(io, dy, weights, line * PE_OUT_W, y / PE_STEP_H, p);
            }
        }
    }
}

#undef PE_PLACE_H
#undef PE_PLACE_W
#include "integer_end.inc.h"
