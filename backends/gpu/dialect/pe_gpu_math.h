/* C's functions of real numbers that Slang and Metal lack, from those that a prelude has. They are
 * within a few units in the last place. */

/* The magnitude of a with the sign of b. */
PE_FUNCTION float pe_signed(float a, float b) {
    return pe_from_bits((pe_bits(a) & 0x7FFFFFFFu) | (pe_bits(b) & 0x80000000u));
}

/* The polynomials of backends/native/runtime/simd. */
PE_FUNCTION float pe_erf(float x) {
    const float size = PE_MATH(fabs)(x), square = x * x;
    float q = size * -1.72853470e-5f + 3.83197126e-4f;
    q = q * size - 3.88396438e-3f;
    q = q * size + 2.42546219e-2f;
    q = q * size - 1.06777877e-1f;
    q = q * size - 6.34846687e-1f;
    q = q * size - 1.28717512e-1f;
    q = q * size - size;
    float p = square * -5.96761703e-4f + 4.99119423e-3f;
    p = p * square - 2.67681349e-2f;
    p = p * square + 1.12819925e-1f;
    p = p * square - 3.76125336e-1f;
    p = p * square + 1.28379166e-1f;
    return size > 0.927734375f ? pe_signed(1.0f - PE_MATH(exp)(q), x) : p * x + x;
}

/* A Chebyshev fit of relative error 1.2e-7 (Numerical Recipes, 6.2). */
PE_FUNCTION float pe_erfc(float x) {
    const float z = PE_MATH(fabs)(x), t = 1.0f / (1.0f + 0.5f * z);
    if (z < 0.5f) {
        return 1.0f - pe_erf(x);
    }
    float p = t * 0.17087277f - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    const float y = z > 11.0f ? 0.0f : t * PE_MATH(exp)(-z * z - 1.26551223f + t * p);
    return x < 0.0f ? 2.0f - y : y;
}

/* Kahan's method: the ratio cancels the rounding error of 1 + x. */
PE_FUNCTION float pe_log1p(float x) {
    const float u = 1.0f + x;
    return u == 1.0f || u == PE_INFINITY ? x : PE_MATH(log)(u) * (x / (u - 1.0f));
}

PE_FUNCTION float pe_expm1(float x) {
    const float u = PE_MATH(exp)(x);
    if (u == 1.0f) {
        return x;
    }
    return PE_MATH(fabs)(x) > 1.0f || x != x ? u - 1.0f : (u - 1.0f) * (x / PE_MATH(log)(u));
}

PE_FUNCTION float pe_hypot(float x, float y) {
    const float a = PE_MATH(fabs)(x), b = PE_MATH(fabs)(y);
    const float most = a > b ? a : b, ratio = (a > b ? b : a) / most;
    return x != x || y != y      ? PE_NAN
           : most == 0.0f        ? 0.0f
           : most == PE_INFINITY ? most
                                 : most * PE_MATH(sqrt)(1.0f + ratio * ratio);
}

/* Stirling's series after the recurrence; the reflection formula below 0.5. */
PE_FUNCTION float pe_lgamma(float x) {
    const float whole = PE_MATH(floor)(x), most = x < 0.5f ? 1.0f - x : x;
    if (x != x || PE_MATH(fabs)(x) == PE_INFINITY) {
        return PE_MATH(fabs)(x);
    }
    float z = most, product = 1.0f;
    for (; z < 7.0f; z += 1.0f) {
        product *= z;
    }
    const float w = 1.0f / (z * z);
    const float series = ((w * 7.93650794e-4f - 2.77777778e-3f) * w + 8.33333333e-2f) / z;
    const float y =
        (z - 0.5f) * (PE_MATH(log)(z) - 1.0f) + (0.418938533f + series) - PE_MATH(log)(product);
    const float wave = PE_MATH(fabs)(PE_MATH(sin)(3.14159265f * (x - PE_MATH(rint)(x))));
    return x >= 0.5f ? y : x == whole ? PE_INFINITY : 1.14472989f - PE_MATH(log)(wave) - y;
}
