/* One of attention's products: blocks of gemm_tile.inc.h whose sums are stored by PE_STORE.
 *
 * Parameters: those of gemm_tile.inc.h without defaults, except the epilogue, and those of
 * attention_store.inc.h.
 */

#include "attention_store.inc.h"

#define PE_B_TRANSPOSED 0
#define PE_PARTIAL 0
#define PE_SEGMENTED 0
#define PE_OUTPUT_ROW(i) (t->row + (i))

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

#include "undef.inc.h"
