/* The matrix multiply inside every matmul and convolution kernel: blocks of y = A B.
 *
 * A block is a run of rows times a run of column panels over `depth` steps of the inner dimension.
 * A tile of PE_MR rows and PE_NV vectors stays in registers over the whole depth; each step loads
 * one row of B and broadcasts one column of A. A finished tile is passed to the kernel's store
 * function, its epilogue, which writes the results; an unfinished one is stored in `partial` for
 * the next block.
 *
 * Parameters (constants, so that every loop over a tile unrolls):
 *   PE_FN(name)        name of a function of this kernel
 *   PE_VL              lanes
 *   PE_MR, PE_NV       rows and vectors of a tile
 *   PE_M, PE_N         rows and columns of a whole run, which determine the partial tiles
 *   PE_OTHER_M         rows of other runs, if there are two lengths; else PE_M
 *   PE_A_ROW, PE_A_STEP  strides of A between rows and between steps
 *   PE_B_PITCH         stride of B between steps
 *   PE_B_TRANSPOSED    1: B is N x K, and each panel is transposed into scratch before its use
 *   PE_B_BITS          bits of B's codes, of which each panel is decoded into scratch before its
 *                      use (gemm_decode_panel.inc.h). Default 0: B is f32
 *   PE_B_COPIED        panels that are copied to contiguous scratch together, before their use,
 *                      because their rows in B map to the same cache sets. Default 0: none
 *   PE_A_COPIED        1: the rows of each tile are copied into scratch, step by step, before a
 *                      block, because in A they map to few cache sets. Default 0
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)  the epilogue and the pointers it needs
 *   PE_STORE_PAIRS     1: PE_FN(store_pair)(...) is an epilogue of 8 lanes. Default 0
 *   PE_MOVES           defined: PE_FN(move)(io, row, column) moves the epilogue's pointers
 *   PE_AHEAD           1: PE_FN(ahead)(io, row, column) prefetches the epilogue's reads. Default 0
 *   PE_OUTPUT_ROW(row) row of the result for a row of the block
 *   PE_PARTIAL         1: sums may be unfinished at the end of a block
 *   PE_PARTIAL_PITCH   row length of `partial`
 *   PE_PAIRS           1: A and B are matrices of pairs (pe_bf16.h); lanes are 8 or 16. Default 0
 *   PE_SEGMENTED       1: A's steps are segments at given offsets, and its rows are several runs
 */

#if !defined(PE_A_ROW) || !defined(PE_A_STEP) || !defined(PE_B_TRANSPOSED)
#error "gemm_tile.inc.h needs PE_A_ROW, PE_A_STEP and PE_B_TRANSPOSED"
#endif
#if !defined(PE_PARTIAL) || !defined(PE_SEGMENTED) || !defined(PE_VL)
#error "gemm_tile.inc.h needs PE_PARTIAL, PE_SEGMENTED and PE_VL"
#endif

#include "pe_prefetch.h"
#include "pe_transpose.h"

#ifndef PE_STORE_PAIRS
#define PE_STORE_PAIRS 0
#endif
#ifndef PE_AHEAD
#define PE_AHEAD 0
#endif
#ifndef PE_B_COPIED
#define PE_B_COPIED 0
#endif
#ifndef PE_B_BITS
#define PE_B_BITS 0
#endif
#ifndef PE_PAIRS
#define PE_PAIRS 0
#endif
#define PE_B_DECODED (PE_B_BITS && !PE_PAIRS)
#define PE_B_PANEL (PE_B_TRANSPOSED || PE_B_COPIED || PE_B_DECODED)
#ifndef PE_A_COPIED
#define PE_A_COPIED 0
#endif
#define PE_TILE_ROW (PE_A_COPIED ? 1 : PE_A_ROW)
#define PE_TILE_STEP (PE_A_COPIED ? PE_MR : PE_A_STEP)
#if PE_PAIRS
#include "pe_bf16.h"
#define PE_ADD_PRODUCT(sum, v, x) pe_dot_pairs(sum, v, x)
#else
#define PE_ADD_PRODUCT(sum, v, x) ((sum) + (v) * (x))
#endif

#define PE_NR (PE_NV * PE_VL)
#define PE_PANELS ((PE_N + PE_NR - 1) / PE_NR)
#define PE_TAIL_COLUMNS (PE_N % PE_NR)
#define PE_TAIL_ROWS (PE_M % PE_MR)
#define PE_OTHER_TAIL_ROWS (PE_OTHER_M % PE_MR)
#define PE_TAIL_VECTORS ((PE_TAIL_COLUMNS + PE_VL - 1) / PE_VL)
#define PE_TAIL_LANES (PE_TAIL_COLUMNS % PE_VL ? PE_TAIL_COLUMNS % PE_VL : PE_VL)

#if PE_SEGMENTED
#define PE_RUN(t, field) ((t)->field)
#else
#define PE_RUN(t, field) 1 /* one run */
#endif

/* Arguments of one block; everything else is constant. Rows count from `a`, columns from `b`. */
typedef struct PE_FN(block_args) {
    const PE_FN(io) * io;
    const float *a, *b;
#if PE_B_DECODED
    ptrdiff_t step; /* the block's first, for which B has no address */
#endif
    float *partial; /* unfinished sums, indexed by output row and by column */
    float *panel;   /* scratch of depth x PE_NR for each panel of B that is copied */
    float *rows;    /* PE_A_COPIED: scratch for depth x all rows of the block, tile by tile */
    ptrdiff_t row;  /* output row of row 0 */
    int column;     /* output column of column 0 */
    int row_begin, row_end, panel_begin, panel_end;
    int depth;       /* steps, or those of each segment */
    int first, last; /* whether the inner dimension starts, and ends, with this block */
#if PE_SEGMENTED
    const int32_t *segments; /* where each segment's steps start in A, which B's follow in order */
    int segment_count;
    ptrdiff_t b_segment; /* from one segment's first row of B to the next's */
    int runs;            /* runs of rows, and the gaps between them in A and in the result */
    ptrdiff_t a_run, row_run;
#endif
} PE_FN(block_args);

PE_INLINE void PE_FN(load_b)(pe_vf *v, const float *b, const int vectors, const int lanes) {
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        v[j] = pe_load_part(b + j * PE_VL, j == vectors - 1 ? lanes : PE_VL);
    }
}

#include "gemm_steps.inc.h"

#if PE_PARTIAL
/* The place in `partial` of the sums of a row and column. */
PE_INLINE float *PE_FN(waiting)(const PE_FN(block_args) * t, const int row, const int column,
                                const int run) {
    const ptrdiff_t out = PE_OUTPUT_ROW(row) + run * PE_RUN(t, row_run);
    (void)run;
    return t->partial + out * PE_PARTIAL_PITCH + t->column + column;
}
#endif

/* Clears the sums, and prefetches what will be added to them or read by their epilogue. */
PE_INLINE void PE_FN(clear)(const PE_FN(block_args) * t, pe_vf c[PE_MR][PE_NV], const int row,
                            const int column, const int rows, const int vectors, const int run) {
    (void)t, (void)row, (void)column, (void)run;
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            c[i][j] = pe_zero();
#if PE_PARTIAL && PE_VL > 4
            if (!t->first) {
                __builtin_prefetch(PE_FN(waiting)(t, row + i, column + j * PE_VL, run));
            }
#endif
#if PE_AHEAD
            if (!PE_PARTIAL || t->last) {
                PE_FN(ahead)(t->io, PE_OUTPUT_ROW(row + i) + run * PE_RUN(t, row_run),
                             t->column + column + j * PE_VL);
            }
#endif
        }
    }
}

#define PE_NEAR_ROWS (PE_PAIR_REACH / (4 * PE_N) + 1) /* those that a pair store reaches */
#if !PE_PARTIAL
/* Runs the epilogue of a row of a tile, by pairs of vectors where pair stores exist. */
PE_INLINE void PE_FN(store_row)(const PE_FN(io) * io, const pe_vf *c, const ptrdiff_t row,
                                const int column, const int vectors, const int lanes) {
    int j = 0;
#if PE_STORE_PAIRS && PE_VL == 4
    PE_UNROLL
    for (; j + 2 <= vectors - (lanes < PE_VL); j += 2) {
        const pe_vf8 pair = __builtin_shufflevector(c[j], c[j + 1], 0, 1, 2, 3, 4, 5, 6, 7);
        PE_FN(store_pair)(io, pair, row, column + j * PE_VL, 8);
    }
#endif
    PE_UNROLL
    for (; j < vectors; j++) {
        PE_FN(store)(io, c[j], row, column + j * PE_VL, j == vectors - 1 ? lanes : PE_VL);
    }
}
#endif

#if !PE_PARTIAL && defined(PE_MOVES) && PE_NEAR_ROWS > 2
/* Runs the epilogue of a tile. Moving pointers pays for more rows than two. */
PE_INLINE void PE_FN(store_tile)(const PE_FN(block_args) * t, pe_vf c[PE_MR][PE_NV], const int row,
                                 const int column, const int rows, const int vectors,
                                 const int lanes, const int run) {
    PE_FN(io) io = *t->io;
    PE_FN(move)(&io, PE_OUTPUT_ROW(row) + run * PE_RUN(t, row_run), t->column + column);
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        const int first = row + i - i % PE_NEAR_ROWS;
        if (i > 0 && first == row + i) {
            PE_FN(move)(&io, PE_OUTPUT_ROW(first) - PE_OUTPUT_ROW(first - PE_NEAR_ROWS), 0);
        }
        const ptrdiff_t after = PE_OUTPUT_ROW(row + i) - PE_OUTPUT_ROW(first);
        PE_FN(store_row)(&io, c[i], after, 0, vectors, lanes);
    }
}
#endif

/* One tile from its first step to its epilogue, or from and to its partial sums. */
PE_INLINE void PE_FN(tile)(const PE_FN(block_args) * t, const float *b, const int row,
                           const int column, const int rows, const int vectors, const int lanes,
                           const int run) {
    pe_vf c[PE_MR][PE_NV];
    PE_FN(clear)(t, c, row, column, rows, vectors, run);
    const ptrdiff_t pitch = PE_B_PANEL ? PE_NR : PE_B_PITCH;
    const int valid = PE_B_PANEL ? PE_VL : lanes;
#if PE_A_COPIED
    const float *a = t->rows + (row - t->row_begin) * (ptrdiff_t)t->depth;
#else
    const float *a = t->a + row * (ptrdiff_t)PE_A_ROW + run * PE_RUN(t, a_run);
#endif
#if PE_SEGMENTED
    for (int s = 0; s < t->segment_count; s++) {
        PE_FN(multiply)(c, a + t->segments[s], b + s * t->b_segment, pitch, t->depth, rows, vectors,
                        valid);
    }
#else
    PE_FN(multiply)(c, a, b, pitch, t->depth, rows, vectors, valid);
#endif
#if !PE_PARTIAL && defined(PE_MOVES) && PE_NEAR_ROWS > 2
    PE_FN(store_tile)(t, c, row, column, rows, vectors, lanes, run);
#else
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        const ptrdiff_t out = PE_OUTPUT_ROW(row + i) + run * PE_RUN(t, row_run);
#if PE_PARTIAL
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            const int n = j == vectors - 1 ? lanes : PE_VL;
            const int at = column + j * PE_VL;
            float *waiting = PE_FN(waiting)(t, row + i, at, run);
            if (!t->first) {
                c[i][j] += pe_load_part(waiting, n);
            }
            if (!t->last) {
                pe_store_part(waiting, c[i][j], n);
                continue;
            }
            PE_FN(store)(t->io, c[i][j], out, t->column + at, n);
        }
#else
        PE_FN(store_row)(t->io, c[i], out, t->column + column, vectors, lanes);
#endif
    }
#endif
}

#if PE_B_BITS
#include "gemm_decode_panel.inc.h"
#endif

#if PE_B_PANEL && PE_VL > 4
/* Prefetches a part of the next panel at each row, 16 steps at a time, because the panel is copied
 * after this one's last row. 1.2 times as fast with 128 rows if B is in no cache. */
PE_INLINE void PE_FN(fetch_next)(const PE_FN(block_args) * t, const int panel, const int row) {
    const int rows = t->row_end - t->row_begin, groups = (t->depth + 15) / 16;
    const int begin = (row - t->row_begin) * groups / rows;
    const int due = (row + PE_MR - t->row_begin) * groups / rows;
    const ptrdiff_t columns = (panel + 1) * PE_NR;
    for (int k = 16 * begin; panel + 1 < t->panel_end && k < 16 * due; k += 16) {
#if PE_B_DECODED && PE_B_TRANSPOSED
        for (int j = 0; j < PE_NR && k % 64 == 0; j++) {
            __builtin_prefetch(PE_FN(code)(t->io, columns + j, t->step + k));
        }
#elif PE_B_DECODED
        for (int i = 0; i < 16; i++) {
            __builtin_prefetch(PE_FN(code)(t->io, t->step + k + i, columns));
        }
#elif PE_B_TRANSPOSED
        for (int j = 0; j < PE_NR; j++) {
            __builtin_prefetch(t->b + (columns + j) * PE_B_PITCH + k);
        }
#else
        for (int i = 0; i < 16; i++) {
            for (int j = 0; j < PE_NR; j += 16) {
                __builtin_prefetch(t->b + (k + i) * (ptrdiff_t)PE_B_PITCH + columns + j);
            }
        }
#endif
    }
}
#endif

#if PE_B_COPIED
/* Copies row k of a panel. */
PE_INLINE void PE_FN(copy_row)(float *to, const float *from, const int vectors, const int lanes) {
    pe_vf row[PE_NV];
    PE_FN(load_b)(row, from, vectors, lanes);
    PE_UNROLL
    for (int j = 0; j < vectors; j++) {
        pe_store(to + j * PE_VL, row[j]);
    }
}

/* Copies up to PE_B_COPIED panels, row by row: their rows are next to each other in memory. */
PE_INLINE void PE_FN(copy_panels)(const PE_FN(block_args) * t, const int panel) {
    const int left = t->panel_end - panel, count = left < PE_B_COPIED ? left : PE_B_COPIED;
    const int partial = PE_TAIL_COLUMNS && panel + count == PE_PANELS;
    for (int k = 0; k < t->depth; k++) {
        const float *from = t->b + panel * PE_NR + k * (ptrdiff_t)PE_B_PITCH;
        float *to = t->panel + k * PE_NR;
        for (int p = 0; p < count - partial; p++) {
            PE_FN(copy_row)(to, from, PE_NV, PE_VL);
            from += PE_NR;
            to += t->depth * (ptrdiff_t)PE_NR;
        }
#if PE_TAIL_COLUMNS
        if (partial) {
            PE_FN(copy_row)(to, from, PE_TAIL_VECTORS, PE_TAIL_LANES);
        }
#endif
    }
}
#endif

/* One panel of columns against all rows of the block. */
PE_INLINE void PE_FN(panel)(const PE_FN(block_args) * t, const int panel, const int vectors,
                            const int lanes) {
    const int column = panel * PE_NR;
#if PE_B_DECODED
    PE_FN(decode_panel)(t, column, (vectors - 1) * PE_VL + lanes);
    const float *b = t->panel;
#elif PE_B_TRANSPOSED
    const int columns = (vectors - 1) * PE_VL + lanes;
    const float *rows = t->b + column * (ptrdiff_t)PE_B_PITCH;
    pe_read_in_order(rows, PE_B_PITCH, columns, t->depth, sizeof *rows);
    pe_transpose(t->panel, PE_NR, rows, PE_B_PITCH, columns, t->depth, PE_VL >= 8 ? 8 : 4);
    const float *b = t->panel;
#elif PE_B_COPIED
    const int place = (panel - t->panel_begin) % PE_B_COPIED;
    if (place == 0) {
        PE_FN(copy_panels)(t, panel);
    }
    const float *b = t->panel + place * (ptrdiff_t)t->depth * PE_NR;
#else
    const float *b = t->b + column;
#endif
    for (int run = 0; run < PE_RUN(t, runs); run++) {
        int row = t->row_begin;
        for (; row + PE_MR <= t->row_end; row += PE_MR) {
#if PE_B_PANEL && PE_VL > 4
            PE_FN(fetch_next)(t, panel, row);
#endif
            PE_FN(tile)(t, b, row, column, PE_MR, vectors, lanes, run);
        }
#if PE_TAIL_ROWS
        if (t->row_end - row == PE_TAIL_ROWS) {
            PE_FN(tile)(t, b, row, column, PE_TAIL_ROWS, vectors, lanes, run);
        }
#endif
#if PE_OTHER_TAIL_ROWS && PE_OTHER_TAIL_ROWS != PE_TAIL_ROWS
        if (t->row_end - row == PE_OTHER_TAIL_ROWS) {
            PE_FN(tile)(t, b, row, column, PE_OTHER_TAIL_ROWS, vectors, lanes, run);
        }
#endif
    }
}

#if PE_A_COPIED
/* Copies the rows of each tile to scratch, step by step. */
PE_INLINE void PE_FN(copy_rows)(const PE_FN(block_args) * t) {
#if PE_A_ROW == 1
    /* All rows of a step, which are next to each other, before the next: its page is read once. */
    for (int k = 0; k < t->depth; k++) {
        const float *from = t->a + k * (ptrdiff_t)PE_A_STEP;
        float *to = t->rows + k * PE_MR;
        int row = t->row_begin;
        for (; row + PE_MR <= t->row_end; row += PE_MR) {
            memcpy(to, from + row, sizeof(float) * PE_MR);
            to += t->depth * (ptrdiff_t)PE_MR;
        }
        if (row < t->row_end) {
            memcpy(to, from + row, sizeof(float) * (size_t)(t->row_end - row));
        }
    }
#else
    for (int row = t->row_begin; row < t->row_end; row += PE_MR) {
        float *to = t->rows + (row - t->row_begin) * (ptrdiff_t)t->depth;
        const float *from = t->a + row * (ptrdiff_t)PE_A_ROW;
        const int rows = t->row_end - row;
        if (rows >= PE_MR) {
            pe_transpose_tile(to, from, PE_A_ROW, PE_MR, t->depth);
        } else {
            pe_transpose(to, PE_MR, from, PE_A_ROW, rows, t->depth, 4);
        }
    }
#endif
}
#endif

/* All panels of the block. Only the last rows and the last panel of a matrix may be partial. */
PE_INLINE void PE_FN(block)(const PE_FN(block_args) * t) {
#if PE_A_COPIED
    PE_FN(copy_rows)(t);
#endif
    for (int p = t->panel_begin; p < t->panel_end; p++) {
#if PE_TAIL_COLUMNS
        if (p == PE_PANELS - 1) {
            PE_FN(panel)(t, p, PE_TAIL_VECTORS, PE_TAIL_LANES);
            continue;
        }
#endif
        PE_FN(panel)(t, p, PE_NV, PE_VL);
    }
}
