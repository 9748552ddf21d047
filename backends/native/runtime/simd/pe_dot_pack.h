/* Blocks of pe_dot.h from 16 columns of 4 steps: 16 words of 4 bytes, in the CPU's order.
 */
#ifndef PE_DOT_PACK_H
#define PE_DOT_PACK_H

#include "pe_dot.h"

/* The words of 16 columns; `rows` are the 4 steps. */
PE_INLINE void pe_words_of_rows(pe_vb16 words[4], const pe_vb16 rows[4]) {
    typedef uint16_t halves __attribute__((vector_size(16)));
    halves pairs[4]; /* steps 0 and 1 of 8 columns and of the next 8, then steps 2 and 3 */
    PE_UNROLL
    for (int i = 0; i < 4; i += 2) {
        const pe_vb16 a = rows[i], b = rows[i + 1];
        pairs[i] = (halves)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                                   6, 22, 7, 23);
        pairs[i + 1] = (halves)__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                       13, 29, 14, 30, 15, 31);
    }
    PE_UNROLL
    for (int i = 0; i < 2; i++) {
        const halves a = pairs[i], b = pairs[i + 2];
        words[2 * i] = (pe_vb16)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        words[2 * i + 1] = (pe_vb16)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
}

#if PE_HVX
/* The words of 32 columns from vectors of 4 steps. */
PE_INLINE HVX_Vector pe_hvx_words(const HVX_Vector rows[4]) {
    const HVX_Vector first = Q6_V_lo_W(Q6_W_vshuff_VVR(rows[1], rows[0], -1));
    const HVX_Vector second = Q6_V_lo_W(Q6_W_vshuff_VVR(rows[3], rows[2], -1));
    return Q6_V_lo_W(Q6_W_vshuff_VVR(second, first, -2));
}
#endif

/* Stores the words of 16 columns as blocks of `lanes` columns. */
PE_INLINE void pe_put_blocks(int8_t *to, const pe_vb16 words[4], const int lanes, const int order) {
    typedef uint16_t halves __attribute__((vector_size(16)));
    typedef uint64_t longs __attribute__((vector_size(16)));
    if (order == PE_DOT_WORDS) {
        memcpy(to, words, 4 * sizeof *words);
        return;
    }
    if (order == PE_DOT_STEPS) {
        int8_t bytes[64];
        memcpy(bytes, words, sizeof bytes);
        for (int i = 0; i < 64; i++) { /* lanes, then steps, then blocks */
            const int column = i / (4 * lanes) * lanes + i % lanes;
            to[i] = bytes[column * 4 + i / lanes % 4];
        }
        return;
    }
    halves first[2], second[2]; /* the two steps of 8 columns and of the next 8 */
    PE_UNROLL
    for (int i = 0; i < 2; i++) {
        const halves a = (halves)words[2 * i], b = (halves)words[2 * i + 1];
        first[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
        second[i] = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    }
    PE_UNROLL
    for (int i = 0; i < 2; i++) {
        const longs a = (longs)first[i], b = (longs)second[i];
        const longs low = {a[0], b[0]}, high = {a[1], b[1]};
        const int at = lanes == 16 ? 16 * i : 32 * i, apart = lanes == 16 ? 32 : 16;
        memcpy(to + at, lanes == 4 ? (const void *)&low : &a, sizeof low);
        memcpy(to + at + apart, lanes == 4 ? (const void *)&high : &b, sizeof high);
    }
}

#endif
