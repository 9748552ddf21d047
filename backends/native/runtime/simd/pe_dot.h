/* Dot products of bytes: 4 of a row of A with 4 of each of L columns of B, added to L lanes of i32.
 *
 * B is in blocks of 4 L bytes, 4 steps of L columns, in the order that the CPU multiplies fastest;
 * pe_dot_pack.h writes these blocks. An operand of A is a word of 4 bytes. pe_dot_words takes
 * several adjacent words at a time, as many as the CPU can multiply by in sequence.
 *
 *   PE_DOT_ORDER_<L>    how a block lies: PE_DOT_WORDS column by column, PE_DOT_PAIRS two steps of
 *                       all columns and then the other two, PE_DOT_STEPS step by step
 *   PE_DOT_SHIFT_<L>    what is added to each byte of A before it is multiplied
 *   PE_DOT_CHECKED      1 where -128 in B needs the slower products of `full`: two products of -128
 *                       and -128 overflow i16 if they are summed there
 *   PE_DOT_WIDE_WORDS   1 where a word of A takes two registers
 */
#ifndef PE_DOT_H
#define PE_DOT_H

#include "pe_vec.h"

#define PE_DOT_WORDS 0
#define PE_DOT_PAIRS 1
#define PE_DOT_STEPS 2

#if defined(__AVX2__)
#include <immintrin.h>
#endif

PE_INLINE int32_t pe_word_of(const int8_t *p) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* The sums of one block, one per lane. */
typedef pe_vi4 pe_dot_sums4;
typedef pe_vi8 pe_dot_sums8;
typedef pe_vi16 pe_dot_sums16;

/* Without such instructions: plain C. */
#define PE_PLAIN_DOT(L)                                                                            \
    typedef int32_t pe_dot_word##L;                                                                \
    typedef int32_t pe_dot_words##L;                                                               \
    PE_INLINE pe_dot_words##L pe_dot_load##L(const int8_t *a) { return pe_word_of(a); }            \
    PE_INLINE pe_dot_words##L pe_dot_load_one##L(const int8_t *a) { return pe_word_of(a); }        \
    PE_INLINE pe_dot_word##L pe_dot_pick##L(pe_dot_words##L words, int i) {                        \
        return (void)i, words;                                                                     \
    }                                                                                              \
    PE_INLINE pe_vi##L pe_dot##L(pe_vi##L sum, const int8_t *b, pe_dot_word##L a, int full) {      \
        (void)full;                                                                                \
        PE_UNROLL                                                                                  \
        for (int k = 0; k < 4; k++) {                                                              \
            sum += pe_load_part_sb##L(b + k * L, L) * (int32_t)(int8_t)((uint32_t)a >> (8 * k));   \
        }                                                                                          \
        return sum;                                                                                \
    }

#if PE_NEON
#define PE_DOT_TOGETHER_4 4
#define PE_DOT_SHIFT_4 0
typedef int8x16_t pe_dot_words4;

PE_INLINE pe_dot_words4 pe_dot_load4(const int8_t *a) { return vld1q_s8(a); }

PE_INLINE pe_dot_words4 pe_dot_load_one4(const int8_t *a) {
    return vreinterpretq_s8_s32(vdupq_n_s32(pe_word_of(a)));
}

#if defined(__ARM_FEATURE_DOTPROD)
#define PE_DOT_ORDER_4 PE_DOT_WORDS
#define PE_DOT_CHECKED 0
typedef int8x16_t pe_dot_word4;

PE_INLINE pe_dot_word4 pe_dot_pick4(pe_dot_words4 words, int i) {
    const pe_vi4 v = (pe_vi4)words;
    return (int8x16_t)(pe_vi4){v[i], v[i], v[i], v[i]};
}

PE_INLINE pe_vi4 pe_dot4(pe_vi4 sum, const int8_t *b, pe_dot_word4 a, int full) {
    (void)full;
    return (pe_vi4)vdotq_s32((int32x4_t)sum, vld1q_s8(b), a);
}
#else
/* Two products are summed in i16, and pairs of these in i32. */
#define PE_DOT_ORDER_4 PE_DOT_PAIRS
#define PE_DOT_CHECKED 1
#define PE_DOT_WIDE_WORDS 1
typedef struct {
    int8x16_t first, second; /* steps 0 and 1 interleaved, then steps 2 and 3 */
} pe_dot_word4;

PE_INLINE pe_dot_word4 pe_dot_pick4(pe_dot_words4 words, int i) {
    typedef int16_t pairs __attribute__((vector_size(16)));
    const pairs v = (pairs)words;
    const int16_t x = v[2 * i], y = v[2 * i + 1];
    return (pe_dot_word4){(int8x16_t)(pairs){x, x, x, x, x, x, x, x},
                          (int8x16_t)(pairs){y, y, y, y, y, y, y, y}};
}

PE_INLINE pe_vi4 pe_dot4(pe_vi4 sum, const int8_t *b, pe_dot_word4 a, int full) {
    const int8x16_t steps = vld1q_s8(b);
    const int16x8_t first = vmull_s8(vget_low_s8(steps), vget_low_s8(a.first));
    if (full) {
        const int32x4_t half = vpadalq_s16((int32x4_t)sum, first);
        return (pe_vi4)vpadalq_s16(half, vmull_high_s8(steps, a.second));
    }
    return (pe_vi4)vpadalq_s16((int32x4_t)sum, vmlal_high_s8(first, steps, a.second));
}
#endif
#else
#define PE_DOT_TOGETHER_4 1
#define PE_DOT_SHIFT_4 0
#define PE_DOT_ORDER_4 PE_DOT_STEPS
#define PE_DOT_CHECKED 0
PE_PLAIN_DOT(4)
#endif

#ifndef PE_DOT_WIDE_WORDS
#define PE_DOT_WIDE_WORDS 0
#endif

/* The unsigned-by-signed product takes A as unsigned, with 128 added. */
#define PE_DOT_TOGETHER_8 1
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#define PE_DOT_ORDER_8 PE_DOT_WORDS
#define PE_DOT_SHIFT_8 128
typedef __m256i pe_dot_word8;
typedef __m256i pe_dot_words8;

PE_INLINE pe_dot_words8 pe_dot_load8(const int8_t *a) {
    return _mm256_xor_si256(_mm256_set1_epi32(pe_word_of(a)), _mm256_set1_epi8(-128));
}

PE_INLINE pe_vi8 pe_dot8(pe_vi8 sum, const int8_t *b, pe_dot_word8 a, int full) {
    (void)full;
    const __m256i steps = _mm256_loadu_si256((const __m256i *)b);
#if defined(__AVXVNNI__)
    return (pe_vi8)_mm256_dpbusd_avx_epi32((__m256i)sum, a, steps);
#else
    return (pe_vi8)_mm256_dpbusd_epi32((__m256i)sum, a, steps);
#endif
}
#elif defined(__AVX2__)
/* Pairs of i16 products are exact; those of bytes (vpmaddubsw) saturate. */
#define PE_DOT_ORDER_8 PE_DOT_PAIRS
#define PE_DOT_SHIFT_8 0
typedef __m256i pe_dot_word8;
typedef __m256i pe_dot_words8;

PE_INLINE pe_dot_words8 pe_dot_load8(const int8_t *a) {
    return _mm256_cvtepi8_epi16(_mm_set1_epi32(pe_word_of(a)));
}

PE_INLINE pe_vi8 pe_dot8(pe_vi8 sum, const int8_t *b, pe_dot_word8 a, int full) {
    (void)full;
    const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
    const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b + 1));
    sum += (pe_vi8)_mm256_madd_epi16(first, _mm256_shuffle_epi32(a, 0x00));
    return sum + (pe_vi8)_mm256_madd_epi16(second, _mm256_shuffle_epi32(a, 0x55));
}
#else
#define PE_DOT_ORDER_8 PE_DOT_STEPS
#define PE_DOT_SHIFT_8 0
PE_PLAIN_DOT(8)
#endif

#define PE_DOT_TOGETHER_16 1
#if defined(__AVX512VNNI__)
#define PE_DOT_ORDER_16 PE_DOT_WORDS
#define PE_DOT_SHIFT_16 128
typedef __m512i pe_dot_word16;
typedef __m512i pe_dot_words16;

PE_INLINE pe_dot_words16 pe_dot_load16(const int8_t *a) {
    return _mm512_xor_si512(_mm512_set1_epi32(pe_word_of(a)), _mm512_set1_epi8(-128));
}

PE_INLINE pe_vi16 pe_dot16(pe_vi16 sum, const int8_t *b, pe_dot_word16 a, int full) {
    (void)full;
    return (pe_vi16)_mm512_dpbusd_epi32((__m512i)sum, a, _mm512_loadu_si512(b));
}
#elif defined(__AVX512BW__)
#define PE_DOT_ORDER_16 PE_DOT_PAIRS
#define PE_DOT_SHIFT_16 0
typedef __m512i pe_dot_word16;
typedef __m512i pe_dot_words16;

PE_INLINE pe_dot_words16 pe_dot_load16(const int8_t *a) {
    return _mm512_cvtepi8_epi16(_mm256_set1_epi32(pe_word_of(a)));
}

PE_INLINE pe_vi16 pe_dot16(pe_vi16 sum, const int8_t *b, pe_dot_word16 a, int full) {
    (void)full;
    const __m512i first = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b));
    const __m512i second = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b + 1));
    sum += (pe_vi16)_mm512_madd_epi16(first, _mm512_shuffle_epi32(a, _MM_PERM_AAAA));
    return sum + (pe_vi16)_mm512_madd_epi16(second, _mm512_shuffle_epi32(a, _MM_PERM_BBBB));
}
#else
#define PE_DOT_ORDER_16 PE_DOT_STEPS
#define PE_DOT_SHIFT_16 0
PE_PLAIN_DOT(16)
#endif

#if PE_HVX
#define PE_DOT_TOGETHER_32 1
#define PE_DOT_ORDER_32 PE_DOT_WORDS
#define PE_DOT_SHIFT_32 0
typedef pe_vi32 pe_dot_sums32;
typedef HVX_Vector pe_dot_word32;
typedef int32_t pe_dot_words32;

/* Words are aligned: Hexagon reads unaligned ones byte by byte. */
PE_INLINE pe_dot_words32 pe_dot_load32(const int8_t *a) {
    return pe_word_of((const int8_t *)__builtin_assume_aligned(a, 4));
}

PE_INLINE pe_dot_words32 pe_dot_load_one32(const int8_t *a) { return pe_dot_load32(a); }

PE_INLINE pe_dot_word32 pe_dot_pick32(pe_dot_words32 words, int i) {
    return (void)i, Q6_V_vsplat_R(words);
}

PE_INLINE pe_vi32 pe_dot32(pe_vi32 sum, const int8_t *b, pe_dot_word32 a, int full) {
    (void)full;
    const HVX_Vector steps = *(const HVX_UVector *)b;
    return (pe_vi32)Q6_Vw_vrmpyacc_VwVbVb((HVX_Vector)sum, steps, a);
}
#endif

#if defined(__AVX2__)
PE_INLINE pe_dot_words8 pe_dot_load_one8(const int8_t *a) { return pe_dot_load8(a); }
PE_INLINE pe_dot_word8 pe_dot_pick8(pe_dot_words8 words, int i) { return (void)i, words; }
#endif
#if defined(__AVX512VNNI__) || defined(__AVX512BW__)
PE_INLINE pe_dot_words16 pe_dot_load_one16(const int8_t *a) { return pe_dot_load16(a); }
PE_INLINE pe_dot_word16 pe_dot_pick16(pe_dot_words16 words, int i) { return (void)i, words; }
#endif

#endif
