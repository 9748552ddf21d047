/* Matrix multiply y = epilogue(A B) in tiles of operands rounded to bf16.
 *
 * The team first packs both into tiles (pe_amx.h): groups of 16 rows of A, and of 16 columns of B,
 * with all steps. In a batch each thread packs its own pairs of matrices, one after another. Then
 * each block of 32 x 32 results is summed over all steps in registers, and passed to the epilogue.
 * Threads share the rows or the columns, in groups of 32; blocks of columns stay in the cache for
 * all rows of a thread.
 *
 * Parameters: PE_FN, PE_VL (16), PE_M, PE_N, PE_K, PE_A_ROW, PE_A_STEP, PE_B_PITCH,
 * PE_B_TRANSPOSED, PE_BATCH, PE_A_BATCH(i), PE_B_BATCH(i), PE_FN(io), PE_FN(store) as in
 * gemm.inc.h, and
 *   PE_BY_ROWS        1: threads share the rows; else the columns
 *   PE_BLOCK_COLUMNS  columns of a block, a multiple of 32
 *   PE_THREADS        maximum number of threads with scratch, for a batch
 */

#if !defined(PE_BATCH)
#error "gemm_amx.inc.h needs PE_BATCH"
#endif

#include "pe_amx.h"
#include "team.inc.h"

#define PE_LINE_WORDS ((PE_K + 31) / 32 * (ptrdiff_t)PE_TILE_WORDS)
#define PE_PAIRS_OF(size) (((size) + 31) / 32)

/* Tiles of A, or of B; the tiles of a missing second group of rows or columns are zero. */
PE_INLINE void PE_FN(pack_a)(const pe_range share, float *tiles, const float *a) {
    pe_pack_tiles(share, tiles, a, PE_A_STEP == 1 ? PE_A_ROW : PE_A_STEP, PE_A_STEP == 1, 0, PE_M,
                  PE_K);
}

PE_INLINE void PE_FN(pack_b)(const pe_range share, float *tiles, const float *b) {
    pe_pack_tiles(share, tiles, b, PE_B_PITCH, PE_B_TRANSPOSED, 1, PE_N, PE_K);
}

/* Passes the sums of a block to the epilogue. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, const float *sums, const ptrdiff_t first_row,
                             const int row, const int column) {
    for (int i = 0; i < 32 && row + i < PE_M; i++) {
        for (int j = 0; j < 32 && column + j < PE_N; j += 16) {
            const int lanes = PE_N - column - j < 16 ? PE_N - column - j : 16;
            PE_FN(store)(io, pe_load(sums + i * 32 + j), first_row + row + i, column + j, lanes);
        }
    }
}

/* Blocks of some rows and columns, counted in blocks; `first_row` is the result's of row 0. */
PE_INLINE void PE_FN(multiply)(const PE_FN(io) * io, const int tiles, const float *a_tiles,
                               const float *b_tiles, const ptrdiff_t first_row, const pe_range down,
                               const pe_range across) {
    _Alignas(64) float sums[32 * 32];
    for (ptrdiff_t left = across.begin; left < across.end; left += PE_BLOCK_COLUMNS / 32) {
        const ptrdiff_t rest = across.end - left;
        const ptrdiff_t end = left + (rest < PE_BLOCK_COLUMNS / 32 ? rest : PE_BLOCK_COLUMNS / 32);
        for (ptrdiff_t i = down.begin; i < down.end; i++) {
            for (ptrdiff_t j = left; j < end; j++) {
                pe_multiply_tiles(tiles, sums, a_tiles + 2 * i * PE_LINE_WORDS,
                                  b_tiles + 2 * j * PE_LINE_WORDS, PE_LINE_WORDS, (PE_K + 31) / 32);
                PE_FN(finish)(io, sums, first_row, (int)i * 32, (int)j * 32);
            }
        }
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *a, const float *b,
                          float *scratch) {
    const pe_range rows = {0, PE_PAIRS_OF(PE_M)}, columns = {0, PE_PAIRS_OF(PE_N)};
    const ptrdiff_t a_words = 2 * rows.end * PE_LINE_WORDS,
                    b_words = 2 * columns.end * PE_LINE_WORDS;
    const int tiles = pe_amx_begin();
#if PE_BATCH > 1
    const pe_range share = PE_FN(share)(w, PE_BATCH, 1);
    float *a_tiles = scratch + (w->index < PE_THREADS ? w->index : 0) * (a_words + b_words);
    for (ptrdiff_t i = share.begin; i < share.end; i++) {
        PE_FN(pack_a)((pe_range){0, 2 * rows.end}, a_tiles, a + PE_A_BATCH(i));
        PE_FN(pack_b)((pe_range){0, 2 * columns.end}, a_tiles + a_words, b + PE_B_BATCH(i));
        PE_FN(multiply)(io, tiles, a_tiles, a_tiles + a_words, i * PE_M, rows, columns);
    }
#else
    const pe_range mine = pe_split(w, PE_BY_ROWS ? rows.end : columns.end, 1);
    PE_FN(pack_a)(pe_split(w, 2 * rows.end, 1), scratch, a);
    PE_FN(pack_b)(pe_split(w, 2 * columns.end, 1), scratch + a_words, b);
    pe_barrier(w);
    PE_FN(multiply)(io, tiles, scratch, scratch + a_words, 0, PE_BY_ROWS ? mine : rows,
                    PE_BY_ROWS ? columns : mine);
    (void)b_words;
#endif
    pe_amx_end(tiles);
}

#undef PE_LINE_WORDS
#undef PE_PAIRS_OF
#undef PE_BY_ROWS
#undef PE_BLOCK_COLUMNS
#include "undef.inc.h"
