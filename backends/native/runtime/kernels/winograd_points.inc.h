/* The one-dimensional transforms of Winograd's convolutions, on vectors of channels.
 *
 * F(r, 3) computes r outputs of a 3-tap correlation with r + 2 products instead of 3 r: image and
 * filter are evaluated at r + 2 points (0, 1, -1, infinity; for r = 4 also 2 and -2), multiplied
 * there, and the products are interpolated. F(3, r), the gradient with respect to the filter, has
 * the same points, hence the same transform of the image. The matrices are Lavin and Gray's
 * (arXiv 1509.09308). In two dimensions each transform is applied to the columns, then to the rows.
 *
 * Parameters:
 *   PE_TILE                 r, 2 or 4
 *   PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C   the image that windows are taken from
 *   PE_OUT_H, PE_OUT_W, PE_N   the convolution's result
 *   PE_TOP, PE_LEFT         padding before the first row and column; may be negative
 *   PE_TILES_H, PE_TILES_W  rows and columns of tiles in an image
 *   PE_WINDOW_PITCH         floats from one tile's channels to the next's
 */

#if !defined(PE_SOURCE_C) || !defined(PE_TILE) || !defined(PE_VL)
#error "winograd_points.inc.h needs PE_SOURCE_C, PE_TILE and PE_VL"
#endif

#define PE_POINTS (PE_TILE + 2)
#define PE_PLANES (PE_POINTS * PE_POINTS)

/* Values of an image at r + 2 neighbors, to the points. */
PE_INLINE void PE_FN(image_to_points)(pe_vf *p, const pe_vf *x) {
#if PE_TILE == 2
    p[0] = x[0] - x[2];
    p[1] = x[1] + x[2];
    p[2] = x[2] - x[1];
    p[3] = x[1] - x[3];
#else
    const pe_vf even = x[4] - 4.0f * x[2], odd = x[3] - 4.0f * x[1];
    const pe_vf even2 = x[4] - x[2], odd2 = x[3] - x[1];
    p[0] = 4.0f * x[0] - 5.0f * x[2] + x[4];
    p[1] = even + odd;
    p[2] = even - odd;
    p[3] = even2 + 2.0f * odd2;
    p[4] = even2 - 2.0f * odd2;
    p[5] = 4.0f * x[1] - 5.0f * x[3] + x[5];
#endif
}

/* A filter's 3 taps, to the points. */
PE_INLINE void PE_FN(filter_to_points)(pe_vf *p, const pe_vf *f) {
#if PE_TILE == 2
    const pe_vf even = 0.5f * (f[0] + f[2]), odd = 0.5f * f[1];
    p[0] = f[0];
    p[1] = even + odd;
    p[2] = even - odd;
    p[3] = f[2];
#else
    const pe_vf even = (-1.0f / 6.0f) * (f[0] + f[2]), odd = (1.0f / 6.0f) * f[1];
    const pe_vf even2 = (1.0f / 24.0f) * f[0] + (1.0f / 6.0f) * f[2], odd2 = 0.5f * odd;
    p[0] = 0.25f * f[0];
    p[1] = even - odd;
    p[2] = even + odd;
    p[3] = even2 + odd2;
    p[4] = even2 - odd2;
    p[5] = f[2];
#endif
}

/* Products at the points, to r neighboring outputs. */
PE_INLINE void PE_FN(points_to_outputs)(pe_vf *y, const pe_vf *p) {
#if PE_TILE == 2
    y[0] = p[0] + p[1] + p[2];
    y[1] = p[1] - p[2] - p[3];
#else
    const pe_vf sum = p[1] + p[2], difference = p[1] - p[2];
    const pe_vf sum2 = p[3] + p[4], difference2 = p[3] - p[4];
    y[0] = p[0] + sum + sum2;
    y[1] = difference + 2.0f * difference2;
    y[2] = sum + 4.0f * sum2;
    y[3] = difference + 8.0f * difference2 + p[5];
#endif
}

/* Addresses of the pixels from (y, x) on, `count` in each direction; those outside the image are
 * zeros.
 */
static const float PE_FN(zeros)[PE_SOURCE_C > PE_N ? PE_SOURCE_C : PE_N];

PE_INLINE void PE_FN(find_pixels)(const float **pixels, const float *image, const int height,
                                  const int width, const int channels, const int y, const int x,
                                  const int count) {
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            const int inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
            const ptrdiff_t at = ((y + i) * (ptrdiff_t)width + x + j) * channels;
            pixels[i * count + j] = inside ? image + at : PE_FN(zeros);
        }
    }
}

/* One vector of channels of a window, to a row of each of the planes, which are `plane` apart. */
PE_INLINE void PE_FN(window_vector)(float *to, const ptrdiff_t plane, const float *const *pixels,
                                    const int channel, const int lanes) {
    pe_vf half[PE_POINTS][PE_POINTS];
    PE_UNROLL
    for (int i = 0; i < PE_POINTS; i++) {
        pe_vf line[PE_POINTS];
        PE_UNROLL
        for (int j = 0; j < PE_POINTS; j++) {
            line[j] = pe_load_part(pixels[i * PE_POINTS + j] + channel, lanes);
        }
        PE_FN(image_to_points)(half[i], line);
    }
    PE_UNROLL
    for (int j = 0; j < PE_POINTS; j++) {
        pe_vf column[PE_POINTS], points[PE_POINTS];
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            column[i] = half[i][j];
        }
        PE_FN(image_to_points)(points, column);
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            pe_store_part(to + (i * PE_POINTS + j) * plane + channel, points[i], lanes);
        }
    }
}

/* Tiles `begin` to `end` of all images: row t of each plane gets the channels of tile begin + t. */
PE_INLINE void PE_FN(transform_windows)(float *to, const ptrdiff_t plane, const float *source,
                                        const ptrdiff_t begin, const ptrdiff_t end) {
    enum { whole = PE_SOURCE_C / PE_VL * PE_VL, of_image = PE_TILES_H * PE_TILES_W };
    for (ptrdiff_t tile = begin; tile < end; tile++, to += PE_WINDOW_PITCH) {
        const int image = (int)(tile / of_image), place = (int)(tile % of_image);
        const float *pixels[PE_PLANES];
        const float *from = source + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
        PE_FN(find_pixels)(pixels, from, PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C,
                           place / PE_TILES_W * PE_TILE - PE_TOP,
                           place % PE_TILES_W * PE_TILE - PE_LEFT, PE_POINTS);
        for (int channel = 0; channel < whole; channel += PE_VL) {
            PE_FN(window_vector)(to, plane, pixels, channel, PE_VL);
        }
#if PE_SOURCE_C % PE_VL
        PE_FN(window_vector)(to, plane, pixels, whole, PE_SOURCE_C % PE_VL);
#endif
    }
}
