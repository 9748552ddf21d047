/* C's functions of real numbers. Vulkan allows large errors in its own (2^-11 for a sine), so these
 * use only operations that it rounds correctly, and are within a few units in the last place. */

float pe_fabs(float x) { return abs(x); }
float pe_floor(float x) { return floor(x); }
float pe_ceil(float x) { return ceil(x); }
float pe_trunc(float x) { return trunc(x); }
float pe_rint(float x) { return round(x); } /* ties to even */
float pe_sqrt(float x) { return sqrt(x); }
float pe_fma(float a, float b, float c) { return fma(a, b, c); }

/* The magnitude of a with the sign of b. */
float pe_signed(float a, float b) {
    return asfloat((asuint(a) & 0x7FFFFFFFu) | (asuint(b) & 0x80000000u));
}

/* exp, log, tanh and erf have the polynomials of backends/native/runtime/simd. */
float pe_exp(float x) {
    if (!(x > -104.0f)) {
        return x != x ? x : 0.0f;
    }
    if (x > 89.0f) {
        return PE_INFINITY;
    }
    const float n = round(x * 1.44269504f);
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = r * 1.37805939e-3f + 8.37312452e-3f;
    p = p * r + 4.16695364e-2f;
    p = p * r + 1.66664720e-1f;
    p = p * r + 4.99999851e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const int exponent = (int)n, low = exponent >> 1;
    return p * asfloat((low + 127) << 23) * asfloat((exponent - low + 127) << 23);
}

float pe_log(float x) {
    if (!(x > 0.0f) || x == PE_INFINITY) {
        return x == 0.0f ? -PE_INFINITY : x < 0.0f ? PE_NAN : x;
    }
    const bool small = x < 1.17549435e-38f;
    const int shifted = asint(small ? x * 8388608.0f : x) - 0x3F3504F3;
    const float m = asfloat((shifted & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
    const float e = (float)(shifted >> 23) - (small ? 23.0f : 0.0f);
    float p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const float y = m * (m * m) * p + e * -2.12194440e-4f - 0.5f * (m * m);
    return m + y + e * 0.693359375f;
}

float pe_tanh(float x) {
    const float square = x * x;
    float p = square * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float far = 1.0f - 2.0f / (pe_exp(2.0f * abs(x)) + 1.0f);
    return abs(x) < 0.625f ? p * square * x + x : pe_signed(far, x);
}

float pe_erf(float x) {
    const float size = abs(x), square = x * x;
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
    return size > 0.927734375f ? pe_signed(1.0f - pe_exp(q), x) : p * x + x;
}

/* A Chebyshev fit of relative error 1.2e-7 (Numerical Recipes, 6.2). */
float pe_erfc(float x) {
    const float z = abs(x), t = 1.0f / (1.0f + 0.5f * z);
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
    const float y = z > 11.0f ? 0.0f : t * pe_exp(-z * z - 1.26551223f + t * p);
    return x < 0.0f ? 2.0f - y : y;
}

/* Kahan's method: the ratio cancels the rounding error of 1 + x. */
float pe_log1p(float x) {
    const float u = 1.0f + x;
    return u == 1.0f || u == PE_INFINITY ? x : pe_log(u) * (x / (u - 1.0f));
}

float pe_expm1(float x) {
    const float u = pe_exp(x);
    if (u == 1.0f) {
        return x;
    }
    return abs(x) > 1.0f || x != x ? u - 1.0f : (u - 1.0f) * (x / pe_log(u));
}

float pe_sinh(float x) {
    const float e = pe_expm1(abs(x)), half_root = pe_exp(0.5f * abs(x));
    return pe_signed(abs(x) > 20.0f ? 0.5f * half_root * half_root : 0.5f * (e + e / (e + 1.0f)),
                     x);
}

float pe_cosh(float x) {
    const float root = pe_exp(0.5f * abs(x));
    return 0.5f * root * root + 0.5f / root / root;
}

float pe_asinh(float x) {
    const float size = abs(x);
    const float near = pe_log1p(size + size * size / (1.0f + sqrt(size * size + 1.0f)));
    return pe_signed(size > 1e9f ? pe_log(size) + 0.693147181f : near, x);
}

float pe_acosh(float x) {
    const float t = x - 1.0f;
    return x > 1e9f   ? pe_log(x) + 0.693147181f
           : t < 0.0f ? PE_NAN
                      : pe_log1p(t + sqrt(2.0f * t + t * t));
}

float pe_atanh(float x) { return 0.5f * pe_log1p(2.0f * x / (1.0f - x)); }

/* The sine, or for quarter 1 the cosine, after Cody and Waite's reduction, exact up to 8192. */
float pe_wave(float x, int quarter) {
    const float n = round(x * 0.636619772f);
    const float r = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
    const int turn = quarter + (int)n;
    const float s = r * r;
    const float sine =
        ((s * -1.9515295891e-4f + 8.3321608736e-3f) * s - 1.6666654611e-1f) * s * r + r;
    const float cosine =
        ((s * 2.443315711809948e-5f - 1.388731625493765e-3f) * s + 4.166664568298827e-2f) * s * s -
        0.5f * s + 1.0f;
    const float y = (turn & 1) != 0 ? cosine : sine;
    return (turn & 2) != 0 ? -y : y;
}

float pe_sin(float x) { return pe_wave(x, 0); }
float pe_cos(float x) { return pe_wave(x, 1); }
float pe_tan(float x) { return pe_wave(x, 0) / pe_wave(x, 1); }

/* Cephes' atanf. */
float pe_atan(float x) {
    const float size = abs(x);
    const bool far = size > 2.414213562f, middle = size > 0.4142135624f;
    const float t = far ? -1.0f / size : middle ? (size - 1.0f) / (size + 1.0f) : size;
    const float start = far ? 1.570796327f : middle ? 0.7853981634f : 0.0f, z = t * t;
    const float p = ((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z;
    return pe_signed(start + ((p - 3.33329491539e-1f) * z * t + t), x);
}

float pe_atan2(float y, float x) {
    if (x != x || y != y) {
        return PE_NAN;
    }
    const bool same = abs(x) == abs(y);
    const float size = same ? (x == 0.0f ? 0.0f : 0.7853981634f) : pe_atan(abs(y) / abs(x));
    return pe_signed((asuint(x) >> 31) != 0 ? 3.14159265359f - size : size, y);
}

float pe_asin(float x) { return pe_atan2(x, sqrt((1.0f - x) * (1.0f + x))); }
float pe_acos(float x) { return pe_atan2(sqrt((1.0f - x) * (1.0f + x)), x); }

float pe_hypot(float x, float y) {
    const float most = max(abs(x), abs(y)), least = min(abs(x), abs(y));
    const float ratio = least / most;
    return x != x || y != y      ? PE_NAN
           : most == 0.0f        ? 0.0f
           : most == PE_INFINITY ? most
                                 : most * sqrt(1.0f + ratio * ratio);
}

/* The exact remainder: each step subtracts the largest y 2^k that is not above a. */
float pe_fmod(float x, float y) {
    const float b = abs(y);
    float a = abs(x);
    if (!(a < PE_INFINITY) || !(b > 0.0f)) {
        return PE_NAN;
    }
    while (a >= b && b > 1.17549435e-38f) {
        const int steps = (asint(a) >> 23) - (asint(b) >> 23);
        const float t = asfloat(asint(b) + (steps << 23));
        a -= t > a ? 0.5f * t : t;
    }
    return pe_signed(a, x);
}

float pe_pow(float x, float y) {
    if (y == 0.0f || x == 1.0f) {
        return 1.0f;
    }
    const bool whole = trunc(y) == y, odd = whole && abs(pe_fmod(y, 2.0f)) == 1.0f;
    const float size = pe_exp(y * pe_log(abs(x)));
    return x < 0.0f && !whole && x > -PE_INFINITY ? PE_NAN
           : (asuint(x) >> 31) != 0 && odd        ? -size
                                                  : size;
}

/* Stirling's series after the recurrence; the reflection formula below 0.5. */
float pe_lgamma(float x) {
    const float whole = floor(x), most = x < 0.5f ? 1.0f - x : x;
    if (x != x || abs(x) == PE_INFINITY) {
        return abs(x);
    }
    float z = most, product = 1.0f;
    for (; z < 7.0f; z += 1.0f) {
        product *= z;
    }
    const float w = 1.0f / (z * z);
    const float series = ((w * 7.93650794e-4f - 2.77777778e-3f) * w + 8.33333333e-2f) / z;
    const float y = (z - 0.5f) * (pe_log(z) - 1.0f) + (0.418938533f + series) - pe_log(product);
    const float wave = abs(pe_wave(3.14159265f * (x - round(x)), 0));
    return x >= 0.5f ? y : x == whole ? PE_INFINITY : 1.14472989f - pe_log(wave) - y;
}
