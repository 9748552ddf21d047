/* Quantization and dequantization on vectors of PE_VL lanes; pe_math.h includes this file once for
 * each width. Results equal compiler/ops/quantized.py bit for bit. Limits are those of the
 * results. */

PE_INLINE pe_vf pe_dequantize(pe_vi q, pe_vf scale, int32_t zero) {
    return pe_mul(pe_to_f(q - zero), scale);
}

#if PE_LANES_APART && PE_VL < 32
PE_INLINE pe_vi pe_narrow_sb(pe_vi x, const int32_t low, const int32_t high, const int32_t zero) {
    PE_UNROLL
    for (int i = 0; i < PE_VL; i++) {
        x[i] = pe_narrow_lane(x[i], low, high, zero);
    }
    return x;
}

PE_INLINE pe_vi pe_quantize(const pe_vf x, const pe_vf scale, const int32_t low, const int32_t high,
                            const int32_t zero) {
    pe_vi y = {0};
    PE_UNROLL
    for (int i = 0; i < PE_VL; i++) {
        y[i] = pe_narrow_lane(pe_nearest_lane(x[i] / scale[i]), low, high, zero);
    }
    return y;
}

#define PE_RESCALE_LANES(name, lane)                                                               \
    PE_INLINE pe_vi name(pe_vi x, const pe_vi multiplier, const pe_vi exponent) {                  \
        PE_UNROLL                                                                                  \
        for (int i = 0; i < PE_VL; i++) {                                                          \
            x[i] = lane(x[i], multiplier[i], exponent[i]);                                         \
        }                                                                                          \
        return x;                                                                                  \
    }
PE_RESCALE_LANES(pe_rescale, pe_rescale_lane)
PE_RESCALE_LANES(pe_rescale_down, pe_rescale_down_lane)
PE_RESCALE_LANES(pe_rescale_once, pe_rescale_once_lane)
PE_RESCALE_LANES(pe_rescale_once_down, pe_rescale_once_down_lane)
#undef PE_RESCALE_LANES
#elif PE_HELIUM
PE_INLINE pe_vi pe_narrow_sb(const pe_vi x, const int32_t low, const int32_t high,
                             const int32_t zero) {
    union {
        pe_vi x;
        int32x4_t quads[PE_VL / 4];
    } u = {.x = x};
    PE_UNROLL
    for (int i = 0; i < PE_VL / 4; i++) {
        u.quads[i] = pe_helium_narrow(u.quads[i], low, high, zero);
    }
    return u.x;
}

/* VCVTN rounds ties to even and saturates; NaN gives 0. */
PE_INLINE pe_vi pe_quantize(const pe_vf x, const pe_vf scale, const int32_t low, const int32_t high,
                            const int32_t zero) {
    union {
        pe_vf x;
        float32x4_t quads[PE_VL / 4];
    } from = {.x = x / scale};
    union {
        pe_vi y;
        int32x4_t quads[PE_VL / 4];
    } to;
    PE_UNROLL
    for (int i = 0; i < PE_VL / 4; i++) {
        to.quads[i] = pe_helium_narrow(vcvtnq_s32_f32(from.quads[i]), low, high, zero);
    }
    return to.y;
}

PE_INLINE pe_vi PE_OF_WIDTH(pe_rescale_quads)(const pe_vi x, const pe_vi multiplier,
                                              const pe_vi exponent, const int down,
                                              const int once) {
    union {
        pe_vi v;
        int32x4_t quads[PE_VL / 4];
    } u = {.v = x}, factor = {.v = multiplier}, power = {.v = exponent};
    PE_UNROLL
    for (int i = 0; i < PE_VL / 4; i++) {
        u.quads[i] = pe_helium_rescale(u.quads[i], factor.quads[i], power.quads[i], down, once);
    }
    return u.v;
}

PE_INLINE pe_vi pe_rescale(const pe_vi x, const pe_vi multiplier, const pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 0, 0);
}

PE_INLINE pe_vi pe_rescale_down(const pe_vi x, const pe_vi multiplier, const pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 1, 0);
}

PE_INLINE pe_vi pe_rescale_once(const pe_vi x, const pe_vi multiplier, const pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 0, 1);
}

PE_INLINE pe_vi pe_rescale_once_down(const pe_vi x, const pe_vi multiplier, const pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 1, 1);
}
#else
/* Clamps numbers to the limits and adds the zero point. */
PE_INLINE pe_vi PE_OF_WIDTH(pe_narrow_any)(pe_vi x, int32_t low, int32_t high, int32_t zero) {
#if PE_VL == 32
    x = (pe_vi)Q6_Vw_vmax_VwVw((HVX_Vector)x, Q6_V_vsplat_R(low - zero));
    return (pe_vi)Q6_Vw_vmin_VwVw((HVX_Vector)x, Q6_V_vsplat_R(high - zero)) + zero;
#else
    const pe_vi least = pe_splat_i(low - zero), most = pe_splat_i(high - zero);
    x = pe_select_i(x < least, least, x);
    return pe_select_i(x > most, most, x) + zero;
#endif
}

#if PE_NEON && PE_VL >= 8
/* The same for the limits of i8 by saturating narrowing: only tighter limits need comparisons.
 * Other limits take the general form. */
PE_INLINE pe_vi pe_narrow_sb(pe_vi x, int32_t low, int32_t high, int32_t zero) {
    if (low < INT8_MIN || high > INT8_MAX) {
        return PE_OF_WIDTH(pe_narrow_any)(x, low, high, zero);
    }
    typedef int8_t bytes __attribute__((vector_size(PE_VL)));
    union {
        pe_vi x;
        int32x4_t quads[PE_VL / 4];
        int8x8_t eights[PE_VL / 8];
        bytes y;
    } u = {.x = x};
    const int16x8_t shift = vdupq_n_s16((int16_t)zero);
    PE_UNROLL
    for (int i = 0; i < PE_VL / 8; i++) {
        const int16x4_t half = vqmovn_s32(u.quads[2 * i]);
        const int16x8_t whole = vqmovn_high_s32(half, u.quads[2 * i + 1]);
        u.eights[i] = vqmovn_s16(vqaddq_s16(whole, shift));
    }
    bytes y = u.y;
    if (low > INT8_MIN) {
        const bytes least = (bytes){0} + (int8_t)low;
        const bytes inside = (bytes)(y > least);
        y = (y & inside) | (least & ~inside);
    }
    if (high < INT8_MAX) {
        const bytes most = (bytes){0} + (int8_t)high;
        const bytes inside = (bytes)(y < most);
        y = (y & inside) | (most & ~inside);
    }
    return __builtin_convertvector(y, pe_vi);
}
#else
PE_INLINE pe_vi pe_narrow_sb(pe_vi x, int32_t low, int32_t high, int32_t zero) {
    return PE_OF_WIDTH(pe_narrow_any)(x, low, high, zero);
}
#endif

#if PE_VL == 32
PE_INLINE pe_vi pe_quantize(pe_vf x, pe_vf scale, const int32_t low, const int32_t high,
                            int32_t zero) {
    const HVX_Vector a = (HVX_Vector)x, b = (HVX_Vector)scale;
    const int bytes = low >= INT8_MIN && high <= INT8_MAX;
    const HVX_Vector y = bytes ? pe_hvx_quotient(a, b) : pe_hvx_quotient_lanes(a, b);
    return pe_narrow_sb((pe_vi)y, low, high, zero);
}
#elif PE_NEON && defined(__aarch64__)
/* FCVTNS rounds ties to even and saturates; NaN gives 0. */
PE_INLINE pe_vi pe_quantize(pe_vf x, pe_vf scale, int32_t low, int32_t high, int32_t zero) {
    union {
        pe_vf x;
        float32x4_t quads[PE_VL / 4];
    } from = {.x = x / scale};
    union {
        pe_vi y;
        int32x4_t quads[PE_VL / 4];
    } to;
    PE_UNROLL
    for (int i = 0; i < PE_VL / 4; i++) {
        to.quads[i] = vcvtnq_s32_f32(from.quads[i]);
    }
    return pe_narrow_sb(to.y, low, high, zero);
}
#else
/* Ties round to even. */
PE_INLINE pe_vi pe_quantize(pe_vf x, pe_vf scale, int32_t low, int32_t high, int32_t zero) {
    return pe_narrow_sb(pe_saturate_i(pe_round(x / scale)), low, high, zero);
}
#endif

#if PE_NEON
/* x multiplier 2^(exponent - 31): the upper half of the doubled product with ties rounded up, then
 * a shift with ties away from zero. For that, the shift rounds up after 1 is subtracted from
 * negative numbers, if it shifts at all; with `down` every lane shifts. With `once` only the shift
 * rounds, ties up, or the product in lanes that do not shift. */
PE_INLINE pe_vi PE_OF_WIDTH(pe_rescale_quads)(pe_vi x, pe_vi multiplier, pe_vi exponent,
                                              const int down, const int once) {
    union {
        pe_vi v;
        int32x4_t quads[PE_VL / 4];
    } u = {.v = x}, factor = {.v = multiplier}, power = {.v = exponent};
    PE_UNROLL
    for (int i = 0; i < PE_VL / 4; i++) {
        const int32x4_t zero = vdupq_n_s32(0), right = vminq_s32(power.quads[i], zero);
        if (down && once) {
            u.quads[i] = vrshlq_s32(vqdmulhq_s32(u.quads[i], factor.quads[i]), power.quads[i]);
            continue;
        }
        if (down) {
            const int32x4_t high = vqrdmulhq_s32(u.quads[i], factor.quads[i]);
            u.quads[i] = vrshlq_s32(vsraq_n_s32(high, high, 31), power.quads[i]);
            continue;
        }
        const int32x4_t shifted = vshlq_s32(u.quads[i], vmaxq_s32(power.quads[i], zero));
        const int32x4_t high = vqrdmulhq_s32(shifted, factor.quads[i]);
        if (once) {
            const int32x4_t exact = vqdmulhq_s32(shifted, factor.quads[i]);
            u.quads[i] = vrshlq_s32(vbslq_s32(vceqq_s32(right, zero), high, exact), right);
            continue;
        }
        u.quads[i] = vrshlq_s32(vsraq_n_s32(high, vandq_s32(high, right), 31), right);
    }
    return u.v;
}

PE_INLINE pe_vi pe_rescale(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 0, 0);
}

PE_INLINE pe_vi pe_rescale_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 1, 0);
}

PE_INLINE pe_vi pe_rescale_once(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 0, 1);
}

PE_INLINE pe_vi pe_rescale_once_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return PE_OF_WIDTH(pe_rescale_quads)(x, multiplier, exponent, 1, 1);
}
#elif PE_VL == 32
PE_INLINE pe_vi pe_rescale(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return (pe_vi)pe_hvx_rescale((HVX_Vector)x, (HVX_Vector)multiplier, (HVX_Vector)exponent, 0, 0);
}

PE_INLINE pe_vi pe_rescale_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return (pe_vi)pe_hvx_rescale((HVX_Vector)x, (HVX_Vector)multiplier, (HVX_Vector)exponent, 1, 0);
}

PE_INLINE pe_vi pe_rescale_once(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return (pe_vi)pe_hvx_rescale((HVX_Vector)x, (HVX_Vector)multiplier, (HVX_Vector)exponent, 0, 1);
}

PE_INLINE pe_vi pe_rescale_once_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return (pe_vi)pe_hvx_rescale((HVX_Vector)x, (HVX_Vector)multiplier, (HVX_Vector)exponent, 1, 1);
}
#else
/* x multiplier 2^(exponent - 31): the upper half of the doubled product with ties rounded up, then
 * a shift with ties away from zero. */
PE_INLINE pe_vi pe_rescale(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    const pe_vi left = pe_select_i(exponent > 0, exponent, exponent - exponent);
    const pe_vi right = left - exponent;
    const pe_vl product = pe_widen(x << left) * pe_widen(multiplier);
    const pe_vi high = pe_narrow((product + (1 << 30)) >> 31);
    const pe_vi mask = (1 << right) - 1;
    const pe_vi threshold = (mask >> 1) - (high < 0);
    return (high >> right) - ((high & mask) > threshold);
}

/* The same for negative exponents. */
PE_INLINE pe_vi pe_rescale_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    return pe_rescale(x, multiplier, exponent);
}

/* The same, rounded once with ties up: in two steps, of which the last bit rounds. */
PE_INLINE pe_vi pe_rescale_once_down(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    const pe_vi high = pe_narrow((pe_widen(x) * pe_widen(multiplier)) >> 31);
    return ((high >> ~exponent) + 1) >> 1;
}

PE_INLINE pe_vi pe_rescale_once(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    const pe_vi left = pe_select_i(exponent > 0, exponent, exponent - exponent);
    const pe_vl product = pe_widen(x << left) * pe_widen(multiplier);
    const pe_vi whole = pe_narrow((product + (1 << 30)) >> 31), exact = pe_narrow(product >> 31);
    const pe_vi right = pe_select_i(exponent < 0, ~exponent, exponent - exponent);
    return pe_select_i(exponent < 0, ((exact >> right) + 1) >> 1, whole);
}
#endif
#endif
