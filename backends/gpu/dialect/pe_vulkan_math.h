/* C's functions of real numbers. Vulkan allows large errors in its own (2^-11 for a sine), so these
 * use only operations that it rounds correctly, and are within a few units in the last place. */

float pe_fabs(float x) { return abs(x); }
float pe_floor(float x) { return floor(x); }
float pe_ceil(float x) { return ceil(x); }
float pe_trunc(float x) { return trunc(x); }
float pe_rint(float x) { return round(x); } /* ties to even */
float pe_sqrt(float x) { return sqrt(x); }
float pe_fma(float a, float b, float c) { return fma(a, b, c); }

/* exp, log and tanh have the polynomials of backends/native/runtime/simd. */
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
