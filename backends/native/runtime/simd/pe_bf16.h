/* bfloat16 products: pairs of bf16 numbers in 32 bits, multiplied and summed in f32.
 *
 * A matrix of pairs has half the steps of its f32 original: the pair at step k has the elements of
 * steps 2 k (low half) and 2 k + 1 (high half), or zero past the end. Pairs are stored in float
 * memory and moved as floats; only pe_dot_pairs computes with them. Rounding is to nearest even;
 * NaN stays NaN.
 */
#ifndef PE_BF16_H
#define PE_BF16_H

#include <stddef.h>

#include "pe_vec.h"

#if defined(__AVX512BF16__) && defined(__AVX512VL__) && !defined(__SANITIZE_ADDRESS__)
#include <immintrin.h>
#define PE_BF16_NATIVE 1
#else
#define PE_BF16_NATIVE 0
#endif

/* The bits of the number rounded to bf16, in the high half of the lane. */
PE_INLINE pe_vi16 pe_rounded_bits(const pe_vf16 v) { return (pe_vi16)pe_round_bf16(v); }

#if PE_BF16_NATIVE
/* The rounding instruction flushes numbers below 2^-126 to zero, as the products do.
 */
PE_INLINE pe_vi16 pe_neighbor_pairs(const pe_vf16 first, const pe_vf16 second) {
    return (pe_vi16)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

PE_INLINE pe_vi16 pe_step_pairs(const pe_vf16 low, const pe_vf16 high) {
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    const pe_vi16 first = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (pe_vi16)_mm512_permutexvar_epi16((__m512i)(first | ((first + 16) << 16)), halves);
}
#else
/* Each lane is a pair of two steps. */
PE_INLINE pe_vi16 pe_step_pairs(const pe_vf16 low, const pe_vf16 high) {
    return ((pe_rounded_bits(low) >> 16) & 0xffff) | pe_rounded_bits(high);
}

/* Pairs of neighbors of 32 contiguous numbers. */
PE_INLINE pe_vi16 pe_neighbor_pairs(const pe_vf16 first, const pe_vf16 second) {
    typedef short halves __attribute__((vector_size(64), aligned(4)));
    const pe_vi16 a = pe_rounded_bits(first), b = pe_rounded_bits(second);
    halves x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    const halves pairs =
        __builtin_shufflevector(x, y, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33,
                                35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
    pe_vi16 words;
    memcpy(&words, &pairs, sizeof words);
    return words;
}
#endif

/* Pairs of two rows, element by element; `second` is NULL if the last step has no partner. */
PE_INLINE void pe_pair_rows(float *to, const float *first, const float *second, const ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i += 16) {
        const int lanes = n - i < 16 ? (int)(n - i) : 16;
        const pe_vf16 low = pe_load_part16(first + i, lanes);
        const pe_vf16 high = second ? pe_load_part16(second + i, lanes) : pe_zero16();
        pe_store_part_i16((int32_t *)to + i, pe_step_pairs(low, high), lanes);
    }
}

/* Pairs of neighbors in one row of n elements. */
PE_INLINE void pe_pair_neighbors(float *to, const float *from, const ptrdiff_t n) {
    ptrdiff_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const pe_vi16 pairs = pe_neighbor_pairs(pe_load16(from + i), pe_load16(from + i + 16));
        pe_store_i16((int32_t *)to + i / 2, pairs);
    }
    for (; i < n; i += 2) {
        const pe_vf16 low = pe_load_part16(from + i, 1);
        const pe_vf16 high = i + 1 < n ? pe_load_part16(from + i + 1, 1) : pe_zero16();
        pe_store_part_i16((int32_t *)to + i / 2, pe_step_pairs(low, high), 1);
    }
}

#if PE_BF16_NATIVE
PE_INLINE pe_vf16 pe_dot_pairs16(const pe_vf16 sum, const pe_vf16 pairs, const float pair) {
    const __m512 splat = _mm512_set1_ps(pair);
    return (pe_vf16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512)pairs, (__m512bh)splat);
}

PE_INLINE pe_vf8 pe_dot_pairs8(const pe_vf8 sum, const pe_vf8 pairs, const float pair) {
    const __m256 splat = _mm256_set1_ps(pair);
    return (pe_vf8)_mm256_dpbf16_ps((__m256)sum, (__m256bh)(__m256)pairs, (__m256bh)splat);
}
#else
#define PE_DOT_PAIRS(LANES)                                                                        \
    PE_INLINE pe_vf##LANES pe_dot_pairs##LANES(const pe_vf##LANES sum, const pe_vf##LANES pairs,   \
                                               const float pair) {                                 \
        const pe_vf##LANES splat = pe_splat##LANES(pair);                                          \
        pe_vi##LANES bits, others;                                                                 \
        memcpy(&bits, &pairs, sizeof bits);                                                        \
        memcpy(&others, &splat, sizeof others);                                                    \
        const pe_vi##LANES low = bits << 16, high = bits & (int32_t)0xffff0000;                    \
        const pe_vi##LANES lower = others << 16, upper = others & (int32_t)0xffff0000;             \
        pe_vf##LANES a, b, x, y;                                                                   \
        memcpy(&a, &low, sizeof a);                                                                \
        memcpy(&b, &high, sizeof b);                                                               \
        memcpy(&x, &lower, sizeof x);                                                              \
        memcpy(&y, &upper, sizeof y);                                                              \
        return sum + a * x + b * y;                                                                \
    }
PE_DOT_PAIRS(8)
PE_DOT_PAIRS(16)
#endif

#define pe_dot_pairs PE_OF_WIDTH(pe_dot_pairs)

#endif
