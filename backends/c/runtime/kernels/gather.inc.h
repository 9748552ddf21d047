/* Implicit im2col: the pixels that a window sees, gathered into the rows of a small matrix.
 *
 * A grid of window positions slides over a source image. Row p of the gathered matrix holds, for
 * the p-th position (counted over images, then rows, then columns), the channels of each tap in
 * order; taps outside of the image are zeros. Only the rows and taps that a block needs exist at a
 * time.
 *
 * Parameters:
 *   PE_SOURCE_H, PE_SOURCE_W, PE_SOURCE_C  the image; all channels
 *   PE_CHANNELS          channels of a tap: those of one group
 *   PE_STEP_H, PE_STEP_W pixels from one position to the next
 *   PE_ADJACENT          1: neighbouring taps of a row are neighbours in memory
 *   PE_GATHER_PITCH      row length of the gathered matrix
 */

/* A grid of positions and its taps; tap (t, u) of position (i, j) is the source pixel
 * (i * PE_STEP_H + y + t * tap_h, j * PE_STEP_W + x + u * tap_w). */
typedef struct PE_FN(grid) {
    int rows, columns;  /* positions */
    int taps_h, taps_w; /* taps of a window */
    int y, x;           /* source pixel of tap 0 at position 0; may lie outside */
    int tap_h, tap_w;   /* pixels between taps */
    int out_y, out_x;   /* result pixel of position 0 */
    int first_tap;      /* place of its taps among those of all grids */
} PE_FN(grid);

PE_INLINE void PE_FN(copy)(float *to, const float *from, int pixels) {
#if PE_ADJACENT
    memcpy(to, from, (size_t)pixels * PE_CHANNELS * sizeof *to);
#else
    (void)pixels;
    memcpy(to, from, PE_CHANNELS * sizeof *to);
#endif
}

/* Taps u_begin to u_end of one row of a window whose first tap is at column `x` of `line`. */
PE_INLINE void PE_FN(gather_line)(float *to, const float *line, const PE_FN(grid) * g, int x,
                                  int u_begin, int u_end) {
#if PE_ADJACENT
    const int left = -x < u_begin ? u_begin : -x > u_end ? u_end : -x;
    const int fit = PE_SOURCE_W - x;
    const int right = fit < left ? left : fit > u_end ? u_end : fit;
    (void)g;
    memset(to, 0, (size_t)(left - u_begin) * PE_CHANNELS * sizeof *to);
    if (left < right) {
        PE_FN(copy)
        (to + (left - u_begin) * PE_CHANNELS, line + (x + left) * (ptrdiff_t)PE_SOURCE_C,
         right - left);
    }
    memset(to + (right - u_begin) * PE_CHANNELS, 0,
           (size_t)(u_end - right) * PE_CHANNELS * sizeof *to);
#else
    for (int u = u_begin; u < u_end; u++, to += PE_CHANNELS) {
        const int column = x + u * g->tap_w;
        if (column >= 0 && column < PE_SOURCE_W) {
            PE_FN(copy)(to, line + column * (ptrdiff_t)PE_SOURCE_C, 1);
        } else {
            memset(to, 0, PE_CHANNELS * sizeof *to);
        }
    }
#endif
}

/* Taps tap_begin to tap_end of positions `begin` to `end`; `source` starts at the group's channels.
 */
static void PE_FN(gather)(float *to, const float *source, const PE_FN(grid) * g, ptrdiff_t begin,
                          ptrdiff_t end, int tap_begin, int tap_end) {
    const int positions = g->rows * g->columns;
    for (ptrdiff_t p = begin; p < end; p++, to += PE_GATHER_PITCH) {
        const ptrdiff_t image = p / positions;
        const int i = (int)(p - image * positions) / g->columns;
        const int j = (int)(p - image * positions) % g->columns;
        const float *pixels = source + image * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
        float *target = to;
        for (int tap = tap_begin; tap < tap_end;) {
            const int t = tap / g->taps_w, u = tap % g->taps_w;
            const int rest = tap_end - t * g->taps_w;
            const int u_end = rest < g->taps_w ? rest : g->taps_w;
            const int y = i * PE_STEP_H + g->y + t * g->tap_h;
            if (y >= 0 && y < PE_SOURCE_H) {
                const float *line = pixels + y * ((ptrdiff_t)PE_SOURCE_W * PE_SOURCE_C);
                PE_FN(gather_line)(target, line, g, j * PE_STEP_W + g->x, u, u_end);
            } else {
                memset(target, 0, (size_t)(u_end - u) * PE_CHANNELS * sizeof *target);
            }
            target += (u_end - u) * PE_CHANNELS;
            tap += u_end - u;
        }
    }
}
