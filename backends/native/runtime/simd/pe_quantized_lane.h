/* The functions of pe_quantized_lanes.inc.h for one number, on processors without float vectors:
 * Arm's microcontrollers and Hexagon, which saturate and round with single instructions. */
#ifndef PE_QUANTIZED_LANE_H
#define PE_QUANTIZED_LANE_H

#include "pe_pairs.h"

#if (PE_DSP && !PE_HELIUM) || defined(__hexagon__)
#define PE_LANES_APART 1

#if PE_DSP
/* vcvtr rounds in the processor's mode, ties to even; it saturates, and NaN gives 0. */
PE_INLINE int32_t pe_nearest_lane(float x) {
    int32_t y;
    __asm__("vcvtr.s32.f32 %1, %1\n\tvmov %0, %1" : "=r"(y), "+t"(x));
    return y;
}

PE_INLINE int32_t pe_narrow_lane(int32_t x, const int32_t low, const int32_t high,
                                 const int32_t zero) {
    if (low == INT8_MIN && high == INT8_MAX) {
        return __ssat(__qadd(x, zero), 8);
    }
    x = x < low - zero ? low - zero : x;
    return (x > high - zero ? high - zero : x) + zero;
}

#else
/* The instruction rounds in the processor's mode, ties to even, and saturates. */
PE_INLINE int32_t pe_nearest_lane(float x) {
    const int32_t y = __builtin_HEXAGON_F2_conv_sf2w(x);
    return x == x ? y : 0;
}

PE_INLINE int32_t pe_narrow_lane(int32_t x, const int32_t low, const int32_t high,
                                 const int32_t zero) {
    x = x < low - zero ? low - zero : x;
    return (x > high - zero ? high - zero : x) + zero;
}
#endif

/* The right shift is in two steps, whose last bit rounds: ties away from zero. */
PE_INLINE int32_t pe_rescale_lane(const int32_t x, const int32_t multiplier,
                                  const int32_t exponent) {
    const int32_t left = exponent > 0 ? exponent : 0, right = left - exponent;
    const int32_t shifted = (int32_t)((uint32_t)x << left);
    const int32_t high = (int32_t)(((int64_t)shifted * multiplier + (1 << 30)) >> 31);
    return right ? (((high + (high >> 31)) >> (right - 1)) + 1) >> 1 : high;
}

PE_INLINE int32_t pe_rescale_down_lane(const int32_t x, const int32_t multiplier,
                                       const int32_t exponent) {
    const int32_t high = (int32_t)(((int64_t)x * multiplier + (1 << 30)) >> 31);
    return (((high + (high >> 31)) >> ~exponent) + 1) >> 1;
}

/* The same, rounded once with ties up: the upper half is not rounded if it is shifted. */
PE_INLINE int32_t pe_rescale_once_down_lane(const int32_t x, const int32_t multiplier,
                                            const int32_t exponent) {
    const int32_t high = (int32_t)(((int64_t)x * multiplier) >> 31);
    return ((high >> ~exponent) + 1) >> 1;
}

PE_INLINE int32_t pe_rescale_once_lane(const int32_t x, const int32_t multiplier,
                                       const int32_t exponent) {
    return exponent < 0 ? pe_rescale_once_down_lane(x, multiplier, exponent)
                        : pe_rescale_lane(x, multiplier, exponent);
}
#else
#define PE_LANES_APART 0
#endif

#endif
