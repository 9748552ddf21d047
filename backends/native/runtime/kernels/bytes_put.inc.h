/* Passes PE_L sums to the epilogue, PE_VL lanes at a time if it takes fewer. */

#if !defined(PE_L) || !defined(PE_VL)
#error "bytes_put.inc.h needs PE_L and PE_VL"
#endif

#include "pe_dot.h"

#if PE_VL <= PE_L
PE_INLINE void PE_FN(put)(const PE_FN(io) * io, const PE_JOIN(pe_dot_sums, PE_L) sum,
                          const ptrdiff_t row, const int column, const int lanes) {
#if PE_VL < PE_L
    int32_t sums[PE_L];
    memcpy(sums, &sum, sizeof sums);
    for (int i = 0; i < lanes; i += PE_VL) {
        const int left = lanes - i;
        PE_FN(store)(io, pe_load_i(sums + i), row, column + i, left < PE_VL ? left : PE_VL);
    }
#else
    PE_FN(store)(io, sum, row, column, lanes);
#endif
}
#endif
