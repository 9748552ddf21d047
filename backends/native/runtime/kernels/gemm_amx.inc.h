/* Matrix multiply y = epilogue(A B) in tiles of operands rounded to bf16.
 *
 * Lines are the rows of A and the columns of B. The team first packs all lines of the operand that
 * has fewer of them into tiles (pe_amx.h): the shared one. Threads share the lines of the other
 * one, and each packs its own in blocks that stay in the second-level cache while all shared lines
 * are read. Blocks of 32 x 32 results are summed in registers over the steps of a block; after the
 * last one they are passed to the epilogue. In a batch each thread packs both operands of its own
 * pairs of matrices.
 *
 * Parameters: PE_FN, PE_VL (16), PE_M, PE_N, PE_K, PE_A_ROW, PE_A_STEP, PE_B_PITCH,
 * PE_B_TRANSPOSED, PE_BATCH, PE_A_BATCH(i), PE_B_BATCH(i), PE_FN(io), PE_FN(store) as in
 * gemm.inc.h, those of gemm_decode_panel.inc.h if B is stored in fewer bits, and
 *   PE_OWN_ROWS   1: the rows of A are a thread's own, and B is shared; 0: the reverse
 *   PE_OWN_LINES  lines of a block, a multiple of 32
 *   PE_KB         steps of a block, a multiple of 32
 *   PE_THREADS    maximum number of threads with scratch
 *   PE_B_BF16     1: a B of 16 bits is bf16, which is packed as it is. Default 0
 */

#if !defined(PE_BATCH)
#error "gemm_amx.inc.h needs PE_BATCH"
#endif

#ifndef PE_B_BITS
#define PE_B_BITS 0
#endif
#ifndef PE_B_BF16
#define PE_B_BF16 0
#endif

#include "pe_amx.h"
#include "team.inc.h"
#if PE_B_BITS
#define PE_B_DECODED 0
#include "gemm_decode_panel.inc.h"
#endif

#define PE_PAIRS_OF(size) (((size) + 31) / 32)
#define PE_SHARED_PAIRS PE_PAIRS_OF(PE_OWN_ROWS ? PE_N : PE_M)
#define PE_OWN_PAIRS PE_PAIRS_OF(PE_OWN_ROWS ? PE_M : PE_N)
/* Words of a line's tiles, of the shared operand's lines, and of a block's and its sums. */
#define PE_SHARED_LINE (PE_PAIRS_OF(PE_K) * (ptrdiff_t)PE_TILE_WORDS)
#define PE_OWN_LINE (PE_KB / 32 * (ptrdiff_t)PE_TILE_WORDS)
#define PE_SHARED_WORDS (2 * PE_SHARED_PAIRS * PE_SHARED_LINE)
#define PE_OWN_WORDS (PE_OWN_LINES / 16 * PE_OWN_LINE)
#define PE_SUM_WORDS (PE_K > PE_KB ? PE_SHARED_PAIRS * (PE_OWN_LINES / 32) * (ptrdiff_t)1024 : 0)

/* Packs `steps` steps from `step` on of some pairs of 16 rows. Their tiles begin at `tiles`; those
 * of a missing second group of rows or columns are zero. */
PE_INLINE void PE_FN(pack_a)(const pe_range pairs, float *tiles, const float *a,
                             const ptrdiff_t step, const int steps) {
    const ptrdiff_t first = 32 * pairs.begin;
    pe_pack_tiles(2 * (pairs.end - pairs.begin), tiles, a + first * PE_A_ROW + step * PE_A_STEP,
                  PE_A_STEP == 1 ? PE_A_ROW : PE_A_STEP, PE_A_STEP == 1, 0, PE_M - first, steps);
}

#if PE_B_BITS
/* Packs up to 32 columns and steps of a stored B; the second tile begins `next` words further. */
PE_INLINE void PE_FN(pack_part)(const PE_FN(io) * io, float *tile, const ptrdiff_t next,
                                const ptrdiff_t column, const ptrdiff_t step, const int columns,
                                const int steps) {
    const ptrdiff_t row = PE_B_TRANSPOSED ? column : step, at = PE_B_TRANSPOSED ? step : column;
    const int rows = PE_B_TRANSPOSED ? columns : steps, count = PE_B_TRANSPOSED ? steps : columns;
#if PE_B_BF16
    if (columns == 32 && steps == 32) {
        const uint16_t *from = (const uint16_t *)PE_FN(code)(io, row, at);
        pe_pack_bf16(tile, next, from, PE_S_PITCH, PE_B_TRANSPOSED);
        return;
    }
#endif
    _Alignas(64) float part[32 * PE_BLOCK], scales[PE_BLOCK] = {0};
    for (int i = 0; i < rows; i++) {
        if (PE_B_ALONG || i == 0) {
            PE_FN(part_scales)(io, scales, row + i, at, count);
        }
        PE_FN(decode_part)(io, part + i * PE_BLOCK, row + i, at, scales, count);
    }
    const int right = columns > 16 ? columns - 16 : 0;
    const float *other = part + (right ? (PE_B_TRANSPOSED ? 16 * PE_BLOCK : 16) : 0);
    pe_pack_tile(tile, part, PE_BLOCK, PE_B_TRANSPOSED, 1, columns - right, steps);
    pe_pack_tile(tile + next, other, PE_BLOCK, PE_B_TRANSPOSED, 1, right, steps);
}
#endif

/* The same of pairs of 16 columns. */
PE_INLINE void PE_FN(pack_b)(const PE_FN(io) * io, const pe_range pairs, float *tiles,
                             const float *b, const ptrdiff_t step, const int steps) {
    (void)io, (void)b;
#if PE_B_BITS
    const ptrdiff_t count = pairs.end - pairs.begin, depth = PE_PAIRS_OF(steps);
    for (ptrdiff_t n = 0; n < count * depth; n++) {
        const ptrdiff_t i = PE_B_TRANSPOSED ? n / depth : n % count;
        const ptrdiff_t k = PE_B_TRANSPOSED ? n % depth : n / count;
        const ptrdiff_t column = 32 * (pairs.begin + i), next = depth * PE_TILE_WORDS;
        const int columns = PE_N - column < 32 ? (int)(PE_N - column) : 32;
        const int left = steps - 32 * (int)k;
        PE_FN(pack_part)(io, tiles + (2 * i * depth + k) * PE_TILE_WORDS, next, column,
                         step + 32 * k, columns, left < 32 ? left : 32);
    }
#else
    const ptrdiff_t first = 32 * pairs.begin;
    const float *from =
        b + (PE_B_TRANSPOSED ? first * PE_B_PITCH + step : step * PE_B_PITCH + first);
    pe_pack_tiles(2 * (pairs.end - pairs.begin), tiles, from, PE_B_PITCH, PE_B_TRANSPOSED, 1,
                  PE_N - first, steps);
#endif
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

/* Multiplies a block of own lines, `pairs` pairs from `begin` on, by all shared lines. */
PE_INLINE void PE_FN(block)(const PE_FN(io) * io, const int tiles, const float *shared,
                            const float *own, float *sums, const ptrdiff_t first_row,
                            const ptrdiff_t begin, const ptrdiff_t pairs, const ptrdiff_t step,
                            const int depth) {
    _Alignas(64) float whole[32 * 32];
    const ptrdiff_t own_line = depth * (ptrdiff_t)PE_TILE_WORDS;
    const float *steps = shared + step / 32 * PE_TILE_WORDS;
    for (ptrdiff_t i = 0; i < PE_SHARED_PAIRS; i++) {
        for (ptrdiff_t j = 0; j < pairs; j++) {
            float *sum = PE_K > PE_KB ? sums + (i * pairs + j) * 1024 : whole;
            const pe_lines theirs = {steps + 2 * i * PE_SHARED_LINE, PE_SHARED_LINE};
            const pe_lines mine = {own + 2 * j * own_line, own_line};
            pe_multiply_tiles(tiles, sum, PE_OWN_ROWS ? mine : theirs, PE_OWN_ROWS ? theirs : mine,
                              depth, PE_K <= PE_KB || step == 0);
            if (PE_K <= PE_KB || step + PE_KB >= PE_K) {
                const int across = 32 * (int)i, along = 32 * (int)(begin + j);
                PE_FN(finish)(io, sum, first_row, PE_OWN_ROWS ? along : across,
                              PE_OWN_ROWS ? across : along);
            }
        }
    }
}

/* Multiplies some pairs of own lines, block by block; `scratch` is the thread's. */
PE_INLINE void PE_FN(multiply)(const PE_FN(io) * io, const int tiles, const float *a,
                               const float *b, const float *shared, float *scratch,
                               const ptrdiff_t first_row, const pe_range mine) {
    for (ptrdiff_t begin = mine.begin; begin < mine.end; begin += PE_OWN_LINES / 32) {
        const ptrdiff_t rest = mine.end - begin;
        const ptrdiff_t pairs = rest < PE_OWN_LINES / 32 ? rest : PE_OWN_LINES / 32;
        for (ptrdiff_t step = 0; step < PE_K; step += PE_KB) {
            const int steps = PE_K - step < PE_KB ? (int)(PE_K - step) : PE_KB;
            const pe_range block = {begin, begin + pairs};
            if (PE_OWN_ROWS) {
                PE_FN(pack_a)(block, scratch, a, step, steps);
            } else {
                PE_FN(pack_b)(io, block, scratch, b, step, steps);
            }
            PE_FN(block)(io, tiles, shared, scratch, scratch + PE_OWN_WORDS, first_row, begin,
                         pairs, step, PE_PAIRS_OF(steps));
        }
    }
}

/* Packs some pairs of the shared lines. */
PE_INLINE void PE_FN(pack_shared)(const PE_FN(io) * io, const pe_range pairs, float *shared,
                                  const float *a, const float *b) {
    float *tiles = shared + 2 * pairs.begin * PE_SHARED_LINE;
    if (PE_OWN_ROWS) {
        PE_FN(pack_b)(io, pairs, tiles, b, 0, PE_K);
    } else {
        PE_FN(pack_a)(pairs, tiles, a, 0, PE_K);
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *a, const float *b,
                          float *scratch) {
    const int tiles = pe_amx_begin();
#if PE_BATCH > 1
    const pe_range share = PE_FN(share)(w, PE_BATCH, 1);
    float *own = scratch + (w->index < PE_THREADS ? w->index : 0) *
                               (PE_SHARED_WORDS + PE_OWN_WORDS + PE_SUM_WORDS);
    for (ptrdiff_t i = share.begin; i < share.end; i++) {
        const float *a_i = a + PE_A_BATCH(i), *b_i = b + PE_B_BATCH(i);
        PE_FN(pack_shared)(io, (pe_range){0, PE_SHARED_PAIRS}, own, a_i, b_i);
        PE_FN(multiply)(io, tiles, a_i, b_i, own, own + PE_SHARED_WORDS, i * PE_M,
                        (pe_range){0, PE_OWN_PAIRS});
    }
#else
    const pe_range mine = PE_FN(share)(w, PE_OWN_PAIRS, 1);
    float *own = scratch + PE_SHARED_WORDS +
                 (w->index < PE_THREADS ? w->index : 0) * (PE_OWN_WORDS + PE_SUM_WORDS);
    PE_FN(pack_shared)(io, PE_FN(share)(w, PE_SHARED_PAIRS, 1), scratch, a, b);
    pe_barrier(w);
    PE_FN(multiply)(io, tiles, a, b, scratch, own, 0, mine);
#endif
    pe_amx_end(tiles);
}

#undef PE_PAIRS_OF
#undef PE_SHARED_PAIRS
#undef PE_OWN_PAIRS
#undef PE_SHARED_LINE
#undef PE_OWN_LINE
#undef PE_SHARED_WORDS
#undef PE_OWN_WORDS
#undef PE_SUM_WORDS
#undef PE_OWN_ROWS
#undef PE_OWN_LINES
#undef PE_B_BF16
#include "undef.inc.h"
