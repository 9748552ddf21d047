/* Scores of attention for a single row: the sums of gemm_dot.inc.h, unchanged.
 *
 * Parameters: those of gemm_dot.inc.h, except the batch and the epilogue, and PE_Y_PITCH, the row
 * length of the result.
 */

#define PE_BATCH 1
#define PE_A_BATCH(i) 0
#define PE_B_BATCH(i) 0

typedef struct PE_FN(io) {
    float *y;
} PE_FN(io);

PE_INLINE void PE_FN(store)(const PE_FN(io) * io, const pe_vf acc, const ptrdiff_t row,
                            const int column, const int lanes) {
    pe_store_part(io->y + row * PE_Y_PITCH + column, acc, lanes);
}

#include "gemm_dot.inc.h"
#undef PE_Y_PITCH
