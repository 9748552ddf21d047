/* Eigenvalues and right eigenvectors of small matrices, in double precision; threads share the
 * matrices.
 *
 * Balancing, reduction to Hessenberg form, QR steps until the matrix is upper triangular
 * (schur.inc.h), and back-substitution. compiler/ops/eigen.py defines the layout of y.
 *
 * Parameters: PE_FN(name), PE_COUNT, PE_ROWS, PE_COLUMNS. A complex matrix has twice as many rows:
 * its real parts above its imaginary ones.
 */

#if !defined(PE_ROWS)
#error "eigen.inc.h needs PE_ROWS"
#endif

#define PE_SIZE PE_COLUMNS
#define PE_REAL (PE_ROWS == PE_COLUMNS)
#define PE_TIE (1 - 1e-5) /* relative tolerance for elements of the same size */
#define PE_LEAST 1e-100   /* the least divisor of the back-substitution */
#define PE_LARGEST 1e100  /* elements of a vector above it shrink the vector */

#include "schur.inc.h"

/* Exchanges rows and columns i and j. */
static void PE_FN(exchange)(PE_NUMBER *t, const ptrdiff_t i, const ptrdiff_t j) {
    for (int turned = 0; turned < 2; turned++) {
        for (ptrdiff_t k = 0; k < PE_SIZE; k++) {
            PE_NUMBER *x = turned ? &PE_AT(t, i, k) : &PE_AT(t, k, i);
            PE_NUMBER *y = turned ? &PE_AT(t, j, k) : &PE_AT(t, k, j);
            const PE_NUMBER moved = *x;
            *x = *y;
            *y = moved;
        }
    }
}

/* Whether row or column i is 0 in [low, high] beside the diagonal. */
static int PE_FN(isolated)(const PE_NUMBER *t, const ptrdiff_t i, const ptrdiff_t low,
                           const ptrdiff_t high, const int row) {
    for (ptrdiff_t k = low; k <= high; k++) {
        if (k != i && PE_FN(sum)(row ? PE_AT(t, i, k) : PE_AT(t, k, i)) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Moves eigenvalues isolated in a row to the end, those isolated in a column to the start; between
 * them is [low, high]. order[i] is the row that i was exchanged with. */
static void PE_FN(isolate)(PE_NUMBER *t, double *order, ptrdiff_t *low, ptrdiff_t *high) {
    *low = 0, *high = PE_SIZE - 1;
    for (int found = 1; found;) {
        found = 0;
        for (ptrdiff_t i = *high; i >= 0 && *high > 0; i--) {
            if (PE_FN(isolated)(t, i, 0, *high, 1)) {
                order[*high] = (double)i;
                PE_FN(exchange)(t, i, *high);
                *high -= 1;
                found = 1;
            }
        }
    }
    for (int found = *high > 0; found;) {
        found = 0;
        for (ptrdiff_t j = *low; j <= *high; j++) {
            if (PE_FN(isolated)(t, j, *low, *high, 0)) {
                order[*low] = (double)j;
                PE_FN(exchange)(t, j, *low);
                *low += 1;
                found = 1;
            }
        }
    }
}

/* Scales row and column i by powers of 2 that bring their norms together; whether it did. */
static int PE_FN(scale)(PE_NUMBER *t, double *factor, const ptrdiff_t i, const ptrdiff_t low,
                        const ptrdiff_t high) {
    double column = 0, row = 0, f = 1;
    for (ptrdiff_t k = low; k <= high; k++) {
        column += PE_FN(square)(PE_AT(t, k, i));
        row += PE_FN(square)(PE_AT(t, i, k));
    }
    if (column == 0 || row == 0) {
        return 0;
    }
    column = sqrt(column), row = sqrt(row);
    const double before = column + row;
    for (; column < row / 2; f *= 2) {
        column *= 2, row /= 2;
    }
    for (; column / 2 >= row; f /= 2) {
        column /= 2, row *= 2;
    }
    if (column + row >= 0.95 * before) {
        return 0;
    }
    *factor *= f;
    for (ptrdiff_t k = 0; k < PE_SIZE; k++) {
        PE_NUMBER *x = &PE_AT(t, i, k), *y = &PE_AT(t, k, i);
        x->re /= f, x->im /= f;
        y->re *= f, y->im *= f;
    }
    return 1;
}

/* Solves (t - t[j, j]) x = 0 with x[j] = 1, for the elements above row j. */
static void PE_FN(substitute)(const PE_NUMBER *t, PE_NUMBER *x, const ptrdiff_t j) {
    const PE_NUMBER value = PE_AT(t, j, j);
    const double least = fmax(DBL_EPSILON * PE_FN(sum)(value), PE_LEAST);
    for (ptrdiff_t i = j; i < PE_SIZE; i++) {
        x[i] = (PE_NUMBER){i == j, 0};
    }
    for (ptrdiff_t i = j - 1; i >= 0; i--) {
        PE_NUMBER sum = {0, 0}, gap = PE_FN(less)(value, PE_AT(t, i, i));
        for (ptrdiff_t k = i + 1; k <= j; k++) {
            const PE_NUMBER part = PE_FN(times)(PE_AT(t, i, k), x[k]);
            sum.re += part.re, sum.im += part.im;
        }
        gap = PE_FN(sum)(gap) < least ? (PE_NUMBER){-least, 0} : gap;
        x[i] = PE_FN(over)(sum, gap);
        const double size = PE_FN(sum)(x[i]), factor = size > PE_LARGEST ? 1 / size : 1;
        for (ptrdiff_t k = i; k <= j && factor < 1; k++) {
            x[k].re *= factor, x[k].im *= factor;
        }
    }
}

/* Writes vector j, of length 1, whose first element of the largest size is real and positive. */
static void PE_FN(put)(const PE_NUMBER *v, const ptrdiff_t j, float *y) {
    double length = 0, largest = 0;
    ptrdiff_t place = 0;
    for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
        length += PE_FN(square)(v[i]);
        largest = fmax(largest, PE_FN(square)(v[i]));
    }
    while (PE_FN(square)(v[place]) < PE_TIE * PE_TIE * largest) {
        place++;
    }
    const double scale = 1 / sqrt(length * PE_FN(square)(v[place]));
    const PE_NUMBER turn = {v[place].re * scale, -v[place].im * scale};
    for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
        const PE_NUMBER element = PE_FN(times)(v[i], turn);
        y[(2 + i) * PE_SIZE + j] = (float)element.re;
        y[(2 + PE_SIZE + i) * PE_SIZE + j] = i == place ? 0.0f : (float)element.im;
    }
}

/* Transforms x back to the eigenvector z x of the matrix before balancing. */
static void PE_FN(back)(const PE_NUMBER *z, const PE_NUMBER *x, const double *order,
                        const ptrdiff_t low, const ptrdiff_t high, PE_NUMBER *v) {
    for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
        const double factor = i < low || i > high ? 1 : order[i];
        v[i] = (PE_NUMBER){0, 0};
        for (ptrdiff_t k = 0; k < PE_SIZE; k++) {
            const PE_NUMBER part = PE_FN(times)(PE_AT(z, i, k), x[k]);
            v[i].re += factor * part.re, v[i].im += factor * part.im;
        }
    }
    for (ptrdiff_t step = 0; step < low + PE_SIZE - 1 - high; step++) {
        const ptrdiff_t i = step < low ? low - 1 - step : high + 1 + step - low;
        const ptrdiff_t other = (ptrdiff_t)order[i];
        const PE_NUMBER moved = v[i];
        v[i] = v[other];
        v[other] = moved;
    }
}

/* Writes eigenvalues and vectors of t, after which comes the other scratch; whether it found them.
 */
static int PE_FN(one)(PE_NUMBER *t, float *y) {
    PE_NUMBER *z = t + PE_SIZE * PE_SIZE, *x = z + PE_SIZE * PE_SIZE, *v = x + PE_SIZE;
    double *order = (double *)(v + PE_SIZE);
    ptrdiff_t low = 0, high = 0;
    for (ptrdiff_t i = 0; i < PE_SIZE * PE_SIZE; i++) {
        z[i] = (PE_NUMBER){i / PE_SIZE == i % PE_SIZE, 0};
    }
    PE_FN(isolate)(t, order, &low, &high);
    for (ptrdiff_t i = low; i <= high; i++) {
        order[i] = 1;
    }
    for (int scaled = 1; scaled;) {
        scaled = 0;
        for (ptrdiff_t i = low; i <= high; i++) {
            scaled |= PE_FN(scale)(t, order + i, i, low, high);
        }
    }
    for (ptrdiff_t k = low; k + 1 < high; k++) {
        PE_FN(clear)(t, z, v, k + 1, high - k, k, high + 1);
    }
    if (!PE_FN(triangle)(t, z, v, low, high)) {
        return 0;
    }
    for (ptrdiff_t j = 0; j < PE_SIZE; j++) {
        y[j] = (float)PE_AT(t, j, j).re;
        y[PE_SIZE + j] = (float)PE_AT(t, j, j).im;
        PE_FN(substitute)(t, x, j);
        PE_FN(back)(z, x, order, low, high, v);
        PE_FN(put)(v, j, y);
    }
    return 1;
}

PE_INLINE void PE_FN(run)(pe_worker *w, const float *a, const float *b, float *y,
                          const ptrdiff_t results, const ptrdiff_t room, double *scratch) {
    const pe_range share = pe_split(w, PE_COUNT, 1);
    (void)b;
    for (ptrdiff_t n = share.begin; n < share.end; n++) {
        PE_NUMBER *t = (PE_NUMBER *)(scratch + n * room);
        const float *own = a + n * PE_ROWS * PE_COLUMNS;
        int sound = 1;
        for (ptrdiff_t i = 0; i < PE_SIZE * PE_SIZE; i++) {
            t[i].re = (double)own[i];
            t[i].im = PE_REAL ? 0 : (double)own[i + (PE_ROWS - PE_SIZE) * PE_SIZE];
            sound &= PE_FN(sum)(t[i]) < (double)INFINITY;
        }
        sound = sound && PE_FN(one)(t, y + n * results);
        for (ptrdiff_t i = 0; !sound && i < results; i++) {
            y[n * results + i] = __builtin_nanf("");
        }
    }
}

#undef PE_AT
#undef PE_COLUMNS
#undef PE_COUNT
#undef PE_KIND
#undef PE_LARGEST
#undef PE_LEAST
#undef PE_LOWER
#undef PE_NUMBER
#undef PE_REAL
#undef PE_ROWS
#undef PE_SIDES
#undef PE_SIZE
#undef PE_TIE
#undef PE_TRANSPOSED
#undef PE_UNIT
#include "undef.inc.h"
