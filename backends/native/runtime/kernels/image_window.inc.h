/* A window of source rows with its padding, copied so that every tap of every position can be read.
 *
 * In the window the taps of every result pixel have the same offsets from its first pixel, so
 * neighboring pixels are rows of a matrix with a constant stride, and no gathering is needed. If a
 * convolution reads no padding, the source itself is the window.
 *
 * Parameters:
 *   PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C   the image; all channels
 *   PE_COPY               0: the source is the window
 *   PE_PIXEL, PE_LINE     floats from one pixel, and from one row, of the window to the next
 *   PE_FIRST_H, PE_FIRST_W   source row and column of the window's first pixel, for position 0
 *   PE_WINDOW_W           pixels in a row of the window
 *   PE_STEP_H, PE_REACH_H source rows from one row of positions to the next, and the number that
 * one row reads PE_SPLIT              PE_SPLIT_COLUMNS: all threads fill one window together
 */

#if !defined(PE_COPY) || !defined(PE_SPLIT) || !defined(PE_SPLIT_COLUMNS)
#error "image_window.inc.h needs PE_COPY, PE_SPLIT and team.inc.h"
#endif

#if PE_COPY

/* Row `y` of an image, which may be out of bounds. */
PE_INLINE void PE_FN(copy_line)(float *to, const float *image, const int y) {
    const int left = PE_FIRST_W < 0 ? -PE_FIRST_W : 0, right = PE_SOURCE_W - PE_FIRST_W;
    const int end = right < PE_WINDOW_W ? right : PE_WINDOW_W;
    if (y < 0 || y >= PE_SOURCE_H || left >= end) {
        memset(to, 0, sizeof(float) * PE_WINDOW_W * PE_PIXEL);
        return;
    }
    const float *from = image + (y * (ptrdiff_t)PE_SOURCE_W + PE_FIRST_W + left) * PE_SOURCE_C;
    memset(to, 0, sizeof(float) * (size_t)left * PE_PIXEL);
    if (PE_PIXEL == PE_SOURCE_C) {
        pe_copy(to + left * PE_PIXEL, from, (end - left) * (ptrdiff_t)PE_PIXEL);
    } else {
        for (int x = left; x < end; x++, from += PE_SOURCE_C) {
            memcpy(to + x * PE_PIXEL, from, sizeof(float) * PE_SOURCE_C);
        }
    }
    memset(to + end * PE_PIXEL, 0, sizeof(float) * (size_t)(PE_WINDOW_W - end) * PE_PIXEL);
}

/* The window of the positions in rows `begin` to `end` of an image. */
PE_INLINE const float *PE_FN(fill_window)(pe_worker *w, float *window, const float *image,
                                          const int begin, const int end) {
    const int lines = (end - begin - 1) * PE_STEP_H + PE_REACH_H;
#if PE_SPLIT == PE_SPLIT_COLUMNS
    const pe_range mine = pe_split(w, lines, 1);
    pe_barrier(w); /* all threads have finished reading the previous window */
#else
    const pe_range mine = {0, lines};
    (void)w;
#endif
    for (int i = (int)mine.begin; i < mine.end; i++) {
        PE_FN(copy_line)(window + i * (ptrdiff_t)PE_LINE, image,
                         begin * PE_STEP_H + PE_FIRST_H + i);
    }
#if PE_SPLIT == PE_SPLIT_COLUMNS
    pe_barrier(w);
#endif
    return window;
}

#else

PE_INLINE const float *PE_FN(fill_window)(pe_worker *w, float *window, const float *image,
                                          const int begin, const int end) {
    (void)w, (void)window, (void)end;
    return image + begin * (PE_STEP_H * (ptrdiff_t)PE_LINE);
}

#endif
