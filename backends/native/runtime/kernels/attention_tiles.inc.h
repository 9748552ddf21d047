/* One of attention's products, of operands rounded to bf16 in tiles (pe_amx.h); sums are f32.
 *
 * B is packed before, by PE_FN(pack), in one part or in several. The product packs 32 rows of A at
 * a time, and of these at most PE_MOST_STEPS steps.
 *
 * Parameters: those of attention_store.inc.h, PE_VL being 16; PE_N, PE_K, the most columns and
 * steps; PE_A_ROW, PE_A_STEP, PE_B_PITCH, PE_B_TRANSPOSED as in gemm.inc.h.
 */

#if !defined(PE_B_TRANSPOSED)
#error "attention_tiles.inc.h needs PE_B_TRANSPOSED"
#endif

#include "attention_store.inc.h"
#include "pe_amx.h"

#define PE_MOST_STEPS 256
#define PE_TILES_OF(size) (((size) + 31) / 32)
/* Words of 16 columns of B. */
#define PE_LINE (PE_TILES_OF(PE_K) * (ptrdiff_t)PE_TILE_WORDS)

/* Packs some of the columns (PE_B_TRANSPOSED) or of the steps, from a multiple of 32 on. */
PE_INLINE void PE_FN(pack)(float *tiles, const float *b, const pe_range part) {
    const ptrdiff_t count = part.end - part.begin;
    const float *from = b + part.begin * PE_B_PITCH;
#if PE_B_TRANSPOSED
    pe_pack_tiles(2 * PE_TILES_OF(count), tiles + part.begin / 16 * PE_LINE, from, PE_B_PITCH, 1, 1,
                  count, PE_K);
#else
    for (ptrdiff_t step = 0; step < count; step += 32) {
        float *at = tiles + (part.begin + step) / 32 * PE_TILE_WORDS;
        const int steps = count - step < 32 ? (int)(count - step) : 32;
        for (int n = 0; n < 2 * PE_TILES_OF(PE_N); n++) {
            const int left = PE_N - 16 * n, columns = left < 0 ? 0 : left < 16 ? left : 16;
            pe_pack_tile(at + n * PE_LINE, from + step * PE_B_PITCH + (columns ? 16 * n : 0),
                         PE_B_PITCH, 0, 1, columns, steps);
        }
    }
#endif
}

/* Stores 32 x 32 sums, or the part of them that is within the result. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, const float *sums, const ptrdiff_t row,
                             const ptrdiff_t column, const ptrdiff_t rows,
                             const ptrdiff_t columns) {
    for (ptrdiff_t i = 0; i < 32 && row + i < rows; i++) {
        for (ptrdiff_t j = 0; j < 32 && column + j < columns; j += 16) {
            const ptrdiff_t left = columns - column - j;
            PE_FN(store)(io, pe_load(sums + i * 32 + j), row + i, (int)(column + j),
                         left < 16 ? (int)left : 16);
        }
    }
}

/* Multiplies `rows` rows of A by the first columns and steps of B. */
static void PE_FN(run)(const PE_FN(io) io, const float *a, const float *tiles, const ptrdiff_t rows,
                       const ptrdiff_t columns, const ptrdiff_t depth) {
    enum {
        most = PE_K < PE_MOST_STEPS ? PE_K : PE_MOST_STEPS,
        kept = PE_K > PE_MOST_STEPS ? PE_TILES_OF(PE_N) : 1
    };
    _Alignas(64) float own[2 * PE_TILES_OF(most) * PE_TILE_WORDS];
    _Alignas(64) float sums[kept][32 * 32];
    for (ptrdiff_t row = 0; row < rows; row += 32) {
        for (ptrdiff_t step = 0; step < depth; step += most) {
            const ptrdiff_t steps = depth - step < most ? depth - step : most;
            const pe_lines mine = {own, PE_TILES_OF(steps) * PE_TILE_WORDS};
            pe_pack_tiles(2, own, a + row * PE_A_ROW + step * PE_A_STEP,
                          PE_A_STEP == 1 ? PE_A_ROW : PE_A_STEP, PE_A_STEP == 1, 0, rows - row,
                          steps);
            for (ptrdiff_t column = 0; column < columns; column += 32) {
                float *sum = sums[kept > 1 ? column / 32 : 0];
                const pe_lines theirs = {tiles + column / 16 * PE_LINE + step / 32 * PE_TILE_WORDS,
                                         PE_LINE};
                pe_multiply_tiles(io.tiles, sum, mine, theirs, (int)PE_TILES_OF(steps), step == 0);
                if (step + most >= depth) {
                    PE_FN(finish)(&io, sum, row, column, rows, columns);
                }
            }
        }
    }
}

#undef PE_LINE
#undef PE_MOST_STEPS
#undef PE_TILES_OF
#include "undef.inc.h"
