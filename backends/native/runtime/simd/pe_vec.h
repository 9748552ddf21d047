/* Vectors of PE_VL lanes (4, 8 or 16; on HVX 32) over the vector extensions of gcc and clang. HVX's
 * float vectors are bits, which only the functions of pe_hvx_floats.h compute with.
 *
 * The header defines every width once, under names that end in the lane count (pe_vf8, pe_load16);
 * names without a count follow the current value of PE_VL, so that one translation unit can contain
 * kernels of different widths:
 *
 *     #define PE_VL 8
 *     pe_store(y, pe_load(a) + pe_load(b));
 *     #undef PE_VL
 *
 * Memory needs no alignment. A partial load or store touches only its first n elements (the other
 * lanes of a load are zero), so kernels never access memory outside a buffer. Products and sums are
 * written with * and +; -ffp-contract=fast fuses them into multiply-adds.
 */
#ifndef PE_VEC_H
#define PE_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PE_INLINE static inline __attribute__((always_inline, unused))
#define PE_JOIN_(a, b) a##b
#define PE_JOIN(a, b) PE_JOIN_(a, b)

/* Unrolls a loop whose trip count is constant after inlining, so that arrays of vectors indexed by
 * its counter stay in registers; other loops are unrolled by two or four. */
#if defined(__clang__)
#define PE_UNROLL _Pragma("clang loop unroll(full)")
#define PE_UNROLL_2 _Pragma("clang loop unroll_count(2)")
#define PE_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define PE_UNROLL _Pragma("GCC unroll 64")
#define PE_UNROLL_2 _Pragma("GCC unroll 2")
#define PE_UNROLL_4 _Pragma("GCC unroll 4")
#endif

/* Prevents unrolling of a loop of constant length, if flash is scarce. */
#if defined(__clang__)
#define PE_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define PE_ROLLED
#endif

/* Masked moves of x86. Without them, and under the address sanitizer (which does not see them), a
 * partial access is a copy of exactly its elements. */
#if !defined(__SANITIZE_ADDRESS__) && defined(__AVX512F__)
#define PE_MASK_512 1
#else
#define PE_MASK_512 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && defined(__AVX__)
#define PE_MASK_256 1
#else
#define PE_MASK_256 0
#endif

/* Instructions that widen vectors of f16. GCC uses them for single numbers only; clang has _Float16
 * on x86 since 15. */
#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
#define PE_HALVES (__clang_major__ >= 15)
#else
#define PE_HALVES 0
#endif

#if defined(__ARM_NEON)
#define PE_NEON 1
#include <arm_neon.h>
#else
#define PE_NEON 0
#endif

/* Helium with integers and floats. Its vectors flush subnormals to zero. */
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE == 3
#define PE_HELIUM 1
#include <arm_mve.h>
#else
#define PE_HELIUM 0
#endif

#include "pe_hvx_floats.h"

#define PE_LANES 4
#include "pe_vec_lanes.inc.h"
#undef PE_LANES
#define PE_LANES 8
#include "pe_vec_lanes.inc.h"
#undef PE_LANES
#define PE_LANES 16
#include "pe_vec_lanes.inc.h"
#undef PE_LANES
#if PE_HVX
#define PE_LANES 32
#include "pe_vec_lanes.inc.h"
#undef PE_LANES
#endif

#if PE_NEON && defined(__aarch64__)
#define PE_PAIR_REACH 1008
#define PE_HIDE(x) __asm__("" : "+r"(x))
/* A compiler barrier: computes a vector register before later code and loads. */
#define PE_KEEP_ORDER(v) __asm__ volatile("" : "+w"(v) : : "memory")
/* Loads a vector of four floats and advances the pointer, by one instruction. */
#define PE_LOAD_AND_STEP(v, p, bytes)                                                              \
    __asm__ volatile("ld1 {%0.4s}, [%1], %2" : "=w"(v), "+r"(p) : "r"(bytes) : "memory")
#else
#define PE_PAIR_REACH 0
#define PE_HIDE(x) (void)(x)
#define PE_KEEP_ORDER(v) (void)(v)
#endif

/* The same pointer or index, but opaque to the compiler: offsets are then relative to it, and stay
 * within PE_PAIR_REACH bytes, the range of AArch64's pair loads and stores. */
PE_INLINE const float *pe_fresh(const float *p) {
    PE_HIDE(p);
    return p;
}

PE_INLINE ptrdiff_t pe_fresh_index(ptrdiff_t i) {
    PE_HIDE(i);
    return i;
}

/* Advances a pointer to the i-th row of a tile, `stride` elements after the previous one. Pair
 * loads and stores reach only a few rows: after the `first` ones, each `near` rows have an opaque
 * pointer, `below` rows after the first of them. */
#define PE_STEP_ROW(p, i, stride, first, below, near)                                              \
    do {                                                                                           \
        (p) += (i) ? (stride) : 0;                                                                 \
        if ((i) >= (first) && ((i) - (first)) % (near) == 0) {                                     \
            (p) += (below) * (stride);                                                             \
            PE_HIDE(p);                                                                            \
            (p) -= (below) * (stride);                                                             \
        }                                                                                          \
    } while (0)

/* Copies n floats. memcpy as a call moves single vectors; the loop moves pairs. */
PE_INLINE void pe_copy(float *to, const float *from, ptrdiff_t n) {
#if PE_PAIR_REACH
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16) {
        pe_store16(to + i, pe_load16(from + i));
    }
    memcpy(to + i, from + i, sizeof(float) * (size_t)(n - i));
#else
    memcpy(to, from, sizeof(float) * (size_t)n);
#endif
}

/* Makes streamed stores visible to the threads that pass the next barrier. */
PE_INLINE void pe_stream_end(void) {
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

#define PE_OF_WIDTH(name) PE_JOIN(name, PE_VL)

/* f32, i32 (also the mask type: -1 true, 0 false) and i64 vectors. */
#define pe_vf PE_OF_WIDTH(pe_vf)
#define pe_vi PE_OF_WIDTH(pe_vi)
#define pe_vl PE_OF_WIDTH(pe_vl)

#define pe_load PE_OF_WIDTH(pe_load)
#define pe_store PE_OF_WIDTH(pe_store)
#define pe_load_part PE_OF_WIDTH(pe_load_part)
#define pe_store_part PE_OF_WIDTH(pe_store_part)
#define pe_stream_part PE_OF_WIDTH(pe_stream_part)
#define pe_load_i PE_OF_WIDTH(pe_load_i)
#define pe_store_i PE_OF_WIDTH(pe_store_i)
#define pe_load_part_i PE_OF_WIDTH(pe_load_part_i)
#define pe_store_part_i PE_OF_WIDTH(pe_store_part_i)
#define pe_load_l PE_OF_WIDTH(pe_load_l)
#define pe_store_l PE_OF_WIDTH(pe_store_l)
#define pe_load_part_l PE_OF_WIDTH(pe_load_part_l)
#define pe_store_part_l PE_OF_WIDTH(pe_store_part_l)
#define pe_load_b PE_OF_WIDTH(pe_load_b)
#define pe_store_b PE_OF_WIDTH(pe_store_b)
#define pe_load_part_b PE_OF_WIDTH(pe_load_part_b)
#define pe_store_part_b PE_OF_WIDTH(pe_store_part_b)

#define pe_load_part_bf PE_OF_WIDTH(pe_load_part_bf)
#define pe_store_part_bf PE_OF_WIDTH(pe_store_part_bf)
#define pe_splat_bf PE_OF_WIDTH(pe_splat_bf)
#define pe_load_part_hf PE_OF_WIDTH(pe_load_part_hf)
#define pe_store_part_hf PE_OF_WIDTH(pe_store_part_hf)
#define pe_splat_hf PE_OF_WIDTH(pe_splat_hf)
#define pe_load_part_sb PE_OF_WIDTH(pe_load_part_sb)
#define pe_store_part_sb PE_OF_WIDTH(pe_store_part_sb)
#define pe_splat_sb PE_OF_WIDTH(pe_splat_sb)
#define pe_load_part_ub PE_OF_WIDTH(pe_load_part_ub)
#define pe_store_part_ub PE_OF_WIDTH(pe_store_part_ub)
#define pe_splat_ub PE_OF_WIDTH(pe_splat_ub)
#define pe_round_bf PE_OF_WIDTH(pe_round_bf)
#define pe_round_hf PE_OF_WIDTH(pe_round_hf)
#define pe_clamp_i PE_OF_WIDTH(pe_clamp_i)

#define pe_splat PE_OF_WIDTH(pe_splat)
#define pe_splat_i PE_OF_WIDTH(pe_splat_i)
#define pe_splat_l PE_OF_WIDTH(pe_splat_l)
#define pe_first_lanes PE_OF_WIDTH(pe_first_lanes)
#define pe_zero PE_OF_WIDTH(pe_zero)
#define pe_select PE_OF_WIDTH(pe_select)
#define pe_add_i PE_OF_WIDTH(pe_add_i)
#define pe_sub_i PE_OF_WIDTH(pe_sub_i)
#define pe_mul_i PE_OF_WIDTH(pe_mul_i)
#define pe_add_l PE_OF_WIDTH(pe_add_l)
#define pe_sub_l PE_OF_WIDTH(pe_sub_l)
#define pe_mul_l PE_OF_WIDTH(pe_mul_l)
#define pe_select_i PE_OF_WIDTH(pe_select_i)
#define pe_select_l PE_OF_WIDTH(pe_select_l)
#define pe_in_range PE_OF_WIDTH(pe_in_range)
#define pe_widen PE_OF_WIDTH(pe_widen)
#define pe_narrow PE_OF_WIDTH(pe_narrow)
#define pe_to_f PE_OF_WIDTH(pe_to_f)
#define pe_to_i PE_OF_WIDTH(pe_to_i)
#define pe_wide_to_f PE_OF_WIDTH(pe_wide_to_f)
#define pe_saturate_i PE_OF_WIDTH(pe_saturate_i)
#define pe_saturate_l PE_OF_WIDTH(pe_saturate_l)
#define pe_max PE_OF_WIDTH(pe_max)
#define pe_min PE_OF_WIDTH(pe_min)
#define pe_sum PE_OF_WIDTH(pe_sum)
#define pe_sum_i PE_OF_WIDTH(pe_sum_i)
#define pe_largest PE_OF_WIDTH(pe_largest)

#endif
