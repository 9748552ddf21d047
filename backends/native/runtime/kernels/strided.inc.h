/* A 1x1 convolution with a stride reads only some pixels of its image: they are gathered into the
 * rows of a matrix before a product, or scattered from the rows of a matrix after it.
 *
 * Parameters:
 *   PE_FN(name), PE_VL      as in gemm_tile.inc.h
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C   the image
 *   PE_OUT_H, PE_OUT_W, PE_STEP_H, PE_STEP_W   the pixels that are read, and the stride
 *   PE_GATHER               1: define gather; 0: define spread, which needs
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue of the image's rows
 */

#if !defined(PE_GATHER)
#error "strided.inc.h needs PE_GATHER"
#endif

#if PE_GATHER

/* rows[pixel that is read][channel] */
PE_INLINE void PE_FN(gather)(const pe_worker *w, float *rows, const float *image) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_OUT_H * PE_OUT_W, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        const ptrdiff_t line = row / PE_OUT_W, x = row % PE_OUT_W * PE_STEP_W;
        const ptrdiff_t y = line / PE_OUT_H * PE_SOURCE_H + line % PE_OUT_H * PE_STEP_H;
        memcpy(rows + row * PE_SOURCE_C, image + (y * PE_SOURCE_W + x) * PE_SOURCE_C,
               sizeof(float) * PE_SOURCE_C);
    }
}

#else

/* Every pixel of the image goes through the epilogue: with its row, or with zeros. */
PE_INLINE void PE_FN(spread)(const pe_worker *w, const PE_FN(io) * io, const float *rows) {
    const pe_range share = pe_split(w, (ptrdiff_t)PE_IMAGES * PE_SOURCE_H * PE_SOURCE_W, 1);
    for (ptrdiff_t pixel = share.begin; pixel < share.end; pixel++) {
        const ptrdiff_t line = pixel / PE_SOURCE_W, x = pixel % PE_SOURCE_W;
        const ptrdiff_t image = line / PE_SOURCE_H, y = line % PE_SOURCE_H;
        const int met = x % PE_STEP_W == 0 && y % PE_STEP_H == 0 && x / PE_STEP_W < PE_OUT_W &&
                        y / PE_STEP_H < PE_OUT_H;
        const ptrdiff_t place = (image * PE_OUT_H + y / PE_STEP_H) * PE_OUT_W + x / PE_STEP_W;
        for (int column = 0; column < PE_SOURCE_C; column += PE_VL) {
            const int lanes = PE_SOURCE_C - column < PE_VL ? PE_SOURCE_C - column : PE_VL;
            pe_vf row = pe_zero();
            if (met) {
                row = pe_load_part(rows + place * PE_SOURCE_C + column, lanes);
            }
            PE_FN(store)(io, row, pixel, column, lanes);
        }
    }
}

#endif

#undef PE_GATHER
#include "undef.inc.h"
