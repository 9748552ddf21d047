/* Arithmetic on 32 floats with HVX's integer instructions: v66 has no vector float arithmetic, and
 * the scalar unit takes several packets per number. A vector of floats is stored as bits in lanes
 * of i32.
 *
 * Products and quotients use 31-bit mantissas. They equal IEEE's bit for bit: if a lane cannot be
 * decided this way (subnormals, infinities, NaN, quotients close to a tie), the scalar unit
 * computes the whole vector. That costs some hundred packets and is rare in training.
 */
#ifndef PE_HVX_FLOATS_H
#define PE_HVX_FLOATS_H

#include "pe_hvx.h"

#if PE_HVX
enum { PE_HVX_SMALL = 0x00800000, PE_HVX_INFINITE = 0x7f800000 };

/* Whether any lane is set. */
PE_INLINE int pe_hvx_any(HVX_VectorPred q) { return Q6_R_vextract_VR(Q6_Vw_prefixsum_Q(q), 124); }

/* The mantissa of a normal number as Q31 in [0.5, 1). */
PE_INLINE HVX_Vector pe_hvx_mantissa(HVX_Vector x) {
    const HVX_Vector bits = Q6_V_vand_VV(Q6_Vw_vasl_VwR(x, 7), Q6_V_vsplat_R(0x3fffffff));
    return Q6_V_vor_VV(bits, Q6_V_vsplat_R(0x40000000));
}

/* a b 2^-31, rounded. */
PE_INLINE HVX_Vector pe_hvx_fraction(HVX_Vector a, HVX_Vector b) {
    return Q6_Vw_vmpyoacc_VwVwVh_s1_rnd_sat_shift(Q6_Vw_vmpye_VwVuh(a, b), a, b);
}

/* Integers to floats, halves to even. */
PE_INLINE HVX_Vector pe_hvx_to_f(HVX_Vector x) {
    const HVX_Vector size = Q6_Vw_vabs_Vw_sat(x), shift = Q6_Vw_vnormamt_Vw(size);
    const HVX_Vector high = Q6_Vw_vasl_VwVw(size, shift); /* in [2^30, 2^31) */
    const HVX_Vector even = Q6_V_vand_VV(Q6_Vw_vasr_VwR(high, 7), Q6_V_vsplat_R(1));
    const HVX_Vector up = Q6_Vw_vadd_VwVw(even, Q6_V_vsplat_R(63));
    const HVX_Vector mantissa = Q6_Vuw_vlsr_VuwR(Q6_Vw_vadd_VwVw(high, up), 7);
    const HVX_Vector power = Q6_Vw_vsub_VwVw(Q6_V_vsplat_R(127 + 29), shift);
    const HVX_Vector y = Q6_Vw_vadd_VwVw(Q6_Vw_vasl_VwR(power, 23), mantissa);
    const HVX_Vector sign = Q6_V_vand_VV(x, Q6_V_vsplat_R(INT32_MIN));
    return Q6_V_vmux_QVV(Q6_Q_vcmp_eq_VwVw(x, Q6_V_vzero()), x, Q6_V_vor_VV(y, sign));
}

static __attribute__((noinline, unused)) HVX_Vector pe_hvx_mul_lanes(HVX_Vector a, HVX_Vector b) {
    union {
        HVX_Vector v;
        float x[32];
    } u = {.v = a}, factor = {.v = b};
    _Pragma("clang loop unroll(disable) vectorize(disable)") for (int i = 0; i < 32; i++) {
        u.x[i] *= factor.x[i];
    }
    return u.v;
}

/* Lanes that are neither 0 nor normal. */
PE_INLINE HVX_VectorPred pe_hvx_odd(HVX_Vector size, HVX_VectorPred zero) {
    const HVX_Vector above = Q6_Vw_vsub_VwVw(size, Q6_V_vsplat_R(PE_HVX_SMALL));
    const HVX_Vector most = Q6_V_vsplat_R(PE_HVX_INFINITE - PE_HVX_SMALL - 1);
    return Q6_Q_and_QQn(Q6_Q_vcmp_gt_VuwVuw(above, most), zero);
}

PE_INLINE HVX_Vector pe_hvx_mul(HVX_Vector a, HVX_Vector b) {
    const HVX_Vector none = Q6_V_vzero(), one = Q6_V_vsplat_R(1), all = Q6_V_vsplat_R(INT32_MAX);
    const HVX_Vector p = Q6_V_vand_VV(a, all), q = Q6_V_vand_VV(b, all);
    const HVX_Vector f = pe_hvx_mantissa(a), g = pe_hvx_mantissa(b);
    const HVX_VectorPair whole = Q6_W_vmpyoacc_WVwVh(Q6_W_vmpye_VwVuh(f, g), f, g);
    HVX_Vector high = Q6_V_hi_W(whole); /* in [2^28, 2^30); its last bit is sticky */
    high = Q6_V_vmux_QVV(Q6_Q_vcmp_eq_VwVw(Q6_V_lo_W(whole), none), high, Q6_V_vor_VV(high, one));
    const HVX_VectorPred two = Q6_Q_vcmp_gt_VwVw(high, Q6_V_vsplat_R((1 << 29) - 1));
    high = Q6_V_vmux_QVV(two, high, Q6_Vw_vadd_VwVw(high, high));
    const HVX_Vector even = Q6_V_vand_VV(Q6_Vw_vasr_VwR(high, 6), one);
    high = Q6_Vw_vadd_VwVw(high, Q6_Vw_vadd_VwVw(even, Q6_V_vsplat_R(31)));
    const HVX_Vector powers = Q6_Vw_vadd_VwVw(Q6_Vw_vasr_VwR(p, 23), Q6_Vw_vasr_VwR(q, 23));
    const HVX_Vector power = Q6_Vw_vsub_VwVw(
        powers, Q6_V_vmux_QVV(two, Q6_V_vsplat_R(127), Q6_V_vsplat_R(128))); /* less 1 */
    HVX_Vector y = Q6_Vw_vadd_VwVw(Q6_Vw_vasl_VwR(power, 23), Q6_Vw_vasr_VwR(high, 6));
    const HVX_VectorPred no_a = Q6_Q_vcmp_eq_VwVw(p, none), no_b = Q6_Q_vcmp_eq_VwVw(q, none);
    const HVX_VectorPred zero = Q6_Q_or_QQ(no_a, no_b);
    const HVX_VectorPred far = Q6_Q_and_QQn(Q6_Q_vcmp_gt_VuwVuw(power, Q6_V_vsplat_R(252)), zero);
    const HVX_VectorPred odd = Q6_Q_or_QQ(pe_hvx_odd(p, no_a), pe_hvx_odd(q, no_b));
    if (__builtin_expect(pe_hvx_any(Q6_Q_or_QQ(far, odd)), 0)) {
        return pe_hvx_mul_lanes(a, b);
    }
    y = Q6_V_vmux_QVV(zero, none, y);
    return Q6_V_vor_VV(y, Q6_V_vand_VV(Q6_V_vxor_VV(a, b), Q6_V_vsplat_R(INT32_MIN)));
}

/* The larger; NaN if either is. */
PE_INLINE HVX_Vector pe_hvx_maximum(HVX_Vector a, HVX_Vector b) {
    const HVX_Vector all = Q6_V_vsplat_R(INT32_MAX), infinite = Q6_V_vsplat_R(PE_HVX_INFINITE);
    const HVX_Vector p = Q6_V_vand_VV(a, all), q = Q6_V_vand_VV(b, all);
    const HVX_Vector order_a = Q6_V_vxor_VV(a, Q6_V_vand_VV(Q6_Vw_vasr_VwR(a, 31), all));
    const HVX_Vector order_b = Q6_V_vxor_VV(b, Q6_V_vand_VV(Q6_Vw_vasr_VwR(b, 31), all));
    HVX_VectorPred first = Q6_Q_vcmp_gt_VwVw(order_a, order_b);
    first = Q6_Q_and_QQn(first, Q6_Q_vcmp_gt_VwVw(q, infinite));
    return Q6_V_vmux_QVV(Q6_Q_or_QQ(first, Q6_Q_vcmp_gt_VwVw(p, infinite)), a, b);
}

/* 1 / x of a mantissa, in Q29: Newton steps from a linear approximation with an error of at most
 * 1/17. */
PE_INLINE HVX_Vector pe_hvx_reciprocal(HVX_Vector x) {
    const HVX_Vector slope = Q6_V_vsplat_R(1010580540), one = Q6_V_vsplat_R(1 << 29);
    HVX_Vector y = Q6_Vw_vsub_VwVw(Q6_V_vsplat_R(1515870810), pe_hvx_fraction(x, slope));
    PE_UNROLL
    for (int i = 0; i < 3; i++) {
        const HVX_Vector off = Q6_Vw_vsub_VwVw(one, pe_hvx_fraction(x, y));
        y = Q6_Vw_vadd_VwVw(y, pe_hvx_fraction(y, Q6_Vw_vasl_VwR(off, 2)));
    }
    return y;
}

static __attribute__((noinline, unused)) HVX_Vector pe_hvx_quotient_lanes(HVX_Vector x,
                                                                          HVX_Vector scale) {
    union {
        HVX_Vector v;
        float x[32];
        int32_t y[32];
    } u = {.v = x}, by = {.v = scale};
    _Pragma("clang loop unroll(disable) vectorize(disable)") for (int i = 0; i < 32; i++) {
        const float quotient = u.x[i] / by.x[i];
        const int32_t nearest = __builtin_HEXAGON_F2_conv_sf2w(quotient);
        u.y[i] = quotient == quotient ? nearest : 0;
    }
    return u.v;
}

/* Rounds x / scale, first to f32, then to the nearest integer. Results from -255 to 255 are exact;
 * others are any integer beyond, with the same sign. The quotient of mantissas has a relative error
 * of about 2^-27: a value closer to a tie than this and f32's rounding goes to the scalar unit. */
PE_INLINE HVX_Vector pe_hvx_quotient(HVX_Vector x, HVX_Vector scale) {
    const HVX_Vector one = Q6_V_vsplat_R(1), size = Q6_V_vand_VV(x, Q6_V_vsplat_R(INT32_MAX));
    const HVX_Vector ratio =
        pe_hvx_fraction(pe_hvx_mantissa(x), pe_hvx_reciprocal(pe_hvx_mantissa(scale)));
    /* 28 minus the exponent difference; below 1/4 the result is 0, from 256 on out of range */
    HVX_Vector shift = Q6_Vw_vadd_VwVw(Q6_Vw_vasr_VwR(scale, 23), Q6_V_vsplat_R(28));
    shift = Q6_Vw_vsub_VwVw(shift, Q6_Vw_vasr_VwR(size, 23));
    shift = Q6_Vw_vmin_VwVw(Q6_Vw_vmax_VwVw(shift, Q6_V_vsplat_R(19)), Q6_V_vsplat_R(30));
    HVX_Vector y = Q6_Vw_vadd_VwVw(Q6_Vw_vasr_VwVw(ratio, shift), one);
    y = Q6_Vw_vasr_VwR(y, 1);
    const HVX_Vector rest = Q6_Vw_vasl_VwVw(ratio, Q6_Vw_vsub_VwVw(Q6_V_vsplat_R(31), shift));
    const HVX_Vector near = Q6_Vw_vadd_VwVw(rest, Q6_V_vsplat_R(INT32_MIN + (1 << 18)));
    const HVX_Vector odd = Q6_Vw_vsub_VwVw(scale, Q6_V_vsplat_R(16 << 23));
    HVX_VectorPred open = Q6_Q_vcmp_gt_VuwVuw(Q6_V_vsplat_R(1 << 19), near);
    open = Q6_Q_vcmp_gtor_QVuwVuw(open, odd, Q6_V_vsplat_R(PE_HVX_INFINITE - (16 << 23) - 1));
    open = Q6_Q_vcmp_gtor_QVwVw(open, size, Q6_V_vsplat_R(PE_HVX_INFINITE));
    if (__builtin_expect(pe_hvx_any(open), 0)) {
        return pe_hvx_quotient_lanes(x, scale);
    }
    const HVX_Vector sign = Q6_Vw_vasr_VwR(x, 31);
    return Q6_Vw_vsub_VwVw(Q6_V_vxor_VV(y, sign), sign);
}
#endif

#endif
