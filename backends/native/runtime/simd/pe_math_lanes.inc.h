/* Functions on vectors of PE_VL lanes; pe_math.h includes this file once for each width. */

PE_INLINE pe_vf pe_mul(pe_vf a, pe_vf b) { return a * b; }

/* The larger; NaN if either is, as in NEON. */
PE_INLINE pe_vf pe_maximum(pe_vf a, pe_vf b) {
#if PE_NEON
    return pe_max(a, b);
#else
    return pe_select((a > b) | (a != a), a, b);
#endif
}

/* The smaller; NaN if either is, as in NEON. */
PE_INLINE pe_vf pe_minimum(pe_vf a, pe_vf b) {
#if PE_NEON
    return pe_min(a, b);
#else
    return pe_select((a < b) | (a != a), a, b);
#endif
}

/* The order of the operands of pe_max and pe_min lets NaN through. */
PE_INLINE pe_vf pe_relu(pe_vf x) { return pe_max((pe_vf){0}, x); }

PE_INLINE pe_vf pe_clamp(pe_vf x, float low, float high) {
    return pe_min(pe_splat(high), pe_max(pe_splat(low), x));
}

PE_INLINE pe_vf pe_abs(pe_vf x) { return (pe_vf)((pe_vi)x & INT32_MAX); }

/* The magnitude of a with the sign of b. */
PE_INLINE pe_vf pe_copysign(pe_vf a, pe_vf b) {
    return (pe_vf)(((pe_vi)a & INT32_MAX) | ((pe_vi)b & INT32_MIN));
}

PE_INLINE pe_vf pe_sign(pe_vf x) {
    const pe_vf one = pe_copysign(pe_splat(1.0f), x);
    return pe_select((x < 0.0f) | (x > 0.0f), one, x);
}

PE_INLINE pe_vf pe_sqrt(pe_vf x) {
#if defined(__clang__)
    return __builtin_elementwise_sqrt(x);
#else
    pe_vf root = x;
    PE_UNROLL
    for (int i = 0; i < PE_VL; i++) {
        root[i] = __builtin_sqrtf(x[i]);
    }
    return root;
#endif
}

PE_INLINE pe_vf pe_hard_sigmoid(pe_vf x) { return pe_clamp(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f); }

/* x = n ln 2 + r, |r| <= ln 2 / 2; exp x = 2^n exp r, with a polynomial of degree 6 for exp r. 2^n
 * is multiplied in two halves, so that results near the overflow threshold and subnormal results
 * are correct too. The least x, such as masked scores become, makes both halves zero: a product
 * that underflows takes an Intel core 150 cycles. */
PE_INLINE pe_vf pe_exp(pe_vf x) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = pe_clamp(x, -176.0f, 89.0f);
    const pe_vf n = (x * 1.44269504f + to_integer) - to_integer;
    const pe_vf r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    pe_vf p = r * 1.37805939e-3f + 8.37312452e-3f;
    p = p * r + 4.16695364e-2f;
    p = p * r + 1.66664720e-1f;
    p = p * r + 4.99999851e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const pe_vi exponent = pe_to_i(pe_select(n == n, n, (pe_vf){0}));
    const pe_vi half = exponent >> 1;
    const pe_vf low = (pe_vf)((half + 127) << 23);
    const pe_vf high = (pe_vf)((exponent - half + 127) << 23);
    return p * low * high;
}

/* x = 2^e m, sqrt(1/2) <= m < sqrt(2); log x = e ln 2 + log m, after Cephes' logf. */
PE_INLINE pe_vf pe_log(pe_vf x) {
    const pe_vi subnormal = x < 1.17549435e-38f;
    const pe_vf scaled = pe_select(subnormal, x * 8388608.0f, x);
    const pe_vi bits = (pe_vi)scaled;
    const pe_vi shifted = bits - 0x3f3504f3; /* bits of sqrt(1/2) */
    const pe_vi exponent = shifted >> 23;
    const pe_vf m = (pe_vf)((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    const pe_vf e = pe_to_f(exponent) - pe_select(subnormal, pe_splat(23.0f), (pe_vf){0});
    pe_vf p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const pe_vf square = m * m;
    pe_vf y = m * square * p + e * -2.12194440e-4f;
    y = y - 0.5f * square;
    y = m + y + e * 0.693359375f;
    y = pe_select(x == 0.0f, pe_splat(-__builtin_inff()), y);
    y = pe_select(x == __builtin_inff(), x, y);
    return pe_select(x >= 0.0f, y, pe_splat(__builtin_nanf("")));
}

/* An odd polynomial near zero (Cephes' tanhf), 1 - 2 / (exp 2|x| + 1) elsewhere. */
PE_INLINE pe_vf pe_tanh(pe_vf x) {
    const pe_vf size = pe_abs(x);
    const pe_vf square = x * x;
    pe_vf p = square * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const pe_vf near = p * square * x + x;
    const pe_vf far = 1.0f - 2.0f / (pe_exp(size + size) + 1.0f);
    return pe_select(size < 0.625f, near, pe_copysign(far, x));
}

/* An odd polynomial near zero, 1 - exp(polynomial in |x|) elsewhere. */
PE_INLINE pe_vf pe_erf(pe_vf x) {
    const pe_vf size = pe_abs(x);
    const pe_vf square = x * x;
    pe_vf q = size * -1.72853470e-5f + 3.83197126e-4f;
    q = q * size - 3.88396438e-3f;
    q = q * size + 2.42546219e-2f;
    q = q * size - 1.06777877e-1f;
    q = q * size - 6.34846687e-1f;
    q = q * size - 1.28717512e-1f;
    q = q * size - size;
    const pe_vf far = 1.0f - pe_exp(q);
    pe_vf p = square * -5.96761703e-4f + 4.99119423e-3f;
    p = p * square - 2.67681349e-2f;
    p = p * square + 1.12819925e-1f;
    p = p * square - 3.76125336e-1f;
    p = p * square + 1.28379166e-1f;
    const pe_vf near = p * x + x;
    return pe_select(size > 0.927734375f, pe_copysign(far, x), near);
}

PE_INLINE pe_vf pe_sigmoid(pe_vf x) { return 1.0f / (1.0f + pe_exp(-x)); }

/* Rarely used functions: the C library's, lane by lane. */
#define PE_LANEWISE(name, function)                                                                \
    PE_INLINE pe_vf name(pe_vf x) {                                                                \
        for (int i = 0; i < PE_VL; i++) {                                                          \
            x[i] = function(x[i]);                                                                 \
        }                                                                                          \
        return x;                                                                                  \
    }

#define PE_LANEWISE2(name, function, type, element)                                                \
    PE_INLINE type name(type a, type b) {                                                          \
        for (int i = 0; i < PE_VL; i++) {                                                          \
            a[i] = (element)function(a[i], b[i]);                                                  \
        }                                                                                          \
        return a;                                                                                  \
    }

PE_LANEWISE(pe_sin, sinf)
PE_LANEWISE(pe_cos, cosf)
PE_LANEWISE(pe_tan, tanf)
PE_LANEWISE(pe_asin, asinf)
PE_LANEWISE(pe_acos, acosf)
PE_LANEWISE(pe_atan, atanf)
PE_LANEWISE(pe_sinh, sinhf)
PE_LANEWISE(pe_cosh, coshf)
PE_LANEWISE(pe_erfc, erfcf)
PE_LANEWISE(pe_expm1, expm1f)
PE_LANEWISE(pe_log1p, log1pf)
PE_LANEWISE(pe_floor, floorf)
PE_LANEWISE(pe_ceil, ceilf)
PE_LANEWISE(pe_round, rintf)
PE_LANEWISE(pe_trunc, truncf)
PE_LANEWISE(pe_asinh, asinhf)
PE_LANEWISE(pe_acosh, acoshf)
PE_LANEWISE(pe_atanh, atanhf)
PE_LANEWISE(pe_lgamma, (float)pe_lgamma_of)
PE_LANEWISE(pe_digamma, (float)pe_digamma_of)
PE_LANEWISE(pe_i0, (float)pe_i0_of)
PE_LANEWISE(pe_i1, (float)pe_i1_of)
PE_LANEWISE(pe_i0e, (float)pe_i0e_of)
PE_LANEWISE(pe_i1e, (float)pe_i1e_of)
PE_LANEWISE(pe_erf_inv, (float)pe_erf_inv_of)
PE_LANEWISE2(pe_zeta, pe_zeta_of, pe_vf, float)
PE_LANEWISE2(pe_igamma, pe_igamma_of, pe_vf, float)
PE_LANEWISE2(pe_igammac, pe_igammac_of, pe_vf, float)
PE_LANEWISE2(pe_igamma_da, pe_igamma_da_of, pe_vf, float)
PE_LANEWISE2(pe_pow, powf, pe_vf, float)
PE_LANEWISE2(pe_atan2, atan2f, pe_vf, float)
PE_LANEWISE2(pe_hypot, hypotf, pe_vf, float)
PE_LANEWISE2(pe_rem, fmodf, pe_vf, float)
PE_LANEWISE2(pe_quotient_i, pe_quotient, pe_vi, int32_t)
PE_LANEWISE2(pe_quotient_l, pe_quotient, pe_vl, int64_t)
PE_LANEWISE2(pe_rem_i, pe_remainder, pe_vi, int32_t)
PE_LANEWISE2(pe_rem_l, pe_remainder, pe_vl, int64_t)
PE_LANEWISE2(pe_shift_left_i, pe_left_32, pe_vi, int32_t)
PE_LANEWISE2(pe_shift_left_l, pe_left_64, pe_vl, int64_t)
PE_LANEWISE2(pe_shift_right_i, pe_right_32, pe_vi, int32_t)
PE_LANEWISE2(pe_shift_right_l, pe_right_64, pe_vl, int64_t)

/* -(t log x + (1 - t) log(1 - x)), the logarithms at least -100, as in PyTorch. */
PE_INLINE pe_vf pe_binary_cross_entropy(pe_vf x, pe_vf t) {
    const pe_vf least = pe_splat(-100.0f);
    const pe_vf missed = pe_maximum(pe_log1p(-x), least), hit = pe_maximum(pe_log(x), least);
    return (t - 1.0f) * missed - t * hit;
}

#undef PE_LANEWISE
#undef PE_LANEWISE2
