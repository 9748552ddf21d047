/* Factors and equations of small matrices, in double precision; threads share the matrices.
 *
 * Cholesky's and triangular substitution, Gauss's elimination with the largest pivot of a column,
 * Jacobi's rotations for eigenvalues and, from one side, for singular values. Unsolvable systems
 * give NaN. compiler/ops/matrices.py defines the results.
 *
 * Parameters: PE_FN(name), PE_COUNT, PE_ROWS, PE_COLUMNS (of a), PE_SIDES (columns of b), PE_KIND;
 * for triangles PE_LOWER, PE_TRANSPOSED, PE_UNIT.
 */

#if !defined(PE_KIND)
#error "matrices.inc.h needs PE_KIND"
#endif

#include <math.h>

#define PE_CHOLESKY 1
#define PE_TRIANGULAR_SOLVE 2
#define PE_SOLVE 3
#define PE_SLOGDET 4
#define PE_EIGH 5
#define PE_SVD 6

#define PE_SWEEPS 60

#if PE_KIND == PE_CHOLESKY

static void PE_FN(one)(const float *a, const float *b, float *y, double *l) {
    (void)b;
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        for (ptrdiff_t j = 0; j <= i; j++) {
            double sum = (double)a[i * PE_ROWS + j];
            for (ptrdiff_t k = 0; k < j; k++) {
                sum -= l[i * PE_ROWS + k] * l[j * PE_ROWS + k];
            }
            l[i * PE_ROWS + j] = i > j     ? sum / l[j * PE_ROWS + j]
                                 : sum > 0 ? sqrt(sum)
                                           : (double)NAN;
        }
    }
    const int found = l[PE_ROWS * PE_ROWS - 1] == l[PE_ROWS * PE_ROWS - 1];
    for (ptrdiff_t i = 0; i < PE_ROWS * PE_ROWS; i++) {
        const int above = i % PE_ROWS > i / PE_ROWS;
        y[i] = !found ? __builtin_nanf("") : above ? 0.0f : (float)l[i];
    }
}

#elif PE_KIND == PE_TRIANGULAR_SOLVE

static void PE_FN(one)(const float *a, const float *b, float *y, double *x) {
    const int forward = PE_LOWER != PE_TRANSPOSED;
    for (ptrdiff_t side = 0; side < PE_SIDES; side++) {
        for (ptrdiff_t step = 0; step < PE_ROWS; step++) {
            const ptrdiff_t i = forward ? step : PE_ROWS - 1 - step;
            double sum = (double)b[i * PE_SIDES + side];
            for (ptrdiff_t past = 0; past < step; past++) {
                const ptrdiff_t j = forward ? past : PE_ROWS - 1 - past;
                sum -= (double)a[PE_TRANSPOSED ? j * PE_ROWS + i : i * PE_ROWS + j] * x[j];
            }
            const double pivot = PE_UNIT ? 1.0 : (double)a[i * PE_ROWS + i];
            x[i] = pivot == 0 ? (double)NAN : sum / pivot;
            y[i * PE_SIDES + side] = (float)x[i];
        }
    }
}

#elif PE_KIND == PE_SOLVE || PE_KIND == PE_SLOGDET

/* Eliminates below each pivot in rows of PE_WIDTH, of which the first PE_ROWS are the matrix.
 * Returns the sign of the exchanges, 0 for a singular matrix. */
#define PE_WIDTH (PE_ROWS + PE_SIDES)

static double PE_FN(eliminate)(double *m) {
    double sign = 1;
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        ptrdiff_t best = i;
        for (ptrdiff_t j = i + 1; j < PE_ROWS; j++) {
            best = fabs(m[j * PE_WIDTH + i]) > fabs(m[best * PE_WIDTH + i]) ? j : best;
        }
        if (m[best * PE_WIDTH + i] == 0) {
            return 0;
        }
        for (ptrdiff_t k = 0; best != i && k < PE_WIDTH; k++) {
            const double kept = m[i * PE_WIDTH + k];
            m[i * PE_WIDTH + k] = m[best * PE_WIDTH + k];
            m[best * PE_WIDTH + k] = kept;
        }
        sign = best == i ? sign : -sign;
        for (ptrdiff_t j = i + 1; j < PE_ROWS; j++) {
            const double factor = m[j * PE_WIDTH + i] / m[i * PE_WIDTH + i];
            for (ptrdiff_t k = i + 1; k < PE_WIDTH; k++) {
                m[j * PE_WIDTH + k] -= factor * m[i * PE_WIDTH + k];
            }
        }
    }
    return sign;
}

static void PE_FN(one)(const float *a, const float *b, float *y, double *m) {
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        for (ptrdiff_t k = 0; k < PE_WIDTH; k++) {
            m[i * PE_WIDTH + k] =
                k < PE_ROWS ? (double)a[i * PE_ROWS + k] : (double)b[i * PE_SIDES + k - PE_ROWS];
        }
    }
    double sign = PE_FN(eliminate)(m);
#if PE_KIND == PE_SLOGDET
    double size = sign == 0 ? -(double)INFINITY : 0;
    for (ptrdiff_t i = 0; sign != 0 && i < PE_ROWS; i++) {
        size += log(fabs(m[i * PE_WIDTH + i]));
    }
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        sign = m[i * PE_WIDTH + i] < 0 ? -sign : sign;
    }
    y[0] = size != size ? __builtin_nanf("") : (float)sign;
    y[1] = (float)size;
#else
    for (ptrdiff_t side = 0; side < PE_SIDES; side++) {
        for (ptrdiff_t i = PE_ROWS - 1; i >= 0; i--) {
            double *x = m + PE_ROWS + side;
            for (ptrdiff_t k = i + 1; k < PE_ROWS; k++) {
                x[i * PE_WIDTH] -= m[i * PE_WIDTH + k] * x[k * PE_WIDTH];
            }
            x[i * PE_WIDTH] /= m[i * PE_WIDTH + i];
            y[i * PE_SIDES + side] = sign == 0 ? __builtin_nanf("") : (float)x[i * PE_WIDTH];
        }
    }
#endif
}

#undef PE_WIDTH

#else

/* Rotates two vectors of `count` elements, `step` apart: (x, y) = (c x - s y, s x + c y). */
static void PE_FN(turn)(double *x, double *y, const ptrdiff_t count, const ptrdiff_t step,
                        const double c, const double s) {
    for (ptrdiff_t i = 0; i < count * step; i += step) {
        const double kept = x[i];
        x[i] = c * kept - s * y[i];
        y[i] = s * kept + c * y[i];
    }
}

/* The rotation that makes `both`, between `first` and `second`, zero; returns its tangent. */
static double PE_FN(tangent)(const double first, const double second, const double both) {
    const double half = (second - first) / (2 * both);
    return copysign(1, half) / (fabs(half) + sqrt(half * half + 1));
}

#if PE_KIND == PE_EIGH

#define PE_SIZE PE_ROWS

/* Diagonalizes the symmetric m by rotations; the rows of v become its eigenvectors. */
static void PE_FN(rotate)(double *m, double *v) {
    for (int sweep = 0; sweep < PE_SWEEPS; sweep++) {
        int turned = 0;
        for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
            for (ptrdiff_t j = i + 1; j < PE_SIZE; j++) {
                const double first = m[i * PE_SIZE + i], second = m[j * PE_SIZE + j];
                const double both = m[i * PE_SIZE + j];
                if (!(fabs(both) > 1e-17 * (fabs(first) + fabs(second)))) {
                    continue;
                }
                turned = 1;
                const double t = PE_FN(tangent)(first, second, both);
                const double c = 1 / sqrt(1 + t * t), s = t * c;
                PE_FN(turn)(m + i, m + j, PE_SIZE, PE_SIZE, c, s);
                PE_FN(turn)(m + i * PE_SIZE, m + j * PE_SIZE, PE_SIZE, 1, c, s);
                PE_FN(turn)(v + i * PE_SIZE, v + j * PE_SIZE, PE_SIZE, 1, c, s);
            }
        }
        if (!turned) {
            return;
        }
    }
}

static void PE_FN(one)(const float *a, const float *b, float *y, double *m) {
    double *v = m + PE_SIZE * PE_SIZE;
    int sound = 1;
    (void)b;
    for (ptrdiff_t i = 0; i < PE_SIZE * PE_SIZE; i++) {
        const ptrdiff_t row = i / PE_SIZE, column = i % PE_SIZE;
        m[i] = (double)a[row > column ? i : column * PE_SIZE + row];
        v[i] = row == column;
        sound &= fabs(m[i]) < (double)INFINITY;
    }
    if (sound) {
        PE_FN(rotate)(m, v);
    }
    for (ptrdiff_t place = 0; place < PE_SIZE; place++) {
        ptrdiff_t least = -1; /* the next eigenvalue; those already written are NaN */
        for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
            const double value = m[i * PE_SIZE + i];
            least = value == value && (least < 0 || value < m[least * PE_SIZE + least]) ? i : least;
        }
        least = least < 0 ? 0 : least;
        const double *vector = v + least * PE_SIZE;
        ptrdiff_t largest = 0;
        for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
            largest = fabs(vector[i]) > fabs(vector[largest]) ? i : largest;
        }
        const double sign = vector[largest] < 0 ? -1 : 1;
        y[place] = sound ? (float)m[least * PE_SIZE + least] : __builtin_nanf("");
        for (ptrdiff_t i = 0; i < PE_SIZE; i++) {
            y[(1 + i) * PE_SIZE + place] = sound ? (float)(sign * vector[i]) : __builtin_nanf("");
        }
        m[least * PE_SIZE + least] = (double)NAN;
    }
}

#undef PE_SIZE

#else

#define PE_TALL (PE_ROWS >= PE_COLUMNS)
#define PE_LONG (PE_TALL ? PE_ROWS : PE_COLUMNS)
#define PE_SHORT (PE_TALL ? PE_COLUMNS : PE_ROWS)

static double PE_FN(dot)(const double *x, const double *y) {
    double sum = 0;
    for (ptrdiff_t i = 0; i < PE_LONG; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

/* Makes the PE_SHORT vectors in m, of PE_LONG elements each, orthogonal; v has the rotations. */
static void PE_FN(rotate)(double *m, double *v) {
    for (int sweep = 0; sweep < PE_SWEEPS; sweep++) {
        int turned = 0;
        for (ptrdiff_t i = 0; i < PE_SHORT; i++) {
            for (ptrdiff_t j = i + 1; j < PE_SHORT; j++) {
                double *x = m + i * PE_LONG, *y = m + j * PE_LONG;
                const double first = PE_FN(dot)(x, x), second = PE_FN(dot)(y, y);
                const double both = PE_FN(dot)(x, y);
                if (!(fabs(both) > 1e-15 * sqrt(first * second))) {
                    continue;
                }
                turned = 1;
                const double t = PE_FN(tangent)(first, second, both);
                const double c = 1 / sqrt(1 + t * t), s = t * c;
                PE_FN(turn)(x, y, PE_LONG, 1, c, s);
                PE_FN(turn)(v + i * PE_SHORT, v + j * PE_SHORT, PE_SHORT, 1, c, s);
            }
        }
        if (!turned) {
            return;
        }
    }
}

/* Writes one singular value and its vectors, `own` of the long side, `other` of the short one. */
static void PE_FN(put)(const double *own, const double *other, const double value,
                       const ptrdiff_t place, float *y) {
    const double *left = PE_TALL ? own : other, scale = value > 0 ? 1 / value : 0;
    ptrdiff_t largest = 0;
    for (ptrdiff_t i = 0; i < PE_ROWS; i++) {
        largest = fabs(left[i]) > fabs(left[largest]) ? i : largest;
    }
    const double sign = left[largest] < 0 ? -1 : 1;
    y[place] = (float)value;
    for (ptrdiff_t i = 0; i < PE_LONG; i++) {
        y[(1 + (PE_TALL ? 0 : PE_ROWS) + i) * PE_SHORT + place] = (float)(sign * scale * own[i]);
    }
    for (ptrdiff_t i = 0; i < PE_SHORT; i++) {
        y[(1 + (PE_TALL ? PE_ROWS : 0) + i) * PE_SHORT + place] = (float)(sign * other[i]);
    }
}

static void PE_FN(one)(const float *a, const float *b, float *y, double *m) {
    double *v = m + PE_ROWS * PE_COLUMNS, *sizes = v + PE_SHORT * PE_SHORT;
    int sound = 1;
    (void)b;
    for (ptrdiff_t i = 0; i < PE_ROWS * PE_COLUMNS; i++) {
        const ptrdiff_t row = i / PE_COLUMNS, column = i % PE_COLUMNS;
        m[PE_TALL ? column * PE_LONG + row : row * PE_LONG + column] = (double)a[i];
        sound &= fabs((double)a[i]) < (double)INFINITY;
    }
    for (ptrdiff_t i = 0; i < PE_SHORT * PE_SHORT; i++) {
        v[i] = i / PE_SHORT == i % PE_SHORT;
    }
    for (ptrdiff_t i = 0; !sound && i < (1 + PE_ROWS + PE_COLUMNS) * PE_SHORT; i++) {
        y[i] = __builtin_nanf("");
    }
    if (!sound) {
        return;
    }
    PE_FN(rotate)(m, v);
    for (ptrdiff_t i = 0; i < PE_SHORT; i++) {
        sizes[i] = sqrt(PE_FN(dot)(m + i * PE_LONG, m + i * PE_LONG));
    }
    for (ptrdiff_t place = 0; place < PE_SHORT; place++) {
        ptrdiff_t most = 0; /* the next one; those already written are -1 */
        for (ptrdiff_t i = 1; i < PE_SHORT; i++) {
            most = sizes[i] > sizes[most] ? i : most;
        }
        PE_FN(put)(m + most * PE_LONG, v + most * PE_SHORT, sizes[most], place, y);
        sizes[most] = -1;
    }
}

#undef PE_LONG
#undef PE_SHORT
#undef PE_TALL

#endif
#endif

PE_INLINE void PE_FN(run)(pe_worker *w, const float *a, const float *b, float *y,
                          const ptrdiff_t results, const ptrdiff_t room, double *scratch) {
    const pe_range share = pe_split(w, PE_COUNT, 1);
    for (ptrdiff_t n = share.begin; n < share.end; n++) {
        PE_FN(one)(a + n * PE_ROWS * PE_COLUMNS, b + n * PE_ROWS * PE_SIDES, y + n * results,
                   scratch + n * room);
    }
}

#undef PE_CHOLESKY
#undef PE_COLUMNS
#undef PE_COUNT
#undef PE_EIGH
#undef PE_KIND
#undef PE_LOWER
#undef PE_ROWS
#undef PE_SIDES
#undef PE_SLOGDET
#undef PE_SOLVE
#undef PE_SVD
#undef PE_SWEEPS
#undef PE_TRANSPOSED
#undef PE_TRIANGULAR_SOLVE
#undef PE_UNIT
#include "undef.inc.h"
