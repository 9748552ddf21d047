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
 *   PE_JOINED              taps of a row that are taken as one, of all their channels: neighboring
 *                          pixels of x, 16 bytes at most; or 1
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

#define PE_MET (PE_JOINED * PE_CHANNELS) /* rows at a tap */
#define PE_ROW_PANELS ((PE_MET + 15) / 16)
#define PE_ROW_PANEL_BYTES ((ptrdiff_t)PE_DEPTH * 64)
/* Whether pixel i of dy reads exactly pixel i of x. */
#define PE_IN_PLACE                                                                                \
    (PE_TAPS == 1 && PE_STEP_H == 1 && PE_STEP_W == 1 && PE_OUT_H == PE_SOURCE_H &&                \
     PE_OUT_W == PE_SOURCE_W)

/* A pixel of dy, and the row of x that its line reads at a tap, or NULL. */
typedef struct PE_FN(place) {
    const int8_t *pixels;
    ptrdiff_t line;
    int x;
} PE_FN(place);

/* The row of x that a line of dy reads at a tap, or NULL. */
PE_INLINE const int8_t *PE_FN(line)(const int8_t *source, const ptrdiff_t line, const int tap) {
    const int row = PE_FN(source)((int)(line % PE_OUT_H), tap / PE_TAPS_W, PE_STEP_H, PE_GAP_H,
                                  PE_TOP, PE_SOURCE_H);
    const ptrdiff_t at = (line / PE_OUT_H * PE_SOURCE_H + row) * PE_SOURCE_W;
    return row < 0 ? NULL : source + at * PE_CHANNELS;
}

/* The channels of joined taps from a column of a row of x on, or NULL if all are outside. If
 * some are, a copy in `edge`. */
PE_INLINE const int8_t *PE_FN(channels)(int8_t edge[16], const int8_t *pixels, const int column) {
    const ptrdiff_t at = (ptrdiff_t)column * PE_CHANNELS;
    if (pixels != NULL && column >= 0 && column <= PE_SOURCE_W - PE_JOINED) {
        return pixels + at;
    }
    if (pixels == NULL || PE_JOINED == 1) {
        return NULL;
    }
    for (int i = 0; i < PE_MET && i < 16; i++) {
        const int pixel = column + i / PE_CHANNELS;
        edge[i] = pixel < 0 || pixel >= PE_SOURCE_W ? PE_A_ZERO : pixels[at + i];
    }
    return edge;
}

/* The channels of x that four pixels of dy from `at` on read at a tap, or NULL. */
PE_INLINE void PE_FN(meet)(const int8_t *met[4], int8_t edge[4][16], PE_FN(place) * place,
                           const int8_t *source, const ptrdiff_t at, const int tap) {
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        met[i] = NULL;
        if (PE_K % 4 && at + i >= PE_K) {
            continue;
        }
        if (PE_IN_PLACE) {
            met[i] = source + (at + i) * PE_CHANNELS;
            continue;
        }
        if ((i == 0 || PE_OUT_W % 4 != 0) && place->x == PE_OUT_W) {
            place->x = 0;
            place->pixels = PE_FN(line)(source, ++place->line, tap);
        }
        const int column = place->x * PE_STEP_W - PE_LEFT + tap % PE_TAPS_W * PE_GAP_W;
        met[i] = PE_FN(channels)(edge[i], place->pixels, column);
        place->x++;
    }
}

/* Words of 16 rows from `begin` on, or of fewer: four pixels each. */
PE_INLINE void PE_FN(put_rows)(int8_t *to, const int8_t *const met[4], const int begin,
                               const int count) {
#if PE_L == 32
    HVX_Vector rows[4];
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        rows[i] = PE_FN(row_part)(met[i] ? met[i] + begin : NULL, count, PE_A_ZERO);
    }
    pe_hvx_store(to, pe_hvx_words(rows), 64);
#else
    pe_vb16 rows[4], words[4];
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        const int always = PE_IN_PLACE && PE_K % 4 == 0;
        const int8_t *row = always || met[i] ? met[i] + begin : NULL;
        rows[i] = always ? PE_FN(load_row)(row, count) : PE_FN(row_bytes)(row, count, PE_A_ZERO);
    }
    pe_words_of_rows(words, rows);
    memcpy(to, words, sizeof words);
#endif
}

/* Words of x at one tap. */
PE_INLINE void PE_FN(pack_rows)(pe_worker *w, int8_t *to, const int8_t *source, const int tap) {
    const pe_range share = PE_FN(share)(w, PE_DEPTH, 1);
    const ptrdiff_t line = 4 * share.begin / PE_OUT_W;
    PE_FN(place)
    place = {PE_FN(line)(source, line, tap), line, (int)(4 * share.begin - line * PE_OUT_W)};
    for (ptrdiff_t g = share.begin; g < share.end; g++) {
        const int8_t *met[4];
        int8_t edge[4][16];
        PE_FN(meet)(met, edge, &place, source, 4 * g, tap);
        int8_t *panel = to + g * 64;
        for (int p = 0; p < PE_MET / 16; p++, panel += PE_ROW_PANEL_BYTES) {
            PE_FN(put_rows)(panel, met, 16 * p, 16);
        }
        if (PE_MET % 16) {
            PE_FN(put_rows)(panel, met, PE_MET / 16 * 16, PE_MET % 16);
        }
    }
}

PE_INLINE void PE_FN(tap)(pe_worker *w, const PE_FN(io) * io, const int8_t *rows,
                          const int8_t *panels, const int32_t *first, const int tap,
                          const int full) {
    const pe_range share = PE_FN(share)(w, PE_ROW_PANELS, 1);
    for (ptrdiff_t p = share.begin; p < share.end; p++) {
        const ptrdiff_t begin = 16 * p, left = PE_MET - begin, row = tap * PE_CHANNELS + begin;
        PE_FN(multiply_rows)(io, rows + p * PE_ROW_PANEL_BYTES, panels, first, row,
                             row + (left < 16 ? left : 16), 4, full);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *dy, void *scratch) {
    int8_t *rows = scratch; /* before the panels, because reads extend past its last words */
    int8_t *panels = rows + PE_ROW_PANELS * PE_ROW_PANEL_BYTES;
    int32_t *first = (int32_t *)(panels + PE_PANELS * PE_PANEL_BYTES);
    int32_t *found = first + PE_PANELS * PE_P;
    int full = 0;
    for (int tap = 0; tap < PE_TAPS; tap += PE_JOINED) {
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

#undef PE_IN_PLACE
#undef PE_JOINED
#undef PE_MET
#undef PE_ROW_PANELS
#undef PE_ROW_PANEL_BYTES
#include "bytes_end.inc.h"
