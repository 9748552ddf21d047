/* Factors of small matrices, in double precision; threads share the matrices.
 *
 * Householder's reflections for q and r, Gauss's elimination with the largest pivot of a column for
 * l and u, with LAPACK's signs and pivots. compiler/ops/factors.py defines the layout of y.
 *
 * Parameters: PE_FN(name), PE_COUNT, PE_ROWS, PE_COLUMNS (of a, at most PE_ROWS), PE_KIND.
 */

#if !defined(PE_KIND)
#error "factors.inc.h needs PE_KIND"
#endif

#include <math.h>

#define PE_QR 1
#define PE_LU 2

#if PE_KIND == PE_QR

/* Replaces m by r; below its diagonal are the reflections' vectors (1, v), of weight tau. */
static void PE_FN(reflect)(double *m, double *tau) {
    for (ptrdiff_t k = 0; k < PE_COLUMNS; k++) {
        double below = 0;
        for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
            below += m[i * PE_COLUMNS + k] * m[i * PE_COLUMNS + k];
        }
        const double first = m[k * PE_COLUMNS + k];
        tau[k] = 0;
        if (below == 0) {
            continue; /* already zero: the sign of the diagonal does not change */
        }
        const double size = -copysign(sqrt(first * first + below), first);
        tau[k] = (size - first) / size;
        m[k * PE_COLUMNS + k] = size;
        for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
            m[i * PE_COLUMNS + k] /= first - size;
        }
        for (ptrdiff_t j = k + 1; j < PE_COLUMNS; j++) {
            double sum = m[k * PE_COLUMNS + j];
            for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
                sum += m[i * PE_COLUMNS + k] * m[i * PE_COLUMNS + j];
            }
            m[k * PE_COLUMNS + j] -= tau[k] * sum;
            for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
                m[i * PE_COLUMNS + j] -= tau[k] * sum * m[i * PE_COLUMNS + k];
            }
        }
    }
}

/* Writes column j of q: the reflections, the last one first, of a column of the identity. */
static void PE_FN(column)(const double *m, const double *tau, const ptrdiff_t j, double *x,
                          float *y) {
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        x[i] = i == j;
    }
    for (ptrdiff_t k = j; k >= 0; k--) {
        double sum = x[k];
        for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
            sum += m[i * PE_COLUMNS + k] * x[i];
        }
        x[k] -= tau[k] * sum;
        for (ptrdiff_t i = k + 1; i < PE_ROWS; i++) {
            x[i] -= tau[k] * sum * m[i * PE_COLUMNS + k];
        }
    }
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        y[i * PE_COLUMNS + j] = (float)x[i];
    }
}

static void PE_FN(factor)(double *m, float *y) {
    double *tau = m + PE_ROWS * PE_COLUMNS, *x = tau + PE_COLUMNS;
    PE_FN(reflect)(m, tau);
    for (ptrdiff_t j = 0; j < PE_COLUMNS; j++) {
        PE_FN(column)(m, tau, j, x, y);
        for (ptrdiff_t i = 0; i < PE_COLUMNS; i++) {
            y[(PE_ROWS + i) * PE_COLUMNS + j] = i > j ? 0.0f : (float)m[i * PE_COLUMNS + j];
        }
    }
}

#else

#define PE_WIDTH (PE_COLUMNS + 2)

static void PE_FN(exchange)(double *m, double *order, const ptrdiff_t i, const ptrdiff_t j) {
    const double moved = order[i];
    order[i] = order[j];
    order[j] = moved;
    for (ptrdiff_t k = 0; k < PE_COLUMNS; k++) {
        const double kept = m[i * PE_COLUMNS + k];
        m[i * PE_COLUMNS + k] = m[j * PE_COLUMNS + k];
        m[j * PE_COLUMNS + k] = kept;
    }
}

static void PE_FN(factor)(double *m, float *y) {
    double *order = m + PE_ROWS * PE_COLUMNS;
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        order[i] = (double)i;
    }
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        ptrdiff_t best = i;
        for (ptrdiff_t j = i + 1; i < PE_COLUMNS && j < PE_ROWS; j++) {
            const double other = fabs(m[best * PE_COLUMNS + i]);
            best = fabs(m[j * PE_COLUMNS + i]) > other ? j : best;
        }
        y[i * PE_WIDTH + PE_COLUMNS + 1] = (float)best;
        if (i >= PE_COLUMNS || m[best * PE_COLUMNS + i] == 0) {
            continue;
        }
        PE_FN(exchange)(m, order, i, best);
        for (ptrdiff_t j = i + 1; j < PE_ROWS; j++) {
            const double factor = m[j * PE_COLUMNS + i] / m[i * PE_COLUMNS + i];
            m[j * PE_COLUMNS + i] = factor;
            for (ptrdiff_t k = i + 1; k < PE_COLUMNS; k++) {
                m[j * PE_COLUMNS + k] -= factor * m[i * PE_COLUMNS + k];
            }
        }
    }
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        for (ptrdiff_t k = 0; k < PE_COLUMNS; k++) {
            y[i * PE_WIDTH + k] = (float)m[i * PE_COLUMNS + k];
        }
        y[i * PE_WIDTH + PE_COLUMNS] = (float)order[i];
    }
}

#undef PE_WIDTH

#endif

PE_INLINE void PE_FN(run)(pe_worker *w, const float *a, const float *b, float *y,
                          const ptrdiff_t results, const ptrdiff_t room, double *scratch) {
    const pe_range share = pe_split(w, PE_COUNT, 1);
    (void)b;
    for (ptrdiff_t n = share.begin; n < share.end; n++) {
        double *m = scratch + n * room;
        int sound = 1;
        for (ptrdiff_t i = 0; i < PE_ROWS * PE_COLUMNS; i++) {
            m[i] = (double)a[n * PE_ROWS * PE_COLUMNS + i];
            sound &= fabs(m[i]) < (double)INFINITY;
        }
        if (sound) {
            PE_FN(factor)(m, y + n * results);
        }
        for (ptrdiff_t i = 0; !sound && i < results; i++) {
            y[n * results + i] = __builtin_nanf("");
        }
    }
}

#undef PE_COLUMNS
#undef PE_COUNT
#undef PE_KIND
#undef PE_LOWER
#undef PE_LU
#undef PE_QR
#undef PE_ROWS
#undef PE_SIDES
#undef PE_TRANSPOSED
#undef PE_UNIT
#include "undef.inc.h"
