/* Convolution of integers: tiles of result pixels and channels, sums in registers, no scratch.
 *
 * Pixels of a row whose taps all exist are taken PE_MR at once, the others one by one. Threads
 * share these runs of all rows and groups.
 *
 * Parameters, besides those of integer_tile.inc.h, whose rows are pixels:
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are result pixels
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C, PE_OUT_H, PE_OUT_W   x and y
 *   PE_GROUPS, PE_CHANNELS, PE_N     groups, and the channels each reads and writes
 *   PE_TAPS_H, PE_TAPS_W, PE_STEP_H, PE_STEP_W, PE_GAP_H, PE_GAP_W, PE_TOP, PE_LEFT   the window
 *   PE_INNER_BEGIN, PE_INNER_END     result columns whose taps all exist
 */

#define PE_BACKWARD 0
#include "integer.inc.h"
#include "integer_tile.inc.h"

#define PE_RUNS ((PE_OUT_W + PE_MR - 1) / PE_MR)

/* `count` pixels of a row from column `x` on, `vectors` vectors of channels from `n` on. */
PE_INLINE void PE_FN(tile)(const PE_FN(io) * io, const PE_A *image, const PE_B *weights,
                           const ptrdiff_t pixel, const int y, const int x, const int group,
                           const int n, const int count, const int vectors, const int lanes) {
    PE_SUMS sum[PE_MR][PE_NV];
    PE_FN(clear)(sum, count, vectors);
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = PE_FN(source)(y, t, PE_STEP_H, PE_GAP_H, PE_TOP, PE_SOURCE_H);
        for (int u = 0; u < PE_TAPS_W && row >= 0; u++) {
            const int column = PE_FN(source)(x, u, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
            if (column < 0) {
                continue;
            }
            const PE_A *a =
                image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_SOURCE_C + group * PE_CHANNELS;
            const PE_B *b = weights +
                            (ptrdiff_t)(t * PE_TAPS_W + u) * PE_CHANNELS * PE_GROUPS * PE_N +
                            group * PE_N + n;
            for (int c = 0; c < PE_CHANNELS; c++, b += PE_GROUPS * PE_N) {
                PE_FN(add_products)(io, sum, a + c, PE_STEP_W * PE_SOURCE_C, b, count, vectors,
                                    lanes);
            }
        }
    }
    PE_FN(finish)(io, sum, pixel, group * PE_N + n, count, vectors, lanes);
}

PE_INLINE void PE_FN(pixels)(const PE_FN(io) * io, const PE_A *image, const PE_B *weights,
                             const ptrdiff_t pixel, const int y, const int x, const int group,
                             const int count) {
    int n = 0;
    for (; n + PE_NR <= PE_N; n += PE_NR) {
        PE_FN(tile)(io, image, weights, pixel, y, x, group, n, count, PE_NV, PE_VL);
    }
#if PE_TAIL
    enum { rest = PE_TAIL, vectors = (rest + PE_VL - 1) / PE_VL };
    PE_FN(tile)(io, image, weights, pixel, y, x, group, n, count, vectors,
                rest - (vectors - 1) * PE_VL);
#endif
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const PE_A *source,
                          const PE_B *weights) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H * PE_RUNS * PE_GROUPS, 1);
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const int group = (int)(unit % PE_GROUPS),
                  begin = (int)(unit / PE_GROUPS % PE_RUNS) * PE_MR;
        const ptrdiff_t row = unit / PE_GROUPS / PE_RUNS;
        const int y = (int)(row % PE_OUT_H);
        const PE_A *image =
            source + row / PE_OUT_H * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
        const int end = begin + PE_MR < PE_OUT_W ? begin + PE_MR : PE_OUT_W;
        if (end - begin == PE_MR && begin >= PE_INNER_BEGIN && end <= PE_INNER_END) {
            PE_FN(pixels)(io, image, weights, row * PE_OUT_W + begin, y, begin, group, PE_MR);
            continue;
        }
        for (int x = begin; x < end; x++) {
            PE_FN(pixels)(io, image, weights, row * PE_OUT_W + x, y, x, group, 1);
        }
    }
}

#undef PE_RUNS
#include "integer_end.inc.h"
