/* A tile of a product of bytes: PE_MR rows of A, PE_NV blocks of B, sums in registers.
 *
 * Parameters, besides those of bytes_pack.inc.h:
 *   PE_MR, PE_NV      rows and blocks of a tile
 *   PE_VL             lanes that the epilogue takes, a multiple of PE_L or a part of it
 *   PE_A_PITCH        bytes from a row of A to the next; its words are contiguous
 *   PE_A_GROUP        or, if not 0: bytes from a group to the next; the words of all rows in a
 *                     group are contiguous
 */

#if !defined(PE_A_GROUP) || !defined(PE_L) || !defined(PE_N) || !defined(PE_VL)
#error "bytes_tile.inc.h needs PE_A_GROUP, PE_L, PE_N and PE_VL"
#endif

#define PE_STRIP (PE_P / PE_L)
#define PE_NR (PE_NV * PE_L)
#define PE_TOGETHER PE_JOIN(PE_DOT_TOGETHER_, PE_L)
/* Row by row, if the words of all rows need more registers than exist. */
#define PE_ROWS_FIRST (PE_DOT_WIDE_WORDS && (PE_MR > 4 || (PE_MR == 4 && !PE_A_GROUP)))

#include "bytes_put.inc.h"

/* Adds one group: word `at` of each row, or its own word if rows are interleaved. */
PE_INLINE void PE_FN(add_group)(PE_LANE(pe_dot_sums) sum[PE_MR][PE_NV],
                                const PE_LANE(pe_dot_words) words[PE_MR], const int at,
                                const int8_t *b, const int count, const int vectors,
                                const int full) {
    PE_LANE(pe_dot_word) a[PE_MR];
#if PE_ROWS_FIRST
    PE_UNROLL
    for (int i = 0; i < count; i++) {
        a[i] = PE_LANE(pe_dot_pick)(words[i], PE_A_GROUP ? i % PE_TOGETHER : at);
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            const int8_t *block = b + j / PE_STRIP * PE_PANEL_BYTES + j % PE_STRIP * PE_L * 4;
            sum[i][j] = PE_LANE(pe_dot)(sum[i][j], block, a[i], full);
        }
    }
#else
    PE_UNROLL
    for (int i = 0; i < count; i++) {
        a[i] = PE_LANE(pe_dot_pick)(words[i], PE_A_GROUP ? i % PE_TOGETHER : at);
    }
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        const int8_t *block = b + j / PE_STRIP * PE_PANEL_BYTES + j % PE_STRIP * PE_L * 4;
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            sum[i][j] = PE_LANE(pe_dot)(sum[i][j], block, a[i], full);
        }
    }
#endif
}

/* All groups of `count` rows. */
PE_INLINE void PE_FN(multiply)(PE_LANE(pe_dot_sums) sum[PE_MR][PE_NV], const int8_t *a,
                               const int8_t *b, const int count, const int vectors,
                               const int full) {
    PE_LANE(pe_dot_words) words[PE_MR];
    int g = 0;
#if PE_A_GROUP
    for (; g < PE_DEPTH; g++, a += PE_A_GROUP, b += PE_P * 4) {
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            words[i] = PE_LANE(pe_dot_load)(a + i / PE_TOGETHER * PE_TOGETHER * 4);
        }
        PE_FN(add_group)(sum, words, 0, b, count, vectors, full);
    }
#else
    for (; g + PE_TOGETHER <= PE_DEPTH; g += PE_TOGETHER, a += PE_TOGETHER * 4) {
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            words[i] = PE_LANE(pe_dot_load)(a + i * (ptrdiff_t)PE_A_PITCH);
        }
        PE_UNROLL
        for (int t = 0; t < PE_TOGETHER; t++, b += PE_P * 4) {
            PE_FN(add_group)(sum, words, t, b, count, vectors, full);
        }
    }
    for (; g < PE_DEPTH; g++, a += 4, b += PE_P * 4) {
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            words[i] = PE_LANE(pe_dot_load_one)(a + i * (ptrdiff_t)PE_A_PITCH);
        }
        PE_FN(add_group)(sum, words, 0, b, count, vectors, full);
    }
#endif
}

/* Sums of `vectors` blocks for the epilogue, as rows from `row` on, columns from `column` on. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, PE_LANE(pe_dot_sums) sum[PE_MR][PE_NV],
                             const ptrdiff_t row, const int column, const int count,
                             const int vectors, const int columns) {
    enum { step = PE_VL < PE_L ? 1 : PE_VL / PE_L };
    (void)vectors;
    PE_UNROLL
    for (int j = 0; j * PE_L < columns; j += step) {
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            const int left = columns - j * PE_L;
#if PE_L >= PE_VL
            PE_FN(put)(io, sum[i][j], row + i, column + j * PE_L, left < PE_L ? left : PE_L);
#else
            pe_vi v = {0};
            PE_UNROLL
            for (int lane = 0; lane < PE_VL && lane / PE_L + j < vectors; lane++) {
                v[lane] = sum[i][j + lane / PE_L][lane % PE_L];
            }
            PE_FN(store)(io, v, row + i, column + j * PE_L, left < PE_VL ? left : PE_VL);
#endif
        }
    }
}

/* `count` rows from `row` on, as many columns from `n` on; the first sums are those of `first`. */
PE_INLINE void PE_FN(tile)(const PE_FN(io) * io, const int8_t *a, const int8_t *panels,
                           const int32_t *first, const ptrdiff_t row, const int n, const int column,
                           const int count, const int columns, const int full) {
    const int vectors = (columns + PE_L - 1) / PE_L;
    PE_LANE(pe_dot_sums) sum[PE_MR][PE_NV];
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        PE_LANE(pe_dot_sums) begin;
        memcpy(&begin, first + n + j * PE_L, sizeof begin);
        PE_UNROLL
        for (int i = 0; i < count; i++) {
            sum[i][j] = begin;
        }
    }
    const int8_t *b = panels + n / PE_P * PE_PANEL_BYTES + n % PE_P * 4;
    PE_FN(multiply)(sum, a, b, count, vectors, full);
    PE_FN(finish)(io, sum, row, column + n, count, vectors, columns);
}

/* All columns of rows `begin` to `end`, whose first row of A is `a`. */
PE_INLINE void PE_FN(tile_rows)(const PE_FN(io) * io, const int8_t *a, const int8_t *panels,
                                const int32_t *first, const ptrdiff_t begin, const ptrdiff_t end,
                                const ptrdiff_t pitch, const int n, const int columns,
                                const int full) {
    ptrdiff_t row = begin;
    for (; row + PE_MR <= end; row += PE_MR, a += PE_MR * pitch) {
        PE_FN(tile)(io, a, panels, first, row, n, 0, PE_MR, columns, full);
    }
    for (; row < end; row++, a += pitch) {
        PE_FN(tile)(io, a, panels, first, row, n, 0, 1, columns, full);
    }
}
PE_INLINE void PE_FN(multiply_rows)(const PE_FN(io) * io, const int8_t *a, const int8_t *panels,
                                    const int32_t *first, const ptrdiff_t begin,
                                    const ptrdiff_t end, const ptrdiff_t pitch, const int full) {
    int n = 0;
    for (; n + PE_NR <= PE_N; n += PE_NR) {
        PE_FN(tile_rows)(io, a, panels, first, begin, end, pitch, n, PE_NR, full);
    }
#if PE_N % PE_NR
    PE_FN(tile_rows)(io, a, panels, first, begin, end, pitch, n, PE_N % PE_NR, full);
#endif
}
