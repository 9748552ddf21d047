/* Normalization of each row and its gradient; the formulas are in compiler/ops/layer_norm.py.
 *
 * A row is read repeatedly from the cache: for the mean, the variance and the result.
 *
 * Parameters: PE_FN(name), PE_VL, PE_ROWS, PE_COLUMNS, PE_CENTERED (1: the mean is subtracted).
 */
#define PE_TAIL (PE_COLUMNS % PE_VL)
#define PE_WHOLE (PE_COLUMNS - PE_TAIL)
#define PE_SHARE (1.0f / PE_COLUMNS)

/* Mean over a row of a[i] * b[i], or of a[i] if b is NULL. */
PE_INLINE float PE_FN(mean)(const float *a, const float *b) {
    pe_vf sum = pe_zero();
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        sum += b ? pe_load(a + i) * pe_load(b + i) : pe_load(a + i);
    }
    if (PE_TAIL) { /* lanes past the row are loaded as zeros */
        const pe_vf last = pe_load_part(a + PE_WHOLE, PE_TAIL);
        sum += b ? last * pe_load_part(b + PE_WHOLE, PE_TAIL) : last;
    }
    return pe_sum(sum) * PE_SHARE;
}

/* Mean of the squared deviations from `mean`. */
PE_INLINE float PE_FN(variance)(const float *x, const float mean) {
    pe_vf sum = pe_zero();
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        const pe_vf away = pe_load(x + i) - mean;
        sum += away * away;
    }
    if (PE_TAIL) {
        const pe_vf away = pe_load_part(x + PE_WHOLE, PE_TAIL) - mean;
        sum += pe_select(pe_first_lanes(PE_TAIL), away * away, pe_zero());
    }
    return pe_sum(sum) * PE_SHARE;
}

PE_INLINE void PE_FN(forward)(const pe_worker *w, const float *x, float *y, float *rstd,
                              const float eps) {
    const pe_range share = pe_split(w, PE_ROWS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        const float *from = x + row * PE_COLUMNS;
        float *to = y + row * PE_COLUMNS;
        const float mean = PE_CENTERED ? PE_FN(mean)(from, NULL) : 0.0f;
        const float scale = 1.0f / __builtin_sqrtf(PE_FN(variance)(from, mean) + eps);
        rstd[row] = scale;
        for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
            pe_store(to + i, (pe_load(from + i) - mean) * scale);
        }
        if (PE_TAIL) {
            const pe_vf last = pe_load_part(from + PE_WHOLE, PE_TAIL);
            pe_store_part(to + PE_WHOLE, (last - mean) * scale, PE_TAIL);
        }
    }
}

PE_INLINE void PE_FN(backward)(const pe_worker *w, const float *dy, const float *y,
                               const float *rstd, float *dx) {
    const pe_range share = pe_split(w, PE_ROWS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        const float *d = dy + row * PE_COLUMNS, *own = y + row * PE_COLUMNS;
        float *to = dx + row * PE_COLUMNS;
        const float mean = PE_CENTERED ? PE_FN(mean)(d, NULL) : 0.0f;
        const float along = PE_FN(mean)(d, own);
        for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
            const pe_vf moved = pe_load(d + i) - mean - pe_load(own + i) * along;
            pe_store(to + i, moved * rstd[row]);
        }
        if (PE_TAIL) {
            const pe_vf last = pe_load_part(own + PE_WHOLE, PE_TAIL) * along;
            const pe_vf moved = pe_load_part(d + PE_WHOLE, PE_TAIL) - mean - last;
            pe_store_part(to + PE_WHOLE, moved * rstd[row], PE_TAIL);
        }
    }
}

#undef PE_CENTERED
#undef PE_COLUMNS
#undef PE_ROWS
#undef PE_SHARE
#undef PE_TAIL
#undef PE_WHOLE
#include "undef.inc.h"
