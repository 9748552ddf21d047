/* Elementwise functions on the vectors of pe_vec.h: defined once for each width; names without a
 * lane count follow PE_VL.
 *
 * Largest errors over all finite inputs, in units of the last place: exp 1, log 1, tanh 2, erf 1,
 * sigmoid 3 (which is 0 below -88.7); tests/backends/c/test_math.py checks them. All propagate NaN,
 * so that a diverging training is detected.
 */
#ifndef PE_MATH_H
#define PE_MATH_H

#include <math.h>

#include "pe_helium.h"
#include "pe_quantized_lane.h"
#include "pe_special.h"
#include "pe_vec.h"

#ifdef PE_VL
#error "include pe_math.h before PE_VL is defined"
#endif

#define pe_maximum PE_OF_WIDTH(pe_maximum)
#define pe_minimum PE_OF_WIDTH(pe_minimum)
#define pe_relu PE_OF_WIDTH(pe_relu)
#define pe_clamp PE_OF_WIDTH(pe_clamp)
#define pe_abs PE_OF_WIDTH(pe_abs)
#define pe_sign PE_OF_WIDTH(pe_sign)
#define pe_sqrt PE_OF_WIDTH(pe_sqrt)
#define pe_exp PE_OF_WIDTH(pe_exp)
#define pe_log PE_OF_WIDTH(pe_log)
#define pe_tanh PE_OF_WIDTH(pe_tanh)
#define pe_erf PE_OF_WIDTH(pe_erf)
#define pe_sigmoid PE_OF_WIDTH(pe_sigmoid)
#define pe_hard_sigmoid PE_OF_WIDTH(pe_hard_sigmoid)
#define pe_copysign PE_OF_WIDTH(pe_copysign)

#define pe_sin PE_OF_WIDTH(pe_sin)
#define pe_cos PE_OF_WIDTH(pe_cos)
#define pe_tan PE_OF_WIDTH(pe_tan)
#define pe_asin PE_OF_WIDTH(pe_asin)
#define pe_acos PE_OF_WIDTH(pe_acos)
#define pe_atan PE_OF_WIDTH(pe_atan)
#define pe_sinh PE_OF_WIDTH(pe_sinh)
#define pe_cosh PE_OF_WIDTH(pe_cosh)
#define pe_erfc PE_OF_WIDTH(pe_erfc)
#define pe_expm1 PE_OF_WIDTH(pe_expm1)
#define pe_log1p PE_OF_WIDTH(pe_log1p)
#define pe_floor PE_OF_WIDTH(pe_floor)
#define pe_ceil PE_OF_WIDTH(pe_ceil)
#define pe_round PE_OF_WIDTH(pe_round)
#define pe_trunc PE_OF_WIDTH(pe_trunc)
#define pe_pow PE_OF_WIDTH(pe_pow)
#define pe_atan2 PE_OF_WIDTH(pe_atan2)
#define pe_asinh PE_OF_WIDTH(pe_asinh)
#define pe_acosh PE_OF_WIDTH(pe_acosh)
#define pe_atanh PE_OF_WIDTH(pe_atanh)
#define pe_binary_cross_entropy PE_OF_WIDTH(pe_binary_cross_entropy)
#define pe_hypot PE_OF_WIDTH(pe_hypot)
#define pe_lgamma PE_OF_WIDTH(pe_lgamma)
#define pe_digamma PE_OF_WIDTH(pe_digamma)
#define pe_zeta PE_OF_WIDTH(pe_zeta)
#define pe_igamma PE_OF_WIDTH(pe_igamma)
#define pe_igammac PE_OF_WIDTH(pe_igammac)
#define pe_igamma_da PE_OF_WIDTH(pe_igamma_da)
#define pe_i0 PE_OF_WIDTH(pe_i0)
#define pe_i1 PE_OF_WIDTH(pe_i1)
#define pe_i0e PE_OF_WIDTH(pe_i0e)
#define pe_i1e PE_OF_WIDTH(pe_i1e)
#define pe_erf_inv PE_OF_WIDTH(pe_erf_inv)
#define pe_rem PE_OF_WIDTH(pe_rem)
#define pe_quotient_i PE_OF_WIDTH(pe_quotient_i)
#define pe_quotient_l PE_OF_WIDTH(pe_quotient_l)
#define pe_rem_i PE_OF_WIDTH(pe_rem_i)
#define pe_rem_l PE_OF_WIDTH(pe_rem_l)
#define pe_shift_left_i PE_OF_WIDTH(pe_shift_left_i)
#define pe_shift_left_l PE_OF_WIDTH(pe_shift_left_l)
#define pe_shift_right_i PE_OF_WIDTH(pe_shift_right_i)
#define pe_shift_right_l PE_OF_WIDTH(pe_shift_right_l)

/* Integer division towards zero, and its remainder. Nothing traps: as in XLA, a / 0 is -1 with
 * remainder a, and the smallest integer divided by -1 is itself. */
PE_INLINE int64_t pe_quotient(int64_t a, int64_t b) {
    return b == 0 ? -1 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

PE_INLINE int64_t pe_remainder(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }

/* Bit shifts of integers. A count outside the width shifts out all bits. */
PE_INLINE int32_t pe_left_32(int32_t a, int32_t b) {
    return b >= 0 && b < 32 ? (int32_t)((uint32_t)a << b) : 0;
}

PE_INLINE int64_t pe_left_64(int64_t a, int64_t b) {
    return b >= 0 && b < 64 ? (int64_t)((uint64_t)a << b) : 0;
}

PE_INLINE int32_t pe_right_32(int32_t a, int32_t b) { return a >> (b >= 0 && b < 32 ? b : 31); }

PE_INLINE int64_t pe_right_64(int64_t a, int64_t b) { return a >> (b >= 0 && b < 64 ? b : 63); }

/* Quantization and dequantization. */
#define pe_mul PE_OF_WIDTH(pe_mul)
#define pe_quantize PE_OF_WIDTH(pe_quantize)
#define pe_dequantize PE_OF_WIDTH(pe_dequantize)
#define pe_rescale PE_OF_WIDTH(pe_rescale)
#define pe_rescale_down PE_OF_WIDTH(pe_rescale_down)
#define pe_rescale_once PE_OF_WIDTH(pe_rescale_once)
#define pe_rescale_once_down PE_OF_WIDTH(pe_rescale_once_down)
#define pe_narrow_sb PE_OF_WIDTH(pe_narrow_sb)

#define PE_VL 4
#include "pe_math_lanes.inc.h"
#include "pe_quantized_lanes.inc.h"
#undef PE_VL
#define PE_VL 8
#include "pe_math_lanes.inc.h"
#include "pe_quantized_lanes.inc.h"
#undef PE_VL
#define PE_VL 16
#include "pe_math_lanes.inc.h"
#include "pe_quantized_lanes.inc.h"
#undef PE_VL
#if PE_HVX
#define PE_VL 32
PE_INLINE pe_vf pe_mul(pe_vf a, pe_vf b) { return (pe_vf)pe_hvx_mul((HVX_Vector)a, (HVX_Vector)b); }

PE_INLINE pe_vf pe_maximum(pe_vf a, pe_vf b) {
    return (pe_vf)pe_hvx_maximum((HVX_Vector)a, (HVX_Vector)b);
}

PE_INLINE pe_vf pe_abs(pe_vf x) { return x & INT32_MAX; }

#include "pe_quantized_lanes.inc.h"
#undef PE_VL
#endif

#endif
