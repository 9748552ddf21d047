/* Matrix multiply: y = epilogue(A B) for PE_BATCH pairs of matrices of constant shape.
 *
 * Threads share the rows (in tiles), the columns (in panels), or the inner dimension; the last is
 * for small results with a long inner dimension, such as weight gradients: each thread sums its own
 * steps into scratch, then the team adds up the parts. Blocks of PE_KB steps and PE_MB rows keep a
 * panel of B and the rows of A that it multiplies in the cache.
 *
 * Parameters, besides those of gemm_tile.inc.h:
 *   PE_BATCH, PE_A_BATCH(i), PE_B_BATCH(i)  pairs, and the offsets of the matrices of pair i
 *   PE_K, PE_KB      inner dimension and steps in a block
 *   PE_MB            rows in a block, whole tiles of them
 *   PE_SPLIT         PE_SPLIT_ROWS, PE_SPLIT_COLUMNS or PE_SPLIT_INNER
 *   PE_THREADS       maximum number of threads that take part
 *   PE_PART_FLOATS   PE_SPLIT_INNER: scratch of each thread for its sums
 *   PE_PANEL_FLOATS  PE_B_TRANSPOSED, PE_B_COPIED, PE_B_BITS, PE_A_COPIED: scratch of each thread
 *                    for a panel, and from PE_ROWS_AT on for the rows of a block
 *
 * With PE_PAIRS, PE_K counts pairs, and PE_FN(pair_operands) first converts f32 matrices of
 * PE_F32_K steps to pairs: rows of A of PE_F32_K elements, or steps of PE_M where PE_A_ROW is 1;
 * of B likewise steps of PE_N elements, or rows where it is transposed. With PE_B_IN_PLACE (default
 * 0) a B of 16 bits consists of pairs already.
 */

#if !defined(PE_SPLIT)
#error "gemm.inc.h needs PE_SPLIT"
#endif

#ifndef PE_B_IN_PLACE
#define PE_B_IN_PLACE 0
#endif
#define PE_OUTPUT_ROW(i) (t->row + (i))
#define PE_PARTIAL_PITCH PE_N
#define PE_OTHER_M PE_M
#define PE_SEGMENTED 0
#include "team.inc.h"

#include "gemm_tile.inc.h"

#define PE_ROW_TILES ((PE_M + PE_MR - 1) / PE_MR)
#define PE_STEP_GRAIN (PE_B_DECODED ? 32 : 1) /* threads share whole blocks of B's codes */

/* Steps k_begin to k_end of a block whose rows and panels are set; the last step is PE_K's. */
PE_INLINE void PE_FN(steps)(PE_FN(block_args) * t, const float *a, const float *b,
                            const ptrdiff_t k_begin, const ptrdiff_t k_end, const int unfinished) {
    for (ptrdiff_t k = k_begin; k < k_end; k += PE_KB) {
        t->a = a + k * PE_A_STEP;
#if PE_B_DECODED
        (void)b;
        t->step = k;
#else
        t->b = b + k * (PE_B_TRANSPOSED ? 1 : PE_B_PITCH);
#endif
        t->depth = (int)(k_end - k < PE_KB ? k_end - k : PE_KB);
        t->first = k == k_begin;
        t->last = !unfinished && k + PE_KB >= k_end;
        PE_FN(block)(t);
    }
}

#if PE_PAIRS
/* Converts all steps of a matrix to pairs, as a team; `by_rows` if a row contains all its steps. */
PE_INLINE void PE_FN(pair)(const pe_worker *w, float *to, const float *from, const int by_rows,
                           const ptrdiff_t rows) {
    const pe_range share = pe_split(w, by_rows ? rows : PE_K, 1);
    for (ptrdiff_t i = share.begin; i < share.end; i++) {
        if (by_rows) {
            pe_pair_neighbors(to + i * PE_K, from + i * PE_F32_K, PE_F32_K);
        } else {
            const float *first = from + 2 * i * rows;
            pe_pair_rows(to + i * rows, first, 2 * i + 1 < PE_F32_K ? first + rows : NULL, rows);
        }
    }
}

#if PE_B_BITS
/* Decodes B and converts its steps to pairs, as a team. */
PE_INLINE void PE_FN(pair_stored)(const pe_worker *w, const PE_FN(io) * io, float *to) {
    const pe_range share = pe_split(w, PE_B_TRANSPOSED ? PE_N : PE_K, 1);
    float scales[PE_BLOCK] = {0}, first[PE_BLOCK], second[PE_BLOCK];
    for (ptrdiff_t i = share.begin; i < share.end; i++) {
        const ptrdiff_t row = PE_B_TRANSPOSED ? i : 2 * i;
        for (ptrdiff_t column = 0; column < PE_S_PITCH; column += PE_BLOCK) {
            const ptrdiff_t left = PE_S_PITCH - column;
            const int count = left < PE_BLOCK ? (int)left : PE_BLOCK;
            PE_FN(part_scales)(io, scales, row, column, count);
            PE_FN(decode_part)(io, first, row, column, scales, count);
            if (PE_B_TRANSPOSED) {
                pe_pair_neighbors(to + i * PE_K + column / 2, first, count);
                continue;
            }
            const int paired = row + 1 < PE_F32_K;
            if (paired) {
                PE_FN(part_scales)(io, scales, row + 1, column, count);
                PE_FN(decode_part)(io, second, row + 1, column, scales, count);
            }
            pe_pair_rows(to + i * PE_N + column, first, paired ? second : NULL, count);
        }
    }
}
#endif

PE_INLINE void PE_FN(pair_operands)(pe_worker *w, const PE_FN(io) * io, float *a_pairs,
                                    float *b_pairs, const float *a, const float *b) {
    (void)io, (void)b, (void)b_pairs;
    PE_FN(pair)(w, a_pairs, a, PE_A_STEP == 1, PE_M);
#if !PE_B_BITS
    PE_FN(pair)(w, b_pairs, b, PE_B_TRANSPOSED, PE_N);
#elif !PE_B_IN_PLACE
    PE_FN(pair_stored)(w, io, b_pairs);
#endif
    pe_barrier(w);
}
#endif

#if PE_SPLIT == PE_SPLIT_INNER

#define PE_OUT_ROWS PE_M
#define PE_OUT_C PE_N
#include "add_parts.inc.h"

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *a, const float *b,
                          float *partial, float *panels) {
    (void)partial, (void)panels;
    const pe_range share = PE_FN(share)(w, PE_K, PE_STEP_GRAIN);
    if (w->index < PE_THREADS) {
        float *part = partial + w->index * (ptrdiff_t)PE_PART_FLOATS;
        PE_FN(block_args) t = {.io = io, .partial = part, .row_end = PE_M, .panel_end = PE_PANELS};
#if PE_B_PANEL
        t.panel = panels + w->index * (ptrdiff_t)PE_PANEL_FLOATS;
#endif
        PE_FN(steps)(&t, a, b, share.begin, share.end, 1);
        if (share.begin == share.end) {
            memset(part, 0, PE_PART_FLOATS * sizeof *part);
        }
    }
    pe_barrier(w);
    PE_FN(add_parts)(w, io, partial);
}

#else

#define PE_UNITS (PE_SPLIT == PE_SPLIT_ROWS ? PE_ROW_TILES : PE_PANELS)

/* Rows `begin` to `end` of one pair, block by block. */
PE_INLINE void PE_FN(row_blocks)(PE_FN(block_args) * t, const float *a, const float *b,
                                 const int begin, const int end) {
    for (int row = begin; row < end; row = t->row_end) {
        t->row_begin = row;
        t->row_end = end - row < PE_MB ? end : row + PE_MB;
        PE_FN(steps)(t, a, b, 0, PE_K, 0);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *a, const float *b,
                          float *partial, float *panels) {
    (void)partial, (void)panels;
    const pe_range share = PE_FN(share)(w, (ptrdiff_t)PE_BATCH * PE_UNITS, 1);
    PE_FN(block_args) t = {.io = io, .partial = partial, .panel_end = PE_PANELS};
#if PE_B_PANEL || PE_A_COPIED
    if (w->index < PE_THREADS) {
        t.panel = panels + w->index * (ptrdiff_t)PE_PANEL_FLOATS;
#if PE_A_COPIED
        t.rows = t.panel + PE_ROWS_AT;
#endif
    }
#endif
    for (ptrdiff_t unit = share.begin; unit < share.end;) {
        const ptrdiff_t batch = unit / PE_UNITS;
        const int begin = (int)(unit - batch * PE_UNITS);
        const ptrdiff_t rest = share.end - batch * PE_UNITS;
        const int end = (int)(rest < PE_UNITS ? rest : PE_UNITS);
#if PE_SPLIT == PE_SPLIT_ROWS
        const int first = begin * PE_MR, last = end == PE_UNITS ? PE_M : end * PE_MR;
#else
        const int first = 0, last = PE_M;
        t.panel_begin = begin;
        t.panel_end = end;
#endif
        t.row = batch * PE_M;
        PE_FN(row_blocks)(&t, a + PE_A_BATCH(batch), PE_B_DECODED ? b : b + PE_B_BATCH(batch),
                          first, last);
        unit += end - begin;
    }
}

#undef PE_UNITS
#endif

#undef PE_ROW_TILES
#undef PE_STEP_GRAIN
#include "undef.inc.h"
