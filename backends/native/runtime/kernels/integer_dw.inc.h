/* The gradient of a convolution of integers with respect to its weights, and products with a
 * transposed A: tiles of rows (taps and channels of x) and columns (channels of dy), each summed
 * over all pixels in registers. Threads share the tiles' rows.
 *
 * Parameters: those of integer_conv.inc.h without the inner columns; a tile's rows are channels
 * of x.
 * The result is w; PE_OUT_H and PE_OUT_W are dy's.
 */

#define PE_BACKWARD 0
#include "integer.inc.h"
#include "integer_tile.inc.h"

#define PE_RUNS ((PE_CHANNELS + PE_MR - 1) / PE_MR)

PE_INLINE void PE_FN(tile)(const PE_FN(io) * io, const PE_A *source, const PE_B *dy, const int tap,
                           const int group, const int c, const int n, const int count,
                           const int vectors, const int lanes) {
    PE_SUMS sum[PE_MR][PE_NV];
    PE_FN(clear)(sum, count, vectors);
    for (ptrdiff_t line = 0; line < (ptrdiff_t)PE_IMAGES * PE_OUT_H; line++) {
        const int row = PE_FN(source)((int)(line % PE_OUT_H), tap / PE_TAPS_W, PE_STEP_H, PE_GAP_H,
                                      PE_TOP, PE_SOURCE_H);
        if (row < 0) {
            continue;
        }
        const PE_A *from = source +
                           (line / PE_OUT_H * PE_SOURCE_H + row) * PE_SOURCE_W * PE_SOURCE_C +
                           group * PE_CHANNELS + c;
        const PE_B *b = dy + line * PE_OUT_W * PE_GROUPS * PE_N + group * PE_N + n;
        for (int x = 0; x < PE_OUT_W; x++, b += PE_GROUPS * PE_N) {
            const int column =
                PE_FN(source)(x, tap % PE_TAPS_W, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
            if (column >= 0) {
                const PE_A *a = from + (ptrdiff_t)column * PE_SOURCE_C;
                PE_FN(add_products)(io, sum, a, 1, b, count, vectors, lanes);
            }
        }
    }
    const ptrdiff_t row = (ptrdiff_t)tap * PE_CHANNELS + c;
    PE_FN(finish)(io, sum, row, group * PE_N + n, count, vectors, lanes);
}

PE_INLINE void PE_FN(rows)(const PE_FN(io) * io, const PE_A *source, const PE_B *dy, const int tap,
                           const int group, const int c, const int count) {
    int n = 0;
    for (; n + PE_NR <= PE_N; n += PE_NR) {
        PE_FN(tile)(io, source, dy, tap, group, c, n, count, PE_NV, PE_VL);
    }
#if PE_TAIL
    enum { rest = PE_TAIL, vectors = (rest + PE_VL - 1) / PE_VL };
    PE_FN(tile)(io, source, dy, tap, group, c, n, count, vectors, rest - (vectors - 1) * PE_VL);
#endif
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source, const PE_B *dy) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_TAPS_H * PE_TAPS_W * PE_RUNS * PE_GROUPS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const int group = (int)(unit % PE_GROUPS), c = (int)(unit / PE_GROUPS % PE_RUNS) * PE_MR;
        const int tap = (int)(unit / PE_GROUPS / PE_RUNS);
        if (c + PE_MR <= PE_CHANNELS) {
            PE_FN(rows)(io, source, dy, tap, group, c, PE_MR);
            continue;
        }
        for (int i = c; i < PE_CHANNELS; i++) {
            PE_FN(rows)(io, source, dy, tap, group, i, 1);
        }
    }
}

#undef PE_RUNS
#include "integer_end.inc.h"
