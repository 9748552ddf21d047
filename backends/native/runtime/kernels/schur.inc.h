/* Schur form of a small complex matrix: complex numbers, reflections and QR steps of eigen.inc.h.
 *
 * Shifts and thresholds are those of LAPACK in single precision, which determine the order of the
 * eigenvalues; arithmetic is double. Of a real matrix (PE_REAL) two conjugate shifts are taken at
 * once, and imaginary parts stay 0 until a pair of eigenvalues is split. compiler/ops/schur.py is
 * the same in NumPy.
 */

#if !defined(PE_SIZE) || !defined(PE_REAL)
#error "schur.inc.h needs PE_SIZE and PE_REAL"
#endif

#include <float.h>
#include <math.h>

#define PE_WIDTH (PE_REAL ? 3 : 2) /* rows of a reflection */
#define PE_EPSILON ((double)FLT_EPSILON)
#define PE_NOTHING ((double)FLT_MIN * PE_SIZE / PE_EPSILON)

typedef struct {
    double re, im;
} PE_FN(number);

#define PE_NUMBER PE_FN(number)
#define PE_AT(t, row, column) (t)[(row) * PE_SIZE + (column)]

static PE_NUMBER PE_FN(times)(const PE_NUMBER x, const PE_NUMBER y) {
    return (PE_NUMBER){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

static PE_NUMBER PE_FN(conjugate)(const PE_NUMBER x) { return (PE_NUMBER){x.re, -x.im}; }

/* x - y */
static PE_NUMBER PE_FN(less)(const PE_NUMBER x, const PE_NUMBER y) {
    return (PE_NUMBER){x.re - y.re, x.im - y.im};
}

static double PE_FN(square)(const PE_NUMBER x) { return x.re * x.re + x.im * x.im; }

/* |re| + |im| */
static double PE_FN(sum)(const PE_NUMBER x) { return fabs(x.re) + fabs(x.im); }

/* x / y, scaled by the larger part of y, because squares may underflow. */
static PE_NUMBER PE_FN(over)(const PE_NUMBER x, const PE_NUMBER y) {
    const double scale = fmax(fabs(y.re), fabs(y.im));
    const PE_NUMBER unit = {y.re / scale, y.im / scale};
    const PE_NUMBER product = PE_FN(times)(x, PE_FN(conjugate)(unit));
    const double size = PE_FN(square)(unit) * scale;
    return (PE_NUMBER){product.re / size, product.im / size};
}

/* x - tau (vᴴ x) v, or x - tau (x v) vᴴ of a row, of elements of x that are `apart`. */
static void PE_FN(turn)(PE_NUMBER *x, const ptrdiff_t apart, const PE_NUMBER *v,
                        const ptrdiff_t count, const PE_NUMBER tau) {
    PE_NUMBER sum = {0, 0};
    const double side = apart == 1 ? 1 : -1;
    for (ptrdiff_t i = 0; i < count; i++) {
        const PE_NUMBER own = {v[i].re, side * v[i].im};
        const PE_NUMBER part = PE_FN(times)(x[i * apart], own);
        sum.re += part.re, sum.im += part.im;
    }
    sum = PE_FN(times)(sum, tau);
    for (ptrdiff_t i = 0; i < count; i++) {
        const PE_NUMBER own = {v[i].re, -side * v[i].im};
        x[i * apart] = PE_FN(less)(x[i * apart], PE_FN(times)(sum, own));
    }
}

/* Applies I - tau v vᴴ, which brings v to (beta, 0, ..., 0), to `count` rows of t from `first` on,
 * right of `column`, to the columns above `end`, and to those of z. Returns beta. */
static PE_NUMBER PE_FN(reflect)(PE_NUMBER *t, PE_NUMBER *z, PE_NUMBER *v, const ptrdiff_t first,
                                const ptrdiff_t count, const ptrdiff_t column,
                                const ptrdiff_t end) {
    double below = 0;
    for (ptrdiff_t i = 1; i < count; i++) {
        below += PE_FN(square)(v[i]);
    }
    if (below == 0 && v[0].im == 0) {
        return v[0];
    }
    const double beta = -copysign(sqrt(PE_FN(square)(v[0]) + below), v[0].re);
    const PE_NUMBER tau = {(beta - v[0].re) / beta, -v[0].im / beta};
    const PE_NUMBER divisor = {v[0].re - beta, v[0].im};
    v[0] = (PE_NUMBER){1, 0};
    for (ptrdiff_t i = 1; i < count; i++) {
        v[i] = PE_FN(over)(v[i], divisor);
    }
    for (ptrdiff_t j = column; j < PE_SIZE; j++) {
        PE_FN(turn)(&PE_AT(t, first, j), PE_SIZE, v, count, PE_FN(conjugate)(tau));
    }
    for (ptrdiff_t j = 0; j < end + PE_SIZE; j++) {
        PE_FN(turn)(j < end ? &PE_AT(t, j, first) : &PE_AT(z, j - end, first), 1, v, count, tau);
    }
    return (PE_NUMBER){beta, 0};
}

/* Zeroes column `column` below row `first` by a reflection of `count` rows. */
static void PE_FN(clear)(PE_NUMBER *t, PE_NUMBER *z, PE_NUMBER *v, const ptrdiff_t first,
                         const ptrdiff_t count, const ptrdiff_t column, const ptrdiff_t end) {
    for (ptrdiff_t i = 0; i < count; i++) {
        v[i] = PE_AT(t, first + i, column);
    }
    PE_AT(t, first, column) = PE_FN(reflect)(t, z, v, first, count, column + 1, end);
    for (ptrdiff_t i = 1; i < count; i++) {
        PE_AT(t, first + i, column) = (PE_NUMBER){0, 0};
    }
}

/* Whether the element left of diagonal element k is negligible: Ahues and Tisseur's test. */
static int PE_FN(small)(const PE_NUMBER *t, const ptrdiff_t k) {
    const PE_NUMBER own = PE_AT(t, k, k), before = PE_AT(t, k - 1, k - 1);
    const double left = PE_FN(sum)(PE_AT(t, k, k - 1)), above = PE_FN(sum)(PE_AT(t, k - 1, k));
    if (left <= PE_NOTHING) {
        return 1;
    }
    if (left > PE_EPSILON * (PE_FN(sum)(own) + PE_FN(sum)(before))) {
        return 0;
    }
    const double size = PE_FN(sum)(own), gap = PE_FN(sum)(PE_FN(less)(before, own));
    const double most = fmax(size, gap) + fmax(left, above);
    const double limit = PE_EPSILON * (fmin(size, gap) * (fmax(size, gap) / most));
    return fmin(left, above) * (fmax(left, above) / most) <= fmax(PE_NOTHING, limit);
}

#if PE_REAL

/* Makes the rows k and k + 1 triangular, of an isolated pair of eigenvalues. */
static void PE_FN(split)(PE_NUMBER *t, PE_NUMBER *z, const ptrdiff_t k) {
    const double a = PE_AT(t, k, k).re, b = PE_AT(t, k, k + 1).re;
    const double c = PE_AT(t, k + 1, k).re, d = PE_AT(t, k + 1, k + 1).re;
    const double half = (a - d) / 2, square = half * half + b * c;
    PE_NUMBER one = {d, 0}, other = {a, 0};
    if (square < 0) {
        one = (PE_NUMBER){d + half, sqrt(-square)};
        other = PE_FN(conjugate)(one);
    } else if (b != 0) {
        const double away = half + copysign(sqrt(square), half);
        one.re = d + away;
        other.re = away == 0 ? d : d - b * c / away;
    }
    PE_NUMBER v[2] = {{one.re - d, one.im}, {c, 0}};
    PE_FN(reflect)(t, z, v, k, 2, k, k + 2);
    PE_AT(t, k, k) = one;
    PE_AT(t, k + 1, k) = (PE_NUMBER){0, 0};
    PE_AT(t, k + 1, k + 1) = other;
}

/* An eigenvalue of the last two rows up to `high`, of real ones the closer to the last element;
 * occasionally an exceptional shift. */
static PE_NUMBER PE_FN(shift)(const PE_NUMBER *t, const ptrdiff_t low, const ptrdiff_t high,
                              const int turn) {
    double a = PE_AT(t, high - 1, high - 1).re, b = PE_AT(t, high - 1, high).re;
    double c = PE_AT(t, high, high - 1).re, d = PE_AT(t, high, high).re;
    if (turn != 0 && turn % 10 == 0) {
        const ptrdiff_t k = turn % 20 ? low + 1 : high - 1;
        c = fabs(PE_AT(t, k, k - 1).re) + fabs(PE_AT(t, k + 1, k).re);
        a = 0.75 * c + (turn % 20 ? PE_AT(t, low, low).re : d);
        b = -0.4375 * c;
        d = a;
    }
    const double half = (a - d) / 2, square = half * half + b * c, root = sqrt(fabs(square));
    const double away = half > 0 ? half - root : half + root;
    return square > 0 ? (PE_NUMBER){d + away, 0} : (PE_NUMBER){d + half, root};
}

/* The first column of (h - s)(h - s̄) in v, for h = t from row m on. */
static void PE_FN(start)(const PE_NUMBER *t, PE_NUMBER *v, const ptrdiff_t m, const PE_NUMBER s) {
    const double first = PE_AT(t, m, m).re - s.re, under = PE_AT(t, m + 1, m).re;
    v[0].re = first * first + s.im * s.im + PE_AT(t, m, m + 1).re * under;
    v[1].re = under * (first + PE_AT(t, m + 1, m + 1).re - s.re);
    v[2].re = under * PE_AT(t, m + 2, m + 1).re;
    v[0].im = v[1].im = v[2].im = 0;
}

#else

/* The root with a real part >= 0. */
static PE_NUMBER PE_FN(root)(const PE_NUMBER x) {
    const double size = sqrt(PE_FN(square)(x));
    return (PE_NUMBER){sqrt(fmax(0, (size + x.re) / 2)),
                       copysign(sqrt(fmax(0, (size - x.re) / 2)), x.im)};
}

/* The eigenvalue of the last two rows up to `high` that is closer to the last element; occasionally
 * an exceptional shift. */
static PE_NUMBER PE_FN(shift)(const PE_NUMBER *t, const ptrdiff_t low, const ptrdiff_t high,
                              const int turn) {
    PE_NUMBER shift = PE_AT(t, high, high);
    const PE_NUMBER square = PE_FN(times)(PE_AT(t, high - 1, high), PE_AT(t, high, high - 1));
    if (turn != 0 && turn % 10 == 0) {
        const PE_NUMBER near = turn % 20 ? PE_AT(t, low + 1, low) : PE_AT(t, high, high - 1);
        shift = turn % 20 ? PE_AT(t, low, low) : shift;
        shift.re += 0.75 * sqrt(PE_FN(square)(near));
    } else if (PE_FN(sum)(square) != 0) {
        PE_NUMBER half = PE_FN(less)(PE_AT(t, high - 1, high - 1), shift);
        half.re /= 2, half.im /= 2;
        PE_NUMBER inner = PE_FN(times)(half, half);
        inner.re += square.re, inner.im += square.im;
        const PE_NUMBER root = PE_FN(root)(inner);
        const double sign = half.re * root.re + half.im * root.im < 0 ? -1 : 1;
        half.re += sign * root.re, half.im += sign * root.im;
        shift = PE_FN(less)(shift, PE_FN(over)(square, half));
    }
    return shift;
}

/* The first column of h - s in v, for h = t from row m on. */
static void PE_FN(start)(const PE_NUMBER *t, PE_NUMBER *v, const ptrdiff_t m, const PE_NUMBER s) {
    v[0] = PE_FN(less)(PE_AT(t, m, m), s);
    v[1] = PE_AT(t, m + 1, m);
}

#endif

/* A QR step on the rows from `low` to `high`, or from the last two small elements in sequence that
 * are left of the diagonal. */
static void PE_FN(step)(PE_NUMBER *t, PE_NUMBER *z, PE_NUMBER *v, const ptrdiff_t low,
                        const ptrdiff_t high, const PE_NUMBER shift) {
    ptrdiff_t m = high + 1 - PE_WIDTH;
    for (;; m--) {
        PE_FN(start)(t, v, m, shift);
        if (m == low) {
            break;
        }
        double under = 0, around = PE_REAL ? PE_FN(sum)(PE_AT(t, m - 1, m - 1)) : 0;
        for (ptrdiff_t i = 1; i < PE_WIDTH; i++) {
            under += PE_FN(sum)(v[i]);
        }
        around += PE_FN(sum)(PE_AT(t, m, m)) + PE_FN(sum)(PE_AT(t, m + 1, m + 1));
        if (PE_FN(sum)(PE_AT(t, m, m - 1)) * under <= PE_EPSILON * PE_FN(sum)(v[0]) * around) {
            break;
        }
    }
    for (ptrdiff_t row = m; row < high; row++) {
        const ptrdiff_t count = high + 1 - row < PE_WIDTH ? high + 1 - row : PE_WIDTH;
        const ptrdiff_t end = row + count < high ? row + count + 1 : high + 1;
        if (row > m) {
            PE_FN(clear)(t, z, v, row, count, row - 1, end);
        } else {
            PE_FN(reflect)(t, z, v, row, count, row > low ? row - 1 : row, end);
        }
        for (ptrdiff_t i = 1; row == m && row > low && i < count; i++) {
            PE_AT(t, row + i, row - 1) = (PE_NUMBER){0, 0};
        }
    }
}

/* Makes t, a Hessenberg matrix in [low, high], upper triangular; whether that ended. */
static int PE_FN(triangle)(PE_NUMBER *t, PE_NUMBER *z, PE_NUMBER *v, const ptrdiff_t low,
                           ptrdiff_t high) {
    ptrdiff_t left = 30 * (PE_SIZE > 10 ? PE_SIZE : 10);
    for (int turn = 0; high >= low; turn++, left--) {
        ptrdiff_t k = high;
        while (k > low && !PE_FN(small)(t, k)) {
            k--;
        }
        if (k > low) {
            PE_AT(t, k, k - 1) = (PE_NUMBER){0, 0};
        }
        if (k < high - PE_REAL) {
            if (left <= 0) {
                return 0;
            }
            PE_FN(step)(t, z, v, k, high, PE_FN(shift)(t, k, high, turn));
            continue;
        }
#if PE_REAL
        if (k < high) {
            PE_FN(split)(t, z, k);
        }
#endif
        high = k - 1, turn = -1;
    }
    return 1;
}

#undef PE_EPSILON
#undef PE_NOTHING
#undef PE_WIDTH
