/* Convolution of bytes, its gradient with respect to its input, and products of matrices: rows of
 * pixels times panels of weights.
 *
 * A pixel's row of A has the source of its window, tap after tap. If every window is one pixel,
 * rows are read in place; else each thread copies its rows into scratch. Threads share the rows.
 *
 * Parameters, besides those of bytes_tile.inc.h and the window of integer_conv.inc.h:
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are result pixels
 *   PE_M, PE_MB       rows, and those of a block, whose part of A stays in the cache
 *   PE_DIRECT         1: rows of A lie in memory
 *   PE_TAP_BYTES, PE_TAP_STEPS   bytes of a tap in a row of A, and how many of them are read
 */

#if !defined(PE_DIRECT)
#error "bytes_rows.inc.h needs PE_DIRECT"
#endif

#include "bytes_pack.inc.h"
#include "bytes_tile.inc.h"

#if PE_DIRECT
#define PE_ROWS_BYTES 0
#else
#define PE_ROWS_BYTES (PE_MB * PE_A_PITCH)

#define PE_A_BYTES 1
#define PE_B_BYTES 1
#define PE_B_ZERO 0
#include "integer.inc.h"

/* The source of one pixel. */
PE_INLINE void PE_FN(copy_row)(int8_t *to, const int8_t *source, const ptrdiff_t pixel) {
    const ptrdiff_t line = pixel / PE_OUT_W;
    const int x = (int)(pixel % PE_OUT_W), y = (int)(line % PE_OUT_H);
    const int8_t *image =
        source + line / PE_OUT_H * ((ptrdiff_t)PE_SOURCE_H * PE_SOURCE_W * PE_SOURCE_C);
    for (int t = 0; t < PE_TAPS_H; t++, to += PE_TAPS_W * PE_TAP_BYTES) {
        const int row = PE_FN(source)(y, t, PE_STEP_H, PE_GAP_H, PE_TOP, PE_SOURCE_H);
        const int begin = PE_FN(source)(x, 0, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
        const int end = begin < 0 ? -1 : begin + PE_TAPS_W;
        if (!PE_BACKWARD && PE_GAP_W == 1 && PE_TAP_BYTES == PE_TAP_STEPS && row >= 0 && end >= 0 &&
            end <= PE_SOURCE_W) {
            pe_copy_bytes(to, image + ((ptrdiff_t)row * PE_SOURCE_W + begin) * PE_SOURCE_C,
                          PE_TAPS_W * PE_TAP_BYTES);
            continue;
        }
        for (int u = 0; u < PE_TAPS_W; u++) {
            const int column = PE_FN(source)(x, u, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
            if (row < 0 || column < 0) {
                pe_fill_bytes(to + u * PE_TAP_BYTES, PE_A_ZERO, PE_TAP_STEPS);
            } else {
                pe_copy_bytes(to + u * PE_TAP_BYTES,
                              image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_SOURCE_C,
                              PE_TAP_STEPS);
            }
        }
    }
}
#endif

PE_INLINE void PE_FN(blocks)(const PE_FN(io) * io, const int8_t *source, int8_t *rows,
                             const int8_t *panels, const int32_t *first, const pe_range share,
                             const int full) {
    for (ptrdiff_t begin = share.begin; begin < share.end; begin += PE_MB) {
        const ptrdiff_t end = share.end - begin < PE_MB ? share.end : begin + PE_MB;
#if PE_DIRECT
        const int8_t *a = source + begin * PE_A_PITCH;
        (void)rows;
#else
        const int8_t *a = rows;
        for (ptrdiff_t row = begin; row < end; row++) {
            PE_FN(copy_row)(rows + (row - begin) * PE_A_PITCH, source, row);
        }
#endif
        PE_FN(multiply_rows)(io, a, panels, first, begin, end, PE_A_PITCH, full);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *weights, void *scratch) {
    int8_t *panels = scratch;
    int32_t *first = (int32_t *)(panels + PE_PANELS * PE_PANEL_BYTES);
    int32_t *found = first + PE_PANELS * PE_P;
    int8_t *rows = (int8_t *)(found + PE_THREADS);
    const int full = PE_FN(pack)(w, panels, first, found, weights);
    const pe_range share = PE_FN(share)(w, PE_M, PE_MR);
    if (share.begin < share.end) {
        rows += w->index * (ptrdiff_t)PE_ROWS_BYTES;
    }
    if (full) {
        PE_FN(blocks)(io, source, rows, panels, first, share, 1);
    } else {
        PE_FN(blocks)(io, source, rows, panels, first, share, 0);
    }
}

#include "bytes_end.inc.h"
