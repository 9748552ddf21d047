/* Masks rows of attention's scores and takes their softmax: for attention.inc.h and
 * attention_dx.inc.h.
 *
 * A block has PE_BLOCK_ROWS rows of PE_PITCH floats. With PE_SKIPS a row sees no column after its
 * own number, with PE_LOOKS none after the last that the mask shows. The products of a block
 * extend to its `reach`: the columns up to it are set to zero.
 */

#if !defined(PE_CAUSAL) || !defined(PE_FORWARD) || !defined(PE_HIDES) || !defined(PE_LOOKS)
#error "attention_rows.inc.h needs PE_CAUSAL, PE_FORWARD, PE_HIDES and PE_LOOKS"
#endif
#if !defined(PE_MASK) || !defined(PE_MASK_STEP) || !defined(PE_SKIPS) || !defined(PE_TILES)
#error "attention_rows.inc.h needs PE_MASK, PE_MASK_STEP, PE_SKIPS and PE_TILES"
#endif

#define PE_MASK_NONE 0
#define PE_MASK_ADDED 1
#define PE_MASK_SEEN 2

#if PE_TILES
#include "pe_amx.h"
#endif

/* Configures this thread's tile registers; returns whether it has any. */
PE_INLINE int PE_FN(begin_tiles)(void) {
#if PE_TILES
    return pe_amx_begin();
#else
    return 0;
#endif
}

PE_INLINE void PE_FN(end_tiles)(const int tiles) {
    (void)tiles;
#if PE_TILES
    pe_amx_end(tiles);
#endif
}

PE_INLINE ptrdiff_t PE_FN(least)(const ptrdiff_t a, const ptrdiff_t b) { return a < b ? a : b; }

/* The number of columns up to the last one that a row sees. */
PE_INLINE ptrdiff_t PE_FN(seen)(const PE_MASK_TYPE *mask, const ptrdiff_t row) {
    ptrdiff_t end = PE_SKIPS ? PE_FN(least)(row + 1, PE_COLUMNS) : PE_COLUMNS;
    (void)mask;
#if PE_LOOKS
    for (uint64_t eight = 0; end >= 8; end -= 8) {
        memcpy(&eight, mask + end - 8, 8);
        if (eight != 0) {
            break;
        }
    }
    while (end > 0 && !mask[end - 1]) {
        end--;
    }
#endif
    return end;
}

/* Finds the columns that each row of a block sees; returns the number that its products need. */
PE_INLINE ptrdiff_t PE_FN(look)(const PE_MASK_TYPE *mask, const ptrdiff_t begin,
                                const ptrdiff_t rows, ptrdiff_t *seen) {
    ptrdiff_t most = 0;
    for (ptrdiff_t i = 0; i < rows; i++) {
        seen[i] = PE_FN(seen)(mask + (begin + i) * PE_MASK_ROW, begin + i);
        most = seen[i] > most ? seen[i] : most;
    }
    return PE_FN(least)((most + PE_REACH - 1) / PE_REACH * PE_REACH, PE_COLUMNS);
}

#if PE_HIDES
/* A mask of those of `lanes` columns, from `column` on, whose score comes from the product. */
PE_INLINE pe_vi PE_FN(shown)(const PE_MASK_TYPE *mask, const ptrdiff_t row, const ptrdiff_t column,
                             const int lanes) {
    pe_vi shown = pe_splat_i(-1);
    (void)mask, (void)row, (void)column, (void)lanes;
#if PE_MASK == PE_MASK_SEEN
#if PE_MASK_STEP
    shown = pe_load_part_b(mask + column, lanes);
#else
    shown = pe_splat_i(-(int32_t)mask[0]);
#endif
#endif
#if PE_CAUSAL && !PE_SKIPS
    const ptrdiff_t within = row + 1 - column;
    shown &= pe_first_lanes((int)(within < 0 ? 0 : PE_FN(least)(within, PE_VL)));
#endif
    return shown;
}
#endif

/* Scaled and masked scores of `lanes` columns; the lanes after them are -infinity. */
PE_INLINE pe_vf PE_FN(score)(const float *scores, const PE_MASK_TYPE *mask, const ptrdiff_t row,
                             const ptrdiff_t column, const int lanes) {
    (void)mask, (void)row;
    pe_vf v = pe_load(scores + column) * PE_SCALE;
#if PE_MASK == PE_MASK_ADDED
#if PE_MASK_STEP
    v += pe_load_part(mask + column, lanes);
#else
    v += mask[0];
#endif
#endif
#if PE_HIDES
    v = pe_select(PE_FN(shown)(mask, row, column, lanes), v, pe_splat(PE_HIDDEN));
#endif
    return lanes < PE_VL ? pe_select(pe_first_lanes(lanes), v, pe_splat(-__builtin_inff())) : v;
}

PE_INLINE int PE_FN(lanes)(const ptrdiff_t left) { return (int)PE_FN(least)(left, PE_VL); }

/* Stores factor exp(score - most) of `lanes` columns, and adds up what is multiplied. */
PE_INLINE pe_vf PE_FN(power)(float *scores, const PE_MASK_TYPE *mask, const ptrdiff_t row,
                             const ptrdiff_t column, const int lanes, const float most,
                             const float factor) {
    pe_vf e = pe_exp(PE_FN(score)(scores, mask, row, column, lanes) - most);
    if (lanes < PE_VL) {
        e = pe_select(pe_first_lanes(lanes), e, pe_zero());
    }
    pe_store(scores + column, e * factor);
    return e;
}

/* Stores factor exp(score - most), and zeros up to `reach`; returns the sum without the factor. */
PE_INLINE float PE_FN(powers)(float *scores, const PE_MASK_TYPE *mask, const ptrdiff_t row,
                              const ptrdiff_t seen, const ptrdiff_t reach, const float most,
                              const float factor) {
    pe_vf sum = pe_zero();
    ptrdiff_t i = 0;
    for (; i + PE_VL <= seen; i += PE_VL) {
        sum += PE_FN(power)(scores, mask, row, i, PE_VL, most, factor);
    }
    if (i < seen) {
        sum += PE_FN(power)(scores, mask, row, i, (int)(seen - i), most, factor);
        i += PE_VL;
    }
    for (; i < reach; i += PE_VL) {
        pe_store(scores + i, pe_zero());
    }
    return pe_sum(sum);
}

#if PE_FORWARD
PE_INLINE float PE_FN(most)(const float *scores, const PE_MASK_TYPE *mask, const ptrdiff_t row,
                            const ptrdiff_t seen) {
    pe_vf most = pe_splat(-__builtin_inff());
    ptrdiff_t i = 0;
    for (; i + PE_VL <= seen; i += PE_VL) {
        most = pe_maximum(most, PE_FN(score)(scores, mask, row, i, PE_VL));
    }
    if (i < seen) {
        most = pe_maximum(most, PE_FN(score)(scores, mask, row, i, (int)(seen - i)));
    }
    float largest = most[0];
    for (int i = 1; i < PE_VL; i++) {
        largest = most[i] > largest || most[i] != most[i] ? most[i] : largest;
    }
    return largest;
}
#elif PE_HIDES
/* Zeroes the gradients of hidden scores, which are constants. */
PE_INLINE void PE_FN(hide)(float *dscores, const PE_MASK_TYPE *mask, const ptrdiff_t row,
                           const ptrdiff_t seen) {
    for (ptrdiff_t i = 0; i < seen; i += PE_VL) {
        const ptrdiff_t left = seen - i;
        const pe_vi shown = left < PE_VL ? PE_FN(shown)(mask, row, i, (int)left)
                                         : PE_FN(shown)(mask, row, i, PE_VL);
        pe_store(dscores + i, pe_select(shown, pe_load(dscores + i), pe_zero()));
    }
}
#endif
