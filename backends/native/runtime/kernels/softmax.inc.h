/* Rows of probabilities: softmax, log-softmax, and cross entropy with its gradient.
 *
 * Each row is read three times, twice from the cache: maximum, sum of exp, result; softmax stores
 * the exp in its result. PE_KIND selects the last step. Rows with the label PE_IGNORE are skipped;
 * any other label outside the classes gives NaN, never an access outside the row.
 *
 * Parameters: PE_FN(name), PE_VL, PE_ROWS, PE_COLUMNS, PE_KIND, PE_LABEL (C type of labels),
 * PE_IGNORE.
 */

#if !defined(PE_KIND) || !defined(PE_COLUMNS) || !defined(PE_VL)
#error "softmax.inc.h needs PE_KIND, PE_COLUMNS and PE_VL"
#endif

#define PE_SOFTMAX 1
#define PE_LOG_SOFTMAX 2
#define PE_CROSS_ENTROPY 3
#define PE_CROSS_ENTROPY_DX 4

#define PE_TAIL (PE_COLUMNS % PE_VL)
#define PE_WHOLE (PE_COLUMNS - PE_TAIL)

/* Fetches the next row while this one's exponentials are computed, where rows are long. */
#if PE_VL > 4 && PE_COLUMNS >= 4096
#define PE_FETCH_NEXT(x) __builtin_prefetch((x) + PE_COLUMNS)
#else
#define PE_FETCH_NEXT(x) (void)(x)
#endif

PE_INLINE float PE_FN(maximum)(const float *x) {
    pe_vf most = pe_splat(-__builtin_inff());
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        most = pe_maximum(most, pe_load(x + i));
    }
    if (PE_TAIL) {
        const pe_vf v = pe_load_part(x + PE_WHOLE, PE_TAIL);
        most = pe_maximum(most, pe_select(pe_first_lanes(PE_TAIL), v, pe_splat(x[PE_WHOLE])));
    }
    float largest = most[0];
    for (int i = 1; i < PE_VL; i++) {
        largest = most[i] > largest || most[i] != most[i] ? most[i] : largest;
    }
    return largest;
}

/* Sum of exp(x - largest). */
PE_INLINE float PE_FN(total)(const float *x, const float largest) {
    pe_vf sum = pe_zero();
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        PE_FETCH_NEXT(x + i);
        sum += pe_exp(pe_load(x + i) - largest);
    }
    if (PE_TAIL) {
        const pe_vf e = pe_exp(pe_load_part(x + PE_WHOLE, PE_TAIL) - largest);
        sum += pe_select(pe_first_lanes(PE_TAIL), e, pe_zero());
    }
    return pe_sum(sum);
}

PE_INLINE float PE_FN(log)(const float x) {
    const pe_vf v = pe_log(pe_splat(x));
    return v[0];
}

#if PE_KIND == PE_LOG_SOFTMAX

PE_INLINE void PE_FN(row)(const float *x, float *y) {
    const float largest = PE_FN(maximum)(x);
    const float log_total = PE_FN(log)(PE_FN(total)(x, largest));
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        pe_store(y + i, pe_load(x + i) - largest - log_total);
    }
    if (PE_TAIL) {
        const pe_vf v = pe_load_part(x + PE_WHOLE, PE_TAIL) - largest - log_total;
        pe_store_part(y + PE_WHOLE, v, PE_TAIL);
    }
}

#elif PE_KIND != PE_CROSS_ENTROPY

/* Stores exp(x - largest), and returns their sum. */
PE_INLINE float PE_FN(exponentials)(const float *x, float *y, const float largest) {
    pe_vf sum = pe_zero();
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        PE_FETCH_NEXT(x + i);
        const pe_vf e = pe_exp(pe_load(x + i) - largest);
        pe_store(y + i, e);
        sum += e;
    }
    if (PE_TAIL) {
        const pe_vf e = pe_exp(pe_load_part(x + PE_WHOLE, PE_TAIL) - largest);
        pe_store_part(y + PE_WHOLE, e, PE_TAIL);
        sum += pe_select(pe_first_lanes(PE_TAIL), e, pe_zero());
    }
    return pe_sum(sum);
}

/* One row of softmax, times `scale`. */
PE_INLINE void PE_FN(row)(const float *x, float *y, const float scale) {
    const float share = scale / PE_FN(exponentials)(x, y, PE_FN(maximum)(x));
    for (ptrdiff_t i = 0; i < PE_WHOLE; i += PE_VL) {
        pe_store(y + i, pe_load(y + i) * share);
    }
    if (PE_TAIL) {
        pe_store_part(y + PE_WHOLE, pe_load_part(y + PE_WHOLE, PE_TAIL) * share, PE_TAIL);
    }
}

#endif

#if PE_KIND == PE_CROSS_ENTROPY || PE_KIND == PE_CROSS_ENTROPY_DX

PE_INLINE int PE_FN(inside)(const PE_LABEL label) { return label >= 0 && label < PE_COLUMNS; }

PE_INLINE ptrdiff_t PE_FN(counted)(const PE_LABEL *labels) {
    ptrdiff_t count = 0;
    for (ptrdiff_t row = 0; row < PE_ROWS; row++) {
        count += labels[row] != PE_IGNORE;
    }
    return count;
}

#endif

#if PE_KIND == PE_CROSS_ENTROPY

PE_INLINE void PE_FN(run)(pe_worker *w, const float *logits, const PE_LABEL *labels, float *loss,
                          float *row_loss) {
    const pe_range share = pe_split(w, PE_ROWS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        const float *x = logits + row * PE_COLUMNS;
        const float largest = PE_FN(maximum)(x);
        const float log_total = PE_FN(log)(PE_FN(total)(x, largest));
        row_loss[row] =
            PE_FN(inside)(labels[row]) ? log_total + largest - x[labels[row]] : __builtin_nanf("");
    }
    pe_barrier(w);
    if (w->index == 0) {
        double sum = 0;
        for (ptrdiff_t row = 0; row < PE_ROWS; row++) {
            sum += labels[row] != PE_IGNORE ? (double)row_loss[row] : 0.0;
        }
        loss[0] = (float)(sum / (double)PE_FN(counted)(labels));
    }
}

#elif PE_KIND == PE_CROSS_ENTROPY_DX

PE_INLINE void PE_FN(run)(const pe_worker *w, const float *logits, const PE_LABEL *labels,
                          const float *dy, float *dx) {
    const pe_range share = pe_split(w, PE_ROWS, 1);
    const ptrdiff_t count = PE_FN(counted)(labels);
    const float scale = dy[0] / (float)(count > 0 ? count : 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        float *const out = dx + row * PE_COLUMNS;
        if (labels[row] == PE_IGNORE) {
            memset(out, 0, sizeof(float) * PE_COLUMNS);
            continue;
        }
        const int inside = PE_FN(inside)(labels[row]);
        PE_FN(row)(logits + row * PE_COLUMNS, out, inside ? scale : __builtin_nanf(""));
        if (inside) {
            out[labels[row]] -= scale;
        }
    }
}

#else

PE_INLINE void PE_FN(run)(const pe_worker *w, const float *x, float *y) {
    const pe_range share = pe_split(w, PE_ROWS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
#if PE_KIND == PE_SOFTMAX
        PE_FN(row)(x + row * PE_COLUMNS, y + row * PE_COLUMNS, 1.0f);
#else
        PE_FN(row)(x + row * PE_COLUMNS, y + row * PE_COLUMNS);
#endif
    }
}

#endif

#undef PE_COLUMNS
#undef PE_FETCH_NEXT
#undef PE_IGNORE
#undef PE_KIND
#undef PE_LABEL
#undef PE_ROWS
#undef PE_TAIL
#undef PE_WHOLE
#include "undef.inc.h"
