/* The gradient of a convolution of bytes with respect to its weights, and products with a
 * transposed A: rows are the channels of x at one tap, steps are pixels.
 *
 * Both operands are stored pixel by pixel, and steps must be contiguous: each is packed into words
 * of 4 pixels first, dy once and x for each tap. Threads share the panels of both, then those of x
 * again.
 *
 * Parameters, besides those of bytes_tile.inc.h and the window of integer_conv.inc.h:
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are taps and channels
 *   PE_CHANNELS, PE_TAPS   channels of x, and taps
 */

#if !defined(PE_L)
#error "bytes_dw.inc.h needs PE_L"
#endif

#define PE_A_BYTES 1
#define PE_B_BYTES 1
#define PE_B_ZERO 0
#include "integer.inc.h"

#include "bytes_pack.inc.h"
#include "bytes_tile.inc.h"

#define PE_ROW_PANELS ((PE_CHANNELS + 15) / 16)
#define PE_ROW_PANEL_BYTES ((ptrdiff_t)PE_DEPTH * 64)

/* The row of x that a line of dy meets at a tap, or NULL. */
PE_INLINE const int8_t *PE_FN(line)(const int8_t *source, const ptrdiff_t line, const int tap) {
    const int row = PE_FN(source)((int)(line % PE_OUT_H), tap / PE_TAPS_W, PE_STEP_H, PE_GAP_H,
                                  PE_TOP, PE_SOURCE_H);
    const ptrdiff_t at = (line / PE_OUT_H * PE_SOURCE_H + row) * PE_SOURCE_W;
    return row < 0 ? NULL : source + at * PE_CHANNELS;
}

/* The pixels of x that four of dy from `at` on meet at a tap, or NULL. */
PE_INLINE void PE_FN(meet)(const int8_t *met[4], const int8_t *source, const ptrdiff_t at,
                           const int tap) {
    ptrdiff_t line = at / PE_OUT_W;
    int x = (int)(at - line * PE_OUT_W);
    const int8_t *pixels = PE_FN(line)(source, line, tap);
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        if (x == PE_OUT_W) {
            x = 0;
            pixels = PE_FN(line)(source, ++line, tap);
        }
        const int column =
            PE_FN(source)(x, tap % PE_TAPS_W, PE_STEP_W, PE_GAP_W, PE_LEFT, PE_SOURCE_W);
        const int outside = at + i >= PE_K || pixels == NULL || column < 0;
        met[i] = outside ? NULL : pixels + (ptrdiff_t)column * PE_CHANNELS;
        x++;
    }
}

/* Words of x at one tap. */
PE_INLINE void PE_FN(pack_rows)(pe_worker *w, int8_t *to, const int8_t *source, const int tap) {
    const pe_range share = PE_FN(share)(w, PE_DEPTH, 1);
    for (ptrdiff_t g = share.begin; g < share.end; g++) {
        const int8_t *met[4];
        PE_FN(meet)(met, source, 4 * g, tap);
        for (int p = 0; p < PE_ROW_PANELS; p++) {
#if PE_L == 32
            HVX_Vector rows[4];
            PE_UNROLL
            for (int i = 0; i < 4; i++) {
                const int left = PE_CHANNELS - 16 * p;
                rows[i] = PE_FN(row_part)(met[i] ? met[i] + 16 * p : NULL, left < 16 ? left : 16,
                                          PE_A_ZERO);
            }
            pe_hvx_store(to + p * PE_ROW_PANEL_BYTES + g * 64, pe_hvx_words(rows), 64);
#else
            pe_vb16 rows[4], words[4];
            PE_UNROLL
            for (int i = 0; i < 4; i++) {
                rows[i] = PE_FN(row_bytes)(met[i] ? met[i] + 16 * p : NULL, PE_CHANNELS - 16 * p,
                                           PE_A_ZERO);
            }
            pe_words_of_rows(words, rows);
            memcpy(to + p * PE_ROW_PANEL_BYTES + g * 64, words, sizeof words);
#endif
        }
    }
}

PE_INLINE void PE_FN(tap)(pe_worker *w, const PE_FN(io) * io, const int8_t *rows,
                          const int8_t *panels, const int32_t *first, const int tap,
                          const int full) {
    const pe_range share = PE_FN(share)(w, PE_ROW_PANELS, 1);
    for (ptrdiff_t p = share.begin; p < share.end; p++) {
        const ptrdiff_t begin = 16 * p, left = PE_CHANNELS - begin, row = tap * PE_CHANNELS + begin;
        PE_FN(multiply_rows)(io, rows + p * PE_ROW_PANEL_BYTES, panels, first, row,
                             row + (left < 16 ? left : 16), 4, full);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *dy, void *scratch) {
    int8_t *rows = scratch; /* before the panels: its last words are read beyond */
    int8_t *panels = rows + PE_ROW_PANELS * PE_ROW_PANEL_BYTES;
    int32_t *first = (int32_t *)(panels + PE_PANELS * PE_PANEL_BYTES);
    int32_t *found = first + PE_PANELS * PE_P;
    int full = 0;
    for (int tap = 0; tap < PE_TAPS; tap++) {
        if (tap) {
            pe_barrier(w); /* the last tap's rows have been read */
        }
        PE_FN(pack_rows)(w, rows, source, tap);
        if (tap) {
            pe_barrier(w);
        } else {
            full = PE_FN(pack)(w, panels, first, found, dy);
        }
        if (full) {
            PE_FN(tap)(w, io, rows, panels, first, tap, 1);
        } else {
            PE_FN(tap)(w, io, rows, panels, first, tap, 0);
        }
    }
}

#undef PE_ROW_PANELS
#undef PE_ROW_PANEL_BYTES
#include "bytes_end.inc.h"
