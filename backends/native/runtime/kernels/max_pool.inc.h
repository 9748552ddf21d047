/* Max pooling, and with PE_GRADIENT its gradient, which goes to the first maximum of each window.
 *
 * In the backward pass a thread owns rows of the input. It visits every window that overlaps them,
 * recomputes the maximum from x, and adds dy only if the maximum is in one of its own rows.
 * Windows may therefore overlap, but threads never write the same pixel.
 *
 * Parameters:
 *   PE_FN, PE_VL, PE_FN(io), PE_FN(store)(io, acc, pixel, channel, lanes)   as in depthwise.inc.h
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_OUT_H, PE_OUT_W, PE_CHANNELS    x and y
 *   PE_TAPS_H, PE_TAPS_W, PE_STEP_H, PE_STEP_W, PE_TOP, PE_LEFT, PE_GAP_H, PE_GAP_W   the window
 *   PE_GRADIENT   1: the gradient; PE_DIRECT 1: its sums are its result, there is no epilogue
 */

#if !defined(PE_CHANNELS) || !defined(PE_GRADIENT) || !defined(PE_VL)
#error "max_pool.inc.h needs PE_CHANNELS, PE_GRADIENT and PE_VL"
#endif

#include "team.inc.h"

typedef struct PE_FN(maximum) {
    pe_vf value;
    pe_vi tap;
} PE_FN(maximum);

/* The window of result pixel (y, x); a NaN counts as the largest. Taps are counted in row-major
 * order, and a later one must be larger to win. */
PE_INLINE PE_FN(maximum)
    PE_FN(find)(const float *image, const int y, const int x, const int c, const int lanes) {
    PE_FN(maximum) best = {pe_splat(-__builtin_inff()), pe_splat_i(-1)};
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = y * PE_STEP_H - PE_TOP + t * PE_GAP_H;
        if (row < 0 || row >= PE_SOURCE_H) {
            continue;
        }
        for (int u = 0; u < PE_TAPS_W; u++) {
            const int column = x * PE_STEP_W - PE_LEFT + u * PE_GAP_W;
            if (column < 0 || column >= PE_SOURCE_W) {
                continue;
            }
            const float *at = image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_CHANNELS + c;
            const pe_vf pixel = pe_load_part(at, lanes);
            const pe_vi wins = (pixel > best.value) | (pixel != pixel) | (best.tap < 0);
            best.value = pe_select(wins, pixel, best.value);
            best.tap = pe_select_i(wins, pe_splat_i(t * PE_TAPS_W + u), best.tap);
        }
    }
    return best;
}

#if PE_GRADIENT

/* Add dy of window (y, x) to its maximum, if that is in rows `begin` to `end` of the image. */
PE_INLINE void PE_FN(give)(float *sums, const float *image, const float *dy, const int y,
                           const int x, const int begin, const int end, const int c,
                           const int lanes) {
    const PE_FN(maximum) best = PE_FN(find)(image, y, x, c, lanes);
    const pe_vf gradient = pe_load_part(dy + c, lanes);
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = y * PE_STEP_H - PE_TOP + t * PE_GAP_H;
        if (row < begin || row >= end) {
            continue;
        }
        for (int u = 0; u < PE_TAPS_W; u++) {
            const int column = x * PE_STEP_W - PE_LEFT + u * PE_GAP_W;
            if (column < 0 || column >= PE_SOURCE_W) {
                continue;
            }
            float *at = sums + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_CHANNELS + c;
            const pe_vi mine = best.tap == t * PE_TAPS_W + u;
            pe_store_part(at, pe_load_part(at, lanes) + pe_select(mine, gradient, pe_zero()),
                          lanes);
        }
    }
}

/* Rows `begin` to `end` of one image's gradient. */
PE_INLINE void PE_FN(give_rows)(float *sums, const float *image, const float *dy, const int begin,
                                const int end) {
    memset(sums + (ptrdiff_t)begin * PE_SOURCE_W * PE_CHANNELS, 0,
           (size_t)(end - begin) * PE_SOURCE_W * PE_CHANNELS * sizeof *sums);
    for (int y = 0; y < PE_OUT_H; y++) {
        const int first = y * PE_STEP_H - PE_TOP;
        if (first >= end || first + (PE_TAPS_H - 1) * PE_GAP_H < begin) {
            continue;
        }
        for (int x = 0; x < PE_OUT_W; x++) {
            const float *from = dy + ((ptrdiff_t)y * PE_OUT_W + x) * PE_CHANNELS;
            int c = 0;
            for (; c + PE_VL <= PE_CHANNELS; c += PE_VL) {
                PE_FN(give)(sums, image, from, y, x, begin, end, c, PE_VL);
            }
#if PE_CHANNELS % PE_VL
            PE_FN(give)(sums, image, from, y, x, begin, end, c, PE_CHANNELS % PE_VL);
#endif
        }
    }
}

/* Pass the sums of complete rows through the epilogue. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, const float *sums, const pe_range rows) {
    for (ptrdiff_t pixel = rows.begin * PE_SOURCE_W; pixel < rows.end * PE_SOURCE_W; pixel++) {
        for (int c = 0; c < PE_CHANNELS; c += PE_VL) {
            const int lanes = PE_CHANNELS - c < PE_VL ? PE_CHANNELS - c : PE_VL;
            PE_FN(store)(io, pe_load_part(sums + pixel * PE_CHANNELS + c, lanes), pixel, c, lanes);
        }
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *sums) {
    const pe_range rows = pe_split(w, PE_IMAGES * PE_SOURCE_H, 1);
    for (ptrdiff_t row = rows.begin; row < rows.end;) {
        const ptrdiff_t image = row / PE_SOURCE_H, rest = rows.end - image * PE_SOURCE_H;
        const int begin = (int)(row - image * PE_SOURCE_H);
        const int end = (int)(rest < PE_SOURCE_H ? rest : PE_SOURCE_H);
        const ptrdiff_t from = image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_CHANNELS);
        PE_FN(give_rows)(sums + from, x + from,
                         dy + image * ((ptrdiff_t)PE_OUT_H * PE_OUT_W * PE_CHANNELS), begin, end);
        row += end - begin;
    }
    if (!PE_DIRECT) {
        PE_FN(finish)(io, sums, rows);
    }
}

#else

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x) {
    const pe_range rows = pe_split(w, PE_IMAGES * PE_OUT_H, 1);
    for (ptrdiff_t row = rows.begin; row < rows.end; row++) {
        const ptrdiff_t image = row / PE_OUT_H;
        const float *pixels = x + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_CHANNELS);
        const int y = (int)(row - image * PE_OUT_H);
        for (int column = 0; column < PE_OUT_W; column++) {
            const ptrdiff_t pixel = row * PE_OUT_W + column;
            int c = 0;
            for (; c + PE_VL <= PE_CHANNELS; c += PE_VL) {
                const pe_vf best = PE_FN(find)(pixels, y, column, c, PE_VL).value;
                PE_FN(store)(io, best, pixel, c, PE_VL);
            }
#if PE_CHANNELS % PE_VL
            const int lanes = PE_CHANNELS % PE_VL;
            const pe_vf best = PE_FN(find)(pixels, y, column, c, lanes).value;
            PE_FN(store)(io, best, pixel, c, lanes);
#endif
        }
    }
}

#endif

#include "undef.inc.h"
