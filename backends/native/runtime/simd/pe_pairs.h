/* Pairs of 16-bit numbers in a word: the DSP extension of Arm's microcontrollers, with portable
 * equivalents.
 *
 * Four bytes in memory order are two pairs, (0, 2) and (1, 3), so that one instruction widens each.
 */
#ifndef PE_PAIRS_H
#define PE_PAIRS_H

#include <stdint.h>
#include <string.h>

#include "pe_vec.h"

#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#define PE_DSP 1
#else
#define PE_DSP 0
#endif

typedef uint32_t pe_pair;

/* The pair (x, x). */
PE_INLINE pe_pair pe_twice(const int x) { return (uint16_t)x * 0x10001u; }

PE_INLINE uint32_t pe_load_bytes(const int8_t *p, const int count) {
    uint32_t word = 0;
    memcpy(&word, p, (size_t)count);
    return word;
}

#if PE_DSP
/* Bytes 0 and 2, or 1 and 3, each plus its summand. */
PE_INLINE pe_pair pe_even_bytes(const uint32_t bytes, const pe_pair summands) {
    return (pe_pair)__sxtab16((int16x2_t)summands, (int8x4_t)bytes);
}

PE_INLINE pe_pair pe_odd_bytes(const uint32_t bytes, const pe_pair summands) {
    return (pe_pair)__sxtab16((int16x2_t)summands, (int8x4_t)__ror(bytes, 8));
}

/* sum + a0 b0 + a1 b1 */
PE_INLINE int32_t pe_add_products(const pe_pair a, const pe_pair b, const int32_t sum) {
    return __smlad((int16x2_t)a, (int16x2_t)b, sum);
}

/* sum + the product of one half of both. */
PE_INLINE int32_t pe_add_lower(const pe_pair a, const pe_pair b, const int32_t sum) {
    return __smlabb((int32_t)a, (int32_t)b, sum);
}

PE_INLINE int32_t pe_add_upper(const pe_pair a, const pe_pair b, const int32_t sum) {
    return __smlatt((int32_t)a, (int32_t)b, sum);
}
#else
PE_INLINE int32_t pe_lower(const pe_pair a) { return (int16_t)(a & 0xFFFFu); }

PE_INLINE int32_t pe_upper(const pe_pair a) { return (int16_t)(a >> 16); }

PE_INLINE pe_pair pe_even_bytes(const uint32_t bytes, const pe_pair summands) {
    const int32_t low = (int8_t)(bytes & 255u) + pe_lower(summands);
    const int32_t high = (int8_t)(bytes >> 16 & 255u) + pe_upper(summands);
    return (uint16_t)low | (uint32_t)(uint16_t)high << 16;
}

PE_INLINE pe_pair pe_odd_bytes(const uint32_t bytes, const pe_pair summands) {
    return pe_even_bytes(bytes >> 8, summands);
}

PE_INLINE int32_t pe_add_lower(const pe_pair a, const pe_pair b, const int32_t sum) {
    return sum + pe_lower(a) * pe_lower(b);
}

PE_INLINE int32_t pe_add_upper(const pe_pair a, const pe_pair b, const int32_t sum) {
    return sum + pe_upper(a) * pe_upper(b);
}

PE_INLINE int32_t pe_add_products(const pe_pair a, const pe_pair b, const int32_t sum) {
    return pe_add_upper(a, b, pe_add_lower(a, b, sum));
}
#endif

/* The lower halves of two pairs, and the upper ones. */
PE_INLINE pe_pair pe_join_lower(const pe_pair a, const pe_pair b) {
    return (a & 0xFFFFu) | b << 16;
}

PE_INLINE pe_pair pe_join_upper(const pe_pair a, const pe_pair b) {
    return a >> 16 | (b & 0xFFFF0000u);
}

/* Adds the products of four bytes at `a`, each plus a summand, with the eight pairs at `packed`, to
 * four sums. Inline assembly, because compilers spill registers here.
 */
PE_INLINE pe_vi4 pe_add_word(pe_vi4 sum, const int8_t *a, const pe_pair summands,
                             const pe_pair *packed) {
#if PE_DSP
    int32_t s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3];
    uint32_t bytes, pair, first, second;
    __asm__("ldr %[bytes], [%[a]]\n\t"
            "ldrd %[first], %[second], [%[packed]]\n\t"
            "sxtab16 %[pair], %[summands], %[bytes]\n\t"
            "smlad %[s0], %[pair], %[first], %[s0]\n\t"
            "smlad %[s1], %[pair], %[second], %[s1]\n\t"
            "ldrd %[first], %[second], [%[packed], #8]\n\t"
            "smlad %[s2], %[pair], %[first], %[s2]\n\t"
            "smlad %[s3], %[pair], %[second], %[s3]\n\t"
            "ldrd %[first], %[second], [%[packed], #16]\n\t"
            "sxtab16 %[pair], %[summands], %[bytes], ror #8\n\t"
            "smlad %[s0], %[pair], %[first], %[s0]\n\t"
            "smlad %[s1], %[pair], %[second], %[s1]\n\t"
            "ldrd %[first], %[second], [%[packed], #24]\n\t"
            "smlad %[s2], %[pair], %[first], %[s2]\n\t"
            "smlad %[s3], %[pair], %[second], %[s3]"
            : [s0] "+&r"(s0), [s1] "+&r"(s1), [s2] "+&r"(s2), [s3] "+&r"(s3), [bytes] "=&r"(bytes),
              [pair] "=&r"(pair), [first] "=&r"(first), [second] "=&r"(second)
            : [a] "r"(a), [packed] "r"(packed), [summands] "r"(summands)
            : "memory");
    return (pe_vi4){s0, s1, s2, s3};
#else
    const uint32_t bytes = pe_load_bytes(a, 4);
    const pe_pair even = pe_even_bytes(bytes, summands), odd = pe_odd_bytes(bytes, summands);
    for (int i = 0; i < 4; i++) {
        sum[i] = pe_add_products(odd, packed[4 + i], pe_add_products(even, packed[i], sum[i]));
    }
    return sum;
#endif
}

#endif
