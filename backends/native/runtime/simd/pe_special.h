/* Special functions of one number, in double precision: gamma and Bessel functions, and the inverse
 * of erf.
 *
 * compiler/ops/special.py uses the same methods. C's lgamma is not used because it writes to a
 * global.
 */
#ifndef PE_SPECIAL_H
#define PE_SPECIAL_H

#include <math.h>

#include "pe_vec.h"

/* Never inlined: a loop for each of 16 lanes is too much code. */
#define PE_SCALAR static __attribute__((noinline, unused))
#define PE_PI 3.14159265358979323846
#define PE_FAR 10.0 /* from here on the series below is exact to 15 digits */
#define PE_TERMS 1000

/* Bernoulli's numbers of even order from 2 on. */
static const double pe_bernoulli[7] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                       5.0 / 66, -691.0 / 2730, 7.0 / 6};

/* log gamma(x) for x > 0: the recurrence, then Stirling's series. */
PE_SCALAR double pe_lgamma_above(double x) {
    double product = 1;
    for (; x < PE_FAR; x++) {
        product *= x;
    }
    double y = (x - 0.5) * log(x) - x + 0.5 * log(2 * PE_PI) - log(product), power = x;
    for (int k = 1; k <= 7; k++, power *= x * x) {
        y += pe_bernoulli[k - 1] / (2 * k * (2 * k - 1) * power);
    }
    return y;
}

PE_SCALAR double pe_lgamma_of(const double x) {
    if (!(fabs(x) < INFINITY)) {
        return fabs(x);
    }
    if (x > 0) {
        return pe_lgamma_above(x);
    }
    if (x == floor(x)) {
        return INFINITY;
    }
    return log(PE_PI / fabs(sin(PE_PI * fmod(x, 2)))) - pe_lgamma_above(1 - x);
}

PE_SCALAR double pe_digamma_of(double x) {
    double below = 0;
    if (x == 0) {
        return -copysign(INFINITY, x);
    }
    if (!(fabs(x) < INFINITY)) {
        return x > 0 ? x : NAN;
    }
    if (x < 0) {
        if (x == floor(x)) {
            return NAN;
        }
        below = PE_PI / tan(PE_PI * fmod(x, 1));
        x = 1 - x;
    }
    for (; x < PE_FAR; x++) {
        below += 1 / x;
    }
    double y = log(x) - 0.5 / x - below, power = x * x;
    for (int k = 1; k <= 7; k++, power *= x * x) {
        y -= pe_bernoulli[k - 1] / (2 * k * power);
    }
    return y;
}

/* Hurwitz's zeta: the sum of (q + k)^-s. */
PE_SCALAR double pe_zeta_of(const double s, double q) {
    if (!(s > 1) || q != q) {
        return s == 1 ? INFINITY : NAN;
    }
    if (q <= 0) {
        if (q == floor(q)) {
            return INFINITY;
        }
        if (s != floor(s)) {
            return NAN;
        }
    }
    double y = 0;
    for (; q < PE_FAR; q++) {
        y += pow(q, -s);
    }
    y += pow(q, 1 - s) / (s - 1) + 0.5 * pow(q, -s);
    double rising = s * pow(q, -s - 1) / 2;
    for (int k = 1; k <= 7; k++) {
        y += pe_bernoulli[k - 1] * rising;
        rising *= (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2) * q * q);
    }
    return y;
}

/* The lower regularized incomplete gamma divided by exp(-x) x^a / gamma(a), as a series, for
 * x < a + 1. */
PE_SCALAR double pe_gamma_series(const double a, const double x) {
    double term = 1 / a, y = term;
    for (int k = 1; k < PE_TERMS && term > y * 1e-17; k++) {
        term *= x / (a + k);
        y += term;
    }
    return y;
}

/* The upper one, as a continued fraction by Lentz's method. */
PE_SCALAR double pe_gamma_fraction(const double a, const double x) {
    double b = x + 1 - a, c = INFINITY, d = 1 / b, y = d;
    for (int k = 1; k < PE_TERMS; k++) {
        const double over = -k * (k - a);
        b += 2;
        d = 1 / (over * d + b);
        c = b + over / c;
        y *= c * d;
        if (fabs(c * d - 1) < 1e-16) {
            break;
        }
    }
    return y;
}

PE_SCALAR double pe_gamma_share(const double a, const double x, const int upper) {
    if (!(a >= 0 && x >= 0) || (a == 0 && x == 0) || (a == INFINITY && x == INFINITY)) {
        return NAN;
    }
    if (a == 0 || x == 0 || a == INFINITY || x == INFINITY) {
        return (a == 0 || x == INFINITY) != upper;
    }
    const double scale = exp(a * log(x) - x - pe_lgamma_of(a));
    const int low = x < a + 1;
    const double share = scale * (low ? pe_gamma_series(a, x) : pe_gamma_fraction(a, x));
    return low == upper ? 1 - share : share;
}

PE_SCALAR double pe_igamma_of(const double a, const double x) { return pe_gamma_share(a, x, 0); }
PE_SCALAR double pe_igammac_of(const double a, const double x) { return pe_gamma_share(a, x, 1); }

/* pe_gamma_series, and to *slope its derivative in a. */
PE_SCALAR double pe_gamma_series_slope(const double a, const double x, double *slope) {
    double term = 1 / a, y = term, logarithmic = -term;
    *slope = term * logarithmic;
    for (int k = 1; k < PE_TERMS && term > y * 1e-17; k++) {
        term *= x / (a + k);
        logarithmic -= 1 / (a + k);
        y += term;
        *slope += term * logarithmic;
    }
    return y;
}

/* pe_gamma_fraction, and to *slope its derivative in a. */
PE_SCALAR double pe_gamma_fraction_slope(const double a, const double x, double *slope) {
    double b = x + 1 - a, c = INFINITY, d = 1 / b, y = d;
    double dc = 0, dd = d * d, logarithmic = d;
    for (int k = 1; k < PE_TERMS; k++) {
        const double over = -k * (k - a), inverse = k * d + over * dd - 1;
        b += 2;
        d = 1 / (over * d + b);
        dd = -d * d * inverse;
        dc = k / c - over * dc / (c * c) - 1;
        c = b + over / c;
        y *= c * d;
        const double step = dc / c + dd / d;
        logarithmic += step;
        if (fabs(c * d - 1) + fabs(step) < 1e-15) {
            break;
        }
    }
    *slope = y * logarithmic;
    return y;
}

/* The derivative of igamma(a, x) in a. */
PE_SCALAR double pe_igamma_da_of(const double a, const double x) {
    if (!(a > 0 && x >= 0 && a < INFINITY)) {
        return NAN;
    }
    if (x == 0 || x == INFINITY) {
        return 0;
    }
    const double scale = exp(a * log(x) - x - pe_lgamma_of(a));
    const int low = x < a + 1;
    double slope;
    const double share =
        low ? pe_gamma_series_slope(a, x, &slope) : pe_gamma_fraction_slope(a, x, &slope);
    slope = scale * (slope + share * (log(x) - pe_digamma_of(a)));
    return low ? slope : -slope;
}

/* exp(-|x|) I(x) of order 0 or 1: the power series, or far from zero the asymptotic series. */
PE_SCALAR double pe_bessel(const int order, const double x) {
    const double size = fabs(x), sign = order ? copysign(1, x) : 1;
    if (!(size < INFINITY)) {
        return x != x ? x : 0;
    }
    double term = 1, y = 1;
    if (size <= 30) {
        for (int k = 1; k < PE_TERMS && term >= y * 1e-17; k++) {
            term *= size * size / 4 / (k * (k + order));
            y += term;
        }
        return sign * y * (order ? size / 2 : 1) * exp(-size);
    }
    for (int k = 1; k < 20; k++) {
        term *= ((2 * k - 1) * (2 * k - 1) - 4 * order) / (8 * size * k);
        y += term;
    }
    return sign * y / sqrt(2 * PE_PI * size);
}

PE_SCALAR double pe_i0e_of(const double x) { return pe_bessel(0, x); }
PE_SCALAR double pe_i1e_of(const double x) { return pe_bessel(1, x); }

PE_SCALAR double pe_i0_of(const double x) { return pe_bessel(0, x) * exp(fabs(x)); }
PE_SCALAR double pe_i1_of(const double x) { return pe_bessel(1, x) * exp(fabs(x)); }

/* Winitzki's approximation, then four Newton steps. */
PE_SCALAR double pe_erf_inv_of(const double x) {
    const double size = fabs(x);
    if (!(size < 1)) {
        return size == 1 ? copysign(INFINITY, x) : NAN;
    }
    const double low = log1p(-x * x), part = 2 / (PE_PI * 0.147) + low / 2;
    double y = sqrt(sqrt(part * part - low / 0.147) - part);
    for (int i = 0; i < 4; i++) {
        const double missed = size < 0.5 ? erf(y) - size : (1 - size) - erfc(y);
        y -= missed * (sqrt(PE_PI) / 2) * exp(y * y);
    }
    return x == 0 ? x : copysign(y, x);
}

#endif
