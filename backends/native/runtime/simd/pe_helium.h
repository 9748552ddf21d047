/* Helium (MVE), the 16-byte vectors of Arm's microcontrollers, with portable equivalents: products
 * of bytes summed in i32, and rounding and clamping.
 *
 * A block is 16 bytes; the product of two blocks adds 16 products to one sum. Products of halves
 * are of 8 i16 numbers; even and odd lanes have separate sums.
 */
#ifndef PE_HELIUM_H
#define PE_HELIUM_H

#include <stddef.h>

#include "pe_vec.h"

#define PE_BLOCK_BYTES 16

typedef struct pe_halves_sums {
    pe_vi4 even, odd;
} pe_halves_sums;

#if PE_HELIUM
typedef int8x16_t pe_block;
typedef int16x8_t pe_halves;

/* Loads the first n bytes, then zeros. */
PE_INLINE pe_block pe_load_block(const int8_t *p, const int n) {
    return n < PE_BLOCK_BYTES ? vld1q_z_s8(p, vctp8q((uint32_t)n)) : vld1q_s8(p);
}

PE_INLINE void pe_store_block(int8_t *p, const pe_block v) { vst1q_s8(p, v); }

PE_INLINE int32_t pe_add_block(const int32_t sum, const pe_block a, const pe_block b) {
    return vmladavaq_s8(sum, a, b);
}

PE_INLINE int32_t pe_add_bytes(const int32_t sum, const pe_block a) { return vaddvaq_s8(sum, a); }

/* Stores the four columns of 16 rows of four bytes, `apart` bytes apart. */
PE_INLINE void pe_store_columns(int8_t *to, const ptrdiff_t apart, const uint32_t rows[16]) {
    const int8x16x4_t columns = vld4q_s8((const int8_t *)rows);
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        vst1q_s8(to + i * apart, columns.val[i]);
    }
}

/* Loads and widens the first n of 8 bytes, then zeros. */
PE_INLINE pe_halves pe_load_halves(const int8_t *p, const int n) {
    return n < 8 ? vldrbq_z_s16(p, vctp16q((uint32_t)n)) : vldrbq_s16(p);
}

PE_INLINE pe_halves_sums pe_add_halves(pe_halves_sums sums, const pe_halves a, const pe_halves b) {
    sums.even += (pe_vi4)vmullbq_int_s16(a, b);
    sums.odd += (pe_vi4)vmulltq_int_s16(a, b);
    return sums;
}

/* The sums in the order of the lanes. */
PE_INLINE void pe_order_sums(int32_t to[8], const pe_halves_sums sums) {
    vst2q_s32(to, (int32x4x2_t){{(int32x4_t)sums.even, (int32x4_t)sums.odd}});
}

/* Clamps numbers to the limits and adds the zero point. The limits of i8 are applied by saturating
 * narrowing, which needs no vectors of limits. */
PE_INLINE int32x4_t pe_helium_narrow(int32x4_t x, const int32_t low, const int32_t high,
                                     const int32_t zero) {
    if (low == INT8_MIN && high == INT8_MAX) {
        x = vqaddq_n_s32(x, zero);
        const int16x8_t halves = vqmovnbq_s32(vreinterpretq_s16_s32(x), x);
        const int8x16_t bytes = vqmovnbq_s16(vreinterpretq_s8_s16(halves), halves);
        return vmovlbq_s16(vmovlbq_s8(bytes));
    }
    x = vmaxq_s32(x, vdupq_n_s32(low - zero));
    return vaddq_n_s32(vminq_s32(x, vdupq_n_s32(high - zero)), zero);
}

/* x multiplier 2^(exponent - 31): the upper half of the doubled product with ties rounded up, then
 * a shift with ties away from zero. For that, the shift rounds up after 1 is subtracted from
 * negative numbers, if it shifts at all; with `down` every lane shifts. With `once` only the shift
 * rounds, ties up, or the product in lanes that do not shift. */
PE_INLINE int32x4_t pe_helium_rescale(int32x4_t x, const int32x4_t multiplier,
                                      const int32x4_t exponent, const int down, const int once) {
    int32x4_t right = exponent;
    if (!down) {
        right = vminq_s32(exponent, vdupq_n_s32(0));
        x = vshlq_s32(x, vmaxq_s32(exponent, vdupq_n_s32(0)));
    }
    if (once) {
        int32x4_t exact = vqdmulhq_s32(x, multiplier);
        if (!down) {
            exact = vqrdmulhq_m_s32(exact, x, multiplier, vcmpeqq_n_s32(right, 0));
        }
        return vrshlq_s32(exact, right);
    }
    const int32x4_t high = vqrdmulhq_s32(x, multiplier);
    const int32x4_t sign = vshrq_n_s32(down ? high : vandq_s32(high, right), 31);
    return vrshlq_s32(vaddq_s32(high, sign), right);
}
#else
typedef pe_vc16 pe_block;
typedef int16_t pe_halves __attribute__((vector_size(16)));

PE_INLINE pe_block pe_load_block(const int8_t *p, const int n) {
    pe_block v = {0};
    memcpy(&v, p, (size_t)n);
    return v;
}

PE_INLINE void pe_store_block(int8_t *p, const pe_block v) { memcpy(p, &v, sizeof v); }

PE_INLINE int32_t pe_add_block(int32_t sum, const pe_block a, const pe_block b) {
    for (int i = 0; i < PE_BLOCK_BYTES; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

PE_INLINE int32_t pe_add_bytes(int32_t sum, const pe_block a) {
    for (int i = 0; i < PE_BLOCK_BYTES; i++) {
        sum += a[i];
    }
    return sum;
}

PE_INLINE void pe_store_columns(int8_t *to, const ptrdiff_t apart, const uint32_t rows[16]) {
    const int8_t *bytes = (const int8_t *)rows;
    for (int i = 0; i < 64; i++) {
        to[i % 4 * apart + i / 4] = bytes[i];
    }
}

PE_INLINE pe_halves pe_load_halves(const int8_t *p, const int n) {
    pe_halves v = {0};
    for (int i = 0; i < n; i++) {
        v[i] = p[i];
    }
    return v;
}

PE_INLINE pe_halves_sums pe_add_halves(pe_halves_sums sums, const pe_halves a, const pe_halves b) {
    for (int i = 0; i < 4; i++) {
        sums.even[i] += a[2 * i] * b[2 * i];
        sums.odd[i] += a[2 * i + 1] * b[2 * i + 1];
    }
    return sums;
}

PE_INLINE void pe_order_sums(int32_t to[8], const pe_halves_sums sums) {
    for (int i = 0; i < 8; i++) {
        to[i] = i % 2 ? sums.odd[i / 2] : sums.even[i / 2];
    }
}
#endif

/* Transposes `depth` rows of up to four bytes, `pitch` apart, into blocks of columns. `column` and
 * `block` are the distances between them in the result; missing bytes are 0. */
PE_INLINE void pe_turn_rows(int8_t *to, const ptrdiff_t column, const ptrdiff_t block,
                            const int8_t *from, const ptrdiff_t pitch, const int depth,
                            const int lanes) {
    for (int k = 0; k < depth; k += PE_BLOCK_BYTES, to += block) {
        uint32_t rows[PE_BLOCK_BYTES] = {0};
        const int count = depth - k < PE_BLOCK_BYTES ? depth - k : PE_BLOCK_BYTES;
        for (int i = 0; i < count; i++, from += pitch) {
            memcpy(&rows[i], from, (size_t)lanes);
        }
        pe_store_columns(to, column, rows);
    }
}

#endif
