/* Masks of 0 and 1 bytes to bits and back: 32 channels per word, each row of channels separately.
 *
 * Eight bytes are handled at once: a multiplication gathers, or spreads, one bit of each. Bit b of
 * word w is channel 32 w + b; little-endian, as every supported device is.
 */
#ifndef PE_MASK_H
#define PE_MASK_H

#include <stdint.h>
#include <string.h>

#include "pe_worker.h"

enum { PE_MASK_WORD = 32 };

/* The first n <= 8 bytes of a mask as the low n bits. */
static inline uint32_t pe_gather_bits(const uint8_t *mask, long n) {
    uint64_t bytes = 0;
    memcpy(&bytes, mask, (size_t)n);
    return (uint32_t)((bytes * 0x0102040810204080ULL) >> 56);
}

/* The low n <= 8 bits as n bytes. */
static inline void pe_spread_bits(uint32_t bits, uint8_t *mask, long n) {
    uint64_t chosen = ((uint64_t)(bits & 0xffU) * 0x0101010101010101ULL) & 0x8040201008040201ULL;
    uint64_t bytes = ((chosen + 0x7f7f7f7f7f7f7f7fULL) >> 7) & 0x0101010101010101ULL;
    memcpy(mask, &bytes, (size_t)n);
}

#if defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
/* Unpacks the whole words of a row of bits; returns the number of channels written. */
static inline long pe_spread_words(const int32_t *bits, uint8_t *mask, long channels) {
    const uint8x16_t place = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ULL));
    long first = 0;
    for (; first + PE_MASK_WORD <= channels; first += PE_MASK_WORD) {
        const uint8x16_t word = vreinterpretq_u8_s32(vdupq_n_s32(bits[first / PE_MASK_WORD]));
        const uint8x16_t low = vtstq_u8(vqtbl1q_u8(word, place), bit);
        const uint8x16_t high = vtstq_u8(vqtbl1q_u8(word, vaddq_u8(place, vdupq_n_u8(2))), bit);
        vst1q_u8(mask + first, vshrq_n_u8(low, 7));
        vst1q_u8(mask + first + 16, vshrq_n_u8(high, 7));
    }
    return first;
}
#else
static inline long pe_spread_words(const int32_t *bits, uint8_t *mask, long channels) {
    (void)bits, (void)mask, (void)channels;
    return 0;
}
#endif

static inline void pe_pack_mask(const pe_worker *w, const uint8_t *mask, int32_t *bits, long rows,
                                long channels) {
    long words = (channels + PE_MASK_WORD - 1) / PE_MASK_WORD;
    long end = rows * (w->index + 1) / w->count;
    for (long row = rows * w->index / w->count; row < end; row++) {
        for (long word = 0; word < words; word++) {
            uint32_t packed = 0;
            for (long part = 0; part < 4; part++) {
                long first = word * PE_MASK_WORD + part * 8, left = channels - first;
                const uint8_t *bytes = mask + row * channels + first;
                if (left >= 8)
                    packed |= pe_gather_bits(bytes, 8) << (8 * part);
                else if (left > 0)
                    packed |= pe_gather_bits(bytes, left) << (8 * part);
            }
            memcpy(bits + row * words + word, &packed, sizeof packed);
        }
    }
}

static inline void pe_unpack_mask(const pe_worker *w, const int32_t *bits, uint8_t *mask, long rows,
                                  long channels) {
    long words = (channels + PE_MASK_WORD - 1) / PE_MASK_WORD;
    long end = rows * (w->index + 1) / w->count;
    for (long row = rows * w->index / w->count; row < end; row++) {
        long first = pe_spread_words(bits + row * words, mask + row * channels, channels);
        for (; first < channels; first += 8) {
            uint32_t word = (uint32_t)bits[row * words + first / PE_MASK_WORD];
            long left = channels - first;
            uint8_t *bytes = mask + row * channels + first;
            if (left >= 8)
                pe_spread_bits(word >> (first % PE_MASK_WORD), bytes, 8);
            else
                pe_spread_bits(word >> (first % PE_MASK_WORD), bytes, left);
        }
    }
}

#endif
