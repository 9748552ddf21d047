/* Bytes of several channels, one per lane: loaded as i16, multiplied, and summed in i32.
 *
 * Parameters: PE_L lanes, and those of bytes_put.inc.h
 */

#if !defined(PE_L) || !defined(PE_NEON)
#error "bytes_lanes.inc.h needs PE_L, and pe_vec.h"
#endif

#define PE_SUMS PE_JOIN(pe_dot_sums, PE_L)
#include "bytes_put.inc.h"

#if PE_L == 32
typedef pe_vi32 PE_FN(shorts);

PE_INLINE PE_FN(shorts) PE_FN(load)(const int8_t *p, const int lanes) {
    return (pe_vi32)pe_hvx_widen(pe_hvx_load(p, lanes));
}

PE_INLINE PE_SUMS PE_FN(add)(PE_SUMS sum, PE_FN(shorts) a, PE_FN(shorts) b) {
    return (PE_SUMS)Q6_Vw_vmpyieacc_VwVwVh((HVX_Vector)sum, (HVX_Vector)a, (HVX_Vector)b);
}
#else
typedef int16_t PE_FN(shorts) __attribute__((vector_size(PE_L * 2)));
typedef int8_t PE_FN(bytes) __attribute__((vector_size(PE_L)));

PE_INLINE PE_FN(shorts) PE_FN(load)(const int8_t *p, const int lanes) {
    PE_FN(bytes) v = {0};
    memcpy(&v, p, (size_t)lanes);
    return __builtin_convertvector(v, PE_FN(shorts));
}

PE_INLINE PE_SUMS PE_FN(add)(PE_SUMS sum, PE_FN(shorts) a, PE_FN(shorts) b) {
#if PE_NEON && PE_L == 8
    /* If a compiler knows the signs, it widens before it multiplies; hence the intrinsics. */
    int16x8_t factors[2];
    int32x4_t halves[2];
    memcpy(factors, &a, sizeof a);
    memcpy(factors + 1, &b, sizeof b);
    memcpy(halves, &sum, sizeof sum);
    halves[0] = vmlal_s16(halves[0], vget_low_s16(factors[0]), vget_low_s16(factors[1]));
    halves[1] = vmlal_high_s16(halves[1], factors[0], factors[1]);
    memcpy(&sum, halves, sizeof sum);
    return sum;
#else
    return sum + __builtin_convertvector(a, PE_SUMS) * __builtin_convertvector(b, PE_SUMS);
#endif
}
#endif
