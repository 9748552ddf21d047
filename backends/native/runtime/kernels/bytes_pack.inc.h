/* B of a product of bytes as blocks of pe_dot.h, in panels of PE_P columns, in scratch.
 *
 * A panel's blocks are contiguous: PE_DEPTH groups of 4 steps. Steps and columns that do not exist
 * are 0. Each column's initial sum is stored with the panels: it cancels the contribution of A's
 * zero point and shift. Threads share the panels.
 *
 * Parameters:
 *   PE_L, PE_P        lanes of a block; columns of a panel, a multiple of PE_L and of 16
 *   PE_K, PE_DEPTH    steps, and groups of 4 of them
 *   PE_N, PE_PANELS   columns, and panels of them
 *   PE_B_TRANSPOSED   0: B has rows of PE_N columns
 *                     1: B has PE_TAPS matrices of PE_N rows; a row has PE_TAP_STEPS steps of a
 *                     tap, which takes PE_TAP_BYTES, a multiple of 4
 *   PE_A_ZERO         zero point of A
 *   PE_THREADS        maximum number of threads that take part
 */

#if !defined(PE_B_TRANSPOSED) || !defined(PE_L) || !defined(PE_TAP_STEPS)
#error "bytes_pack.inc.h needs PE_B_TRANSPOSED, PE_L and PE_TAP_STEPS"
#endif

#include "pe_dot_pack.h"
#include "team.inc.h"

#define PE_LANE(name) PE_JOIN(name, PE_L)
#define PE_ORDER PE_JOIN(PE_DOT_ORDER_, PE_L)
#define PE_SHIFT PE_JOIN(PE_DOT_SHIFT_, PE_L)
#define PE_PANEL_BYTES ((ptrdiff_t)PE_DEPTH * PE_P * 4)

#if PE_L == 32
/* Up to 32 bytes of a row; without a row all are `fill`. */
PE_INLINE HVX_Vector PE_FN(row_part)(const int8_t *row, const int bytes, const int8_t fill) {
    return row ? pe_hvx_load(row, bytes < 32 ? bytes : 32) : Q6_Vb_vsplat_R(fill);
}
#else
/* Up to 16 bytes of a row, 0 after them. */
PE_INLINE pe_vb16 PE_FN(load_row)(const int8_t *row, const ptrdiff_t bytes) {
    pe_vb16 v = {0};
    if (bytes >= 16) {
        memcpy(&v, row, sizeof v);
    } else if (bytes > 8) { /* a single copy would be compiled to byte inserts */
        uint64_t halves[2] = {0};
        memcpy(halves, row, 8);
        memcpy(halves + 1, row + 8, (size_t)bytes - 8);
        memcpy(&v, halves, sizeof v);
    } else {
        memcpy(&v, row, (size_t)bytes);
    }
    return v;
}

/* The same; without a row all are `fill`. */
PE_INLINE pe_vb16 PE_FN(row_bytes)(const int8_t *row, const ptrdiff_t bytes, const int8_t fill) {
    const pe_vb16 none = {0};
    return row ? PE_FN(load_row)(row, bytes) : none + (uint8_t)fill;
}
#endif

#if PE_L == 32
/* The block of group `g` of 32 columns from `n`. */
PE_INLINE void PE_FN(block)(int8_t *to, const int8_t *b, const int g, const int n) {
#if PE_B_TRANSPOSED
    const int tap = 4 * g / PE_TAP_BYTES, step = 4 * g % PE_TAP_BYTES;
    const int8_t *from = b + ((ptrdiff_t)tap * PE_N + n) * PE_TAP_STEPS + step;
    int32_t *word = (int32_t *)(void *)to;
    for (int i = 0; i < 32 && n + i < PE_N; i++, from += PE_TAP_STEPS) {
#if PE_TAP_STEPS % 4
        word[i] = 0;
        memcpy(word + i, from, PE_TAP_STEPS - step < 4 ? PE_TAP_STEPS % 4 : 4);
#else
        memcpy(word + i, __builtin_assume_aligned(from, 4), sizeof *word);
#endif
    }
#else
    HVX_Vector rows[4];
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        const int8_t *row = 4 * g + i < PE_K ? b + (4 * g + i) * (ptrdiff_t)PE_N + n : NULL;
        rows[i] = PE_FN(row_part)(row, PE_N - n, 0);
    }
    *(HVX_UVector *)to = pe_hvx_words(rows);
#endif
}
#elif PE_B_TRANSPOSED
/* The words of group `g` of 16 columns from `n`. */
PE_INLINE void PE_FN(words)(pe_vb16 words[4], const int8_t *b, const int g, const int n) {
    const int tap = 4 * g / PE_TAP_BYTES, step = 4 * g % PE_TAP_BYTES;
    const int8_t *from = b + ((ptrdiff_t)tap * PE_N + n) * PE_TAP_STEPS + step;
    const size_t bytes = PE_TAP_STEPS - step < 4 ? (size_t)(PE_TAP_STEPS - step) : 4;
    pe_vi4 word[4] = {{0}};
    PE_UNROLL
    for (int i = 0; i < 16; i++) {
        int32_t one = 0;
        if (n + i < PE_N && bytes == 4) {
            memcpy(&one, from + (ptrdiff_t)i * PE_TAP_STEPS, sizeof one);
        } else if (n + i < PE_N) {
            memcpy(&one, from + (ptrdiff_t)i * PE_TAP_STEPS, bytes);
        }
        word[i / 4][i % 4] = one;
    }
    memcpy(words, word, sizeof word);
}
#else
PE_INLINE void PE_FN(words)(pe_vb16 words[4], const int8_t *b, const int g, const int n) {
    pe_vb16 rows[4];
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        const int8_t *row = 4 * g + i < PE_K ? b + (4 * g + i) * (ptrdiff_t)PE_N + n : NULL;
        rows[i] = PE_FN(row_bytes)(row, PE_N - n, 0);
    }
    pe_words_of_rows(words, rows);
}
#endif

/* Initial sums of the columns of a panel. */
PE_INLINE void PE_FN(begin)(int32_t *first, const int8_t *panel) {
    const int8_t one = (int8_t)(1 - PE_SHIFT);
    const _Alignas(4) int8_t word[4] = {one, one, one, one};
    const PE_LANE(pe_dot_word) a = PE_LANE(pe_dot_pick)(PE_LANE(pe_dot_load_one)(word), 0);
    for (int j = 0; j < PE_P; j += PE_L) {
        PE_LANE(pe_dot_sums) sum = {0};
        for (int g = 0; g < PE_DEPTH; g++) {
            sum = PE_LANE(pe_dot)(sum, panel + ((ptrdiff_t)g * PE_P + j) * 4, a, 1);
        }
        sum *= -(PE_A_ZERO + PE_SHIFT);
        memcpy(first + j, &sum, sizeof sum);
    }
}

/* Packs the panels; returns to all threads whether a `full` product is needed. */
PE_INLINE int PE_FN(pack)(pe_worker *w, int8_t *panels, int32_t *first, int32_t *found,
                          const int8_t *b) {
    const pe_range share = PE_FN(share)(w, PE_PANELS, 1);
    pe_vb16 least = {0};
    for (ptrdiff_t p = share.begin; p < share.end; p++) {
        int8_t *panel = panels + p * PE_PANEL_BYTES;
        for (int g = 0; g < PE_DEPTH; g++) {
#if PE_L == 32
            PE_FN(block)(panel + g * PE_P * 4, b, g, (int)p * PE_P);
#else
            for (int n = 0; n < PE_P; n += 16) {
                pe_vb16 words[4] = {{0}};
                if (p * PE_P + n < PE_N) {
                    PE_FN(words)(words, b, g, (int)p * PE_P + n);
                }
                if (PE_DOT_CHECKED) {
                    least |= (pe_vb16)((words[0] == 128) | (words[1] == 128) | (words[2] == 128) |
                                       (words[3] == 128));
                }
                pe_put_blocks(panel + ((ptrdiff_t)g * PE_P + n) * 4, words, PE_L, PE_ORDER);
            }
#endif
        }
        PE_FN(begin)(first + p * PE_P, panel);
    }
    int full = 0;
    if (PE_DOT_CHECKED) {
        uint64_t halves[2];
        memcpy(halves, &least, sizeof halves);
        if (w->index < PE_THREADS) {
            found[w->index] = (halves[0] | halves[1]) != 0;
        }
    }
    pe_barrier(w);
    for (int i = 0; PE_DOT_CHECKED && i < w->count && i < PE_THREADS; i++) {
        full |= found[i];
    }
    return full;
}
