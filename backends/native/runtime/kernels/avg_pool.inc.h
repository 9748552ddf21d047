/* Average pooling and its gradient: both sum a rectangle of source pixels for each result pixel.
 *
 * Forward, the rectangle is the window, clipped at the image's border; backward, it is the windows
 * that contain a pixel. Either way each term is divided by the number of pixels of its window.
 *
 * Parameters:
 *   PE_FN, PE_VL, PE_FN(io), PE_FN(store)(io, acc, pixel, channel, lanes)   as in depthwise.inc.h
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_OUT_H, PE_OUT_W, PE_CHANNELS
 *   PE_LOW_H(i), PE_HIGH_H(i), PE_LOW_W(i), PE_HIGH_W(i)   half-open rectangle of result pixel i,
 *                                 before clipping
 *   PE_COUNT_H(out, source), PE_COUNT_W(out, source)   rows and columns of the window of a term
 *   PE_SPLIT                      PE_SPLIT_ROWS or PE_SPLIT_COLUMNS (channels)
 */

#if !defined(PE_CHANNELS) || !defined(PE_SPLIT) || !defined(PE_VL)
#error "avg_pool.inc.h needs PE_CHANNELS, PE_SPLIT and PE_VL"
#endif

#include "team.inc.h"

PE_INLINE int PE_FN(at_least)(int value, int low) { return value > low ? value : low; }

PE_INLINE int PE_FN(at_most)(int value, int high) { return value < high ? value : high; }

/* Pixel (y, x) of an image that starts at `source`, for the vector of channels at `c`. */
PE_INLINE pe_vf PE_FN(average)(const float *source, const int y, const int x, const int c,
                               const int lanes) {
    const int top = PE_FN(at_least)(PE_LOW_H(y), 0), left = PE_FN(at_least)(PE_LOW_W(x), 0);
    const int bottom = PE_FN(at_most)(PE_HIGH_H(y), PE_SOURCE_H);
    const int right = PE_FN(at_most)(PE_HIGH_W(x), PE_SOURCE_W);
    pe_vf sum = pe_zero();
    for (int i = top; i < bottom; i++) {
        for (int j = left; j < right; j++) {
            const float *pixel = source + ((ptrdiff_t)i * PE_SOURCE_W + j) * PE_CHANNELS + c;
            const float share = 1.0f / (float)(PE_COUNT_H(y, i) * PE_COUNT_W(x, j));
            sum += pe_load_part(pixel, lanes) * share;
        }
    }
    return sum;
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source) {
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range rows = {0, PE_IMAGES * PE_OUT_H}, channels = pe_split(w, PE_CHANNELS, PE_VL);
#else
    const pe_range rows = pe_split(w, PE_IMAGES * PE_OUT_H, 1), channels = {0, PE_CHANNELS};
#endif
    for (ptrdiff_t row = rows.begin; row < rows.end; row++) {
        const ptrdiff_t image = row / PE_OUT_H;
        const int y = (int)(row - image * PE_OUT_H);
        const float *pixels = source + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_CHANNELS);
        for (int x = 0; x < PE_OUT_W; x++) {
            const ptrdiff_t pixel = row * PE_OUT_W + x;
            int c = (int)channels.begin;
            for (; c + PE_VL <= channels.end; c += PE_VL) {
                PE_FN(store)(io, PE_FN(average)(pixels, y, x, c, PE_VL), pixel, c, PE_VL);
            }
#if PE_CHANNELS % PE_VL
            if (c < channels.end) {
                const int lanes = PE_CHANNELS % PE_VL;
                PE_FN(store)(io, PE_FN(average)(pixels, y, x, c, lanes), pixel, c, lanes);
            }
#endif
        }
    }
}

#include "undef.inc.h"
