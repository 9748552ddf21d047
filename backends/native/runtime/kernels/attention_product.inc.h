/* One of attention's products: blocks of gemm_tile.inc.h whose sums are stored by PE_STORE.
 *
 * Parameters: those of gemm_tile.inc.h without defaults, except the epilogue, and PE_Y_PITCH,
 * the row length of the result; PE_FACTOR_STEP, from one row's factor to the next's; PE_SCALE, the
 * scale of scores; and PE_STORE, of these:
 *
 *   PE_STORE_SUMS     unchanged
 *   PE_STORE_SCALED   times factor[row]
 *   PE_STORE_TOWARD   shares (sums - factor[row]) scale
 *   PE_STORE_ADDED    to the result
 */

#if !defined(PE_STORE)
#error "attention_product.inc.h needs PE_STORE"
#endif

#define PE_STORE_SUMS 0
#define PE_STORE_SCALED 1
#define PE_STORE_TOWARD 2
#define PE_STORE_ADDED 3

#define PE_B_TRANSPOSED 0
#define PE_PARTIAL 0
#define PE_SEGMENTED 0
#define PE_OUTPUT_ROW(i) (t->row + (i))

/* Destination of a product's sums; `shares` have the layout of the result. */
typedef struct PE_FN(io) {
    float *y;
    const float *factor, *shares;
} PE_FN(io);

PE_INLINE void PE_FN(store)(const PE_FN(io) * io, const pe_vf acc, const ptrdiff_t row,
                            const int column, const int lanes) {
    const ptrdiff_t at = row * PE_Y_PITCH + column;
#if PE_STORE == PE_STORE_SCALED
    pe_store_part(io->y + at, acc * io->factor[row * PE_FACTOR_STEP], lanes);
#elif PE_STORE == PE_STORE_TOWARD
    const pe_vf share = pe_load_part(io->shares + at, lanes) * PE_SCALE;
    pe_store_part(io->y + at, share * (acc - io->factor[row * PE_FACTOR_STEP]), lanes);
#elif PE_STORE == PE_STORE_ADDED
    pe_store_part(io->y + at, acc + pe_load_part(io->y + at, lanes), lanes);
#else
    pe_store_part(io->y + at, acc, lanes);
#endif
}

#include "gemm_tile.inc.h"

/* Multiplies whole panels of columns by `rows` rows: those of a block, or of the last block. */
static void PE_FN(run)(const PE_FN(io) io, const float *a, const float *b, const ptrdiff_t rows,
                       const ptrdiff_t columns, const ptrdiff_t depth) {
    const PE_FN(block_args) t = {
        .io = &io,
        .a = a,
        .b = b,
        .row_end = (int)rows,
        .panel_end = (int)((columns + PE_NR - 1) / PE_NR),
        .depth = (int)depth,
        .first = 1,
        .last = 1,
    };
    PE_FN(block)(&t);
}

#undef PE_FACTOR_STEP
#undef PE_SCALE
#undef PE_STORE
#undef PE_STORE_ADDED
#undef PE_STORE_SCALED
#undef PE_STORE_SUMS
#undef PE_STORE_TOWARD
#undef PE_Y_PITCH
#include "undef.inc.h"
