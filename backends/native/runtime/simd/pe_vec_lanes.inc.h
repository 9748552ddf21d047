/* Vector types and operations of PE_LANES lanes; pe_vec.h includes this file once for each width.
 */

#define PE_V(name) PE_JOIN(name, PE_LANES)

#if PE_LANES == 32
typedef int32_t pe_vf32 __attribute__((vector_size(128)));
#else
typedef float PE_V(pe_vf) __attribute__((vector_size(PE_LANES * 4)));
#endif
typedef int32_t PE_V(pe_vi) __attribute__((vector_size(PE_LANES * 4)));
typedef uint32_t PE_V(pe_vu) __attribute__((vector_size(PE_LANES * 4)));
typedef int64_t PE_V(pe_vl) __attribute__((vector_size(PE_LANES * 8)));
typedef uint64_t PE_V(pe_vul) __attribute__((vector_size(PE_LANES * 8)));
typedef uint8_t PE_V(pe_vb) __attribute__((vector_size(PE_LANES)));

/* The same vectors in memory: unaligned, and allowed to alias arrays of their elements. */
#if PE_LANES == 32
typedef int32_t pe_vf_memory32 __attribute__((vector_size(128), aligned(4), may_alias));
#else
typedef float PE_V(pe_vf_memory) __attribute__((vector_size(PE_LANES * 4), aligned(4), may_alias));
#endif
typedef int32_t PE_V(pe_vi_memory)
    __attribute__((vector_size(PE_LANES * 4), aligned(4), may_alias));
typedef int64_t PE_V(pe_vl_memory)
    __attribute__((vector_size(PE_LANES * 8), aligned(8), may_alias));
typedef uint8_t PE_V(pe_vb_memory) __attribute__((vector_size(PE_LANES), aligned(1), may_alias));

PE_INLINE PE_V(pe_vf) PE_V(pe_load)(const float *p) { return *(const PE_V(pe_vf_memory) *)p; }

PE_INLINE void PE_V(pe_store)(float *p, PE_V(pe_vf) v) { *(PE_V(pe_vf_memory) *)p = v; }

PE_INLINE PE_V(pe_vi) PE_V(pe_load_i)(const int32_t *p) { return *(const PE_V(pe_vi_memory) *)p; }

PE_INLINE void PE_V(pe_store_i)(int32_t *p, PE_V(pe_vi) v) { *(PE_V(pe_vi_memory) *)p = v; }

PE_INLINE PE_V(pe_vl) PE_V(pe_load_l)(const int64_t *p) { return *(const PE_V(pe_vl_memory) *)p; }

PE_INLINE void PE_V(pe_store_l)(int64_t *p, PE_V(pe_vl) v) { *(PE_V(pe_vl_memory) *)p = v; }

/* Lanes below n are -1, the others 0. */
PE_INLINE PE_V(pe_vi) PE_V(pe_first_lanes)(int n) {
    PE_V(pe_vi) lane;
    PE_UNROLL
    for (int i = 0; i < PE_LANES; i++) {
        lane[i] = i;
    }
    return lane < (lane - lane + n);
}

PE_INLINE PE_V(pe_vf) PE_V(pe_load_part)(const float *p, int n) {
    if (n >= PE_LANES) {
        return PE_V(pe_load)(p);
    }
    PE_V(pe_vf) v = {0};
#if PE_LANES == 16 && PE_MASK_512
    v = __builtin_ia32_loadups512_mask(p, v, (uint16_t)((1U << n) - 1U));
#elif PE_LANES == 8 && PE_MASK_256
    v = __builtin_ia32_maskloadps256((const pe_vf8 *)p, pe_first_lanes8(n));
#elif PE_LANES == 4 && PE_MASK_256
    v = __builtin_ia32_maskloadps((const pe_vf4 *)p, pe_first_lanes4(n));
#elif PE_LANES == 32
    v = (pe_vf32)pe_hvx_load_only(p, n * 4);
#else
    memcpy(&v, p, (size_t)n * sizeof *p);
#endif
    return v;
}

PE_INLINE void PE_V(pe_store_part)(float *p, PE_V(pe_vf) v, int n) {
    if (n >= PE_LANES) {
        PE_V(pe_store)(p, v);
        return;
    }
#if PE_LANES == 16 && PE_MASK_512
    __builtin_ia32_storeups512_mask(p, v, (uint16_t)((1U << n) - 1U));
#elif PE_LANES == 8 && PE_MASK_256
    __builtin_ia32_maskstoreps256((pe_vf8 *)p, pe_first_lanes8(n), v);
#elif PE_LANES == 4 && PE_MASK_256
    __builtin_ia32_maskstoreps((pe_vf4 *)p, pe_first_lanes4(n), v);
#elif PE_LANES == 32
    pe_hvx_store(p, (HVX_Vector)v, n * 4);
#else
    memcpy(p, &v, (size_t)n * sizeof *p);
#endif
}

/* A non-temporal store, for results that are too large for the caches: it avoids reading the memory
 * first. `p` is aligned to the vector. End a kernel that uses it with pe_stream_end. */
PE_INLINE void PE_V(pe_stream_part)(float *p, PE_V(pe_vf) v, int n) {
#if defined(__clang__) && defined(__x86_64__) && PE_LANES == 16
    if (n >= PE_LANES) {
        __builtin_nontemporal_store(v, (PE_V(pe_vf) *)p);
        return;
    }
#endif
    PE_V(pe_store_part)(p, v, n);
}

PE_INLINE PE_V(pe_vi) PE_V(pe_load_part_i)(const int32_t *p, int n) {
    if (n >= PE_LANES) {
        return PE_V(pe_load_i)(p);
    }
    PE_V(pe_vi) v = {0};
#if PE_LANES == 32
    v = (pe_vi32)pe_hvx_load_only(p, n * 4);
#else
    memcpy(&v, p, (size_t)n * sizeof *p);
#endif
    return v;
}

PE_INLINE void PE_V(pe_store_part_i)(int32_t *p, PE_V(pe_vi) v, int n) {
#if PE_LANES == 32
    if (n < 32) {
        pe_hvx_store(p, (HVX_Vector)v, n * 4);
        return;
    }
#endif
    memcpy(p, &v, (size_t)(n < PE_LANES ? n : PE_LANES) * sizeof *p);
}

PE_INLINE PE_V(pe_vl) PE_V(pe_load_part_l)(const int64_t *p, int n) {
    PE_V(pe_vl) v = {0};
    memcpy(&v, p, (size_t)(n < PE_LANES ? n : PE_LANES) * sizeof *p);
    return v;
}

PE_INLINE void PE_V(pe_store_part_l)(int64_t *p, PE_V(pe_vl) v, int n) {
    memcpy(p, &v, (size_t)(n < PE_LANES ? n : PE_LANES) * sizeof *p);
}

/* Booleans are bytes of 0 and 1 in memory and masks in registers. */
PE_INLINE PE_V(pe_vi) PE_V(pe_load_part_b)(const uint8_t *p, int n) {
#if PE_LANES == 32
    return (pe_vi32)pe_hvx_widen_unsigned(pe_hvx_load_only(p, n < 32 ? n : 32)) != 0;
#else
    PE_V(pe_vb) v = {0};
    memcpy(&v, p, (size_t)(n < PE_LANES ? n : PE_LANES));
    return __builtin_convertvector(v, PE_V(pe_vi)) != 0;
#endif
}

PE_INLINE PE_V(pe_vi) PE_V(pe_load_b)(const uint8_t *p) {
    const PE_V(pe_vb) v = *(const PE_V(pe_vb_memory) *)p;
    return __builtin_convertvector(v, PE_V(pe_vi)) != 0;
}

PE_INLINE void PE_V(pe_store_part_b)(uint8_t *p, PE_V(pe_vi) mask, int n) {
#if PE_LANES == 32
    pe_hvx_store(p, pe_hvx_narrow((HVX_Vector)(-mask)), n < 32 ? n : 32);
#else
    const PE_V(pe_vb) v = __builtin_convertvector(-mask, PE_V(pe_vb));
    memcpy(p, &v, (size_t)(n < PE_LANES ? n : PE_LANES));
#endif
}

PE_INLINE void PE_V(pe_store_b)(uint8_t *p, PE_V(pe_vi) mask) {
    *(PE_V(pe_vb_memory) *)p = __builtin_convertvector(-mask, PE_V(pe_vb));
}

PE_INLINE PE_V(pe_vf) PE_V(pe_zero)(void) { return (PE_V(pe_vf)){0}; }

/* x - 0 and not 0 + x: the former preserves negative zero. */
#if PE_LANES == 32
PE_INLINE pe_vf32 pe_splat32(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (pe_vf32)Q6_V_vsplat_R(bits);
}
#else
PE_INLINE PE_V(pe_vf) PE_V(pe_splat)(float x) { return x - (PE_V(pe_vf)){0}; }
#endif

PE_INLINE PE_V(pe_vi) PE_V(pe_splat_i)(int32_t x) { return x - (PE_V(pe_vi)){0}; }

PE_INLINE PE_V(pe_vl) PE_V(pe_splat_l)(int64_t x) { return x - (PE_V(pe_vl)){0}; }

PE_INLINE PE_V(pe_vi) PE_V(pe_select_i)(PE_V(pe_vi) mask, PE_V(pe_vi) a, PE_V(pe_vi) b) {
    return (mask & a) | (~mask & b);
}

PE_INLINE PE_V(pe_vl) PE_V(pe_select_l)(PE_V(pe_vl) mask, PE_V(pe_vl) a, PE_V(pe_vl) b) {
    return (mask & a) | (~mask & b);
}

PE_INLINE PE_V(pe_vf) PE_V(pe_select)(PE_V(pe_vi) mask, PE_V(pe_vf) a, PE_V(pe_vf) b) {
    return (PE_V(pe_vf))PE_V(pe_select_i)(mask, (PE_V(pe_vi))a, (PE_V(pe_vi))b);
}

/* Arithmetic that wraps, unlike that of signed integers in C. */
#define PE_WRAPPING(name, op, signed_lanes, unsigned_lanes)                                        \
    PE_INLINE signed_lanes name(signed_lanes a, signed_lanes b) {                                  \
        return (signed_lanes)((unsigned_lanes)a op(unsigned_lanes) b);                             \
    }
PE_WRAPPING(PE_V(pe_add_i), +, PE_V(pe_vi), PE_V(pe_vu))
PE_WRAPPING(PE_V(pe_sub_i), -, PE_V(pe_vi), PE_V(pe_vu))
PE_WRAPPING(PE_V(pe_mul_i), *, PE_V(pe_vi), PE_V(pe_vu))
PE_WRAPPING(PE_V(pe_add_l), +, PE_V(pe_vl), PE_V(pe_vul))
PE_WRAPPING(PE_V(pe_sub_l), -, PE_V(pe_vl), PE_V(pe_vul))
PE_WRAPPING(PE_V(pe_mul_l), *, PE_V(pe_vl), PE_V(pe_vul))
#undef PE_WRAPPING

/* Lanes in which 0 < v < high, for a positive number `high`. Bits of positive floats are ordered
 * like the floats, and those of all others, minus 1, are larger as unsigned integers. NEON needs
 * two instructions instead of three. */
#if PE_LANES < 32
PE_INLINE PE_V(pe_vi) PE_V(pe_in_range)(PE_V(pe_vf) v, PE_V(pe_vf) high) {
#if PE_NEON
    return (PE_V(pe_vi))((PE_V(pe_vu))v - 1U < (PE_V(pe_vu))high - 1U);
#else
    return (v > 0.0f) & (v < high);
#endif
}
#endif

PE_INLINE PE_V(pe_vl) PE_V(pe_widen)(PE_V(pe_vi) v) {
    return __builtin_convertvector(v, PE_V(pe_vl));
}

PE_INLINE PE_V(pe_vi) PE_V(pe_narrow)(PE_V(pe_vl) v) {
    return __builtin_convertvector(v, PE_V(pe_vi));
}

#if PE_LANES == 32
PE_INLINE pe_vf32 pe_to_f32(pe_vi32 v) { return (pe_vf32)pe_hvx_to_f((HVX_Vector)v); }
#else
PE_INLINE PE_V(pe_vf) PE_V(pe_to_f)(PE_V(pe_vi) v) {
    return __builtin_convertvector(v, PE_V(pe_vf));
}

PE_INLINE PE_V(pe_vf) PE_V(pe_wide_to_f)(PE_V(pe_vl) v) {
    return __builtin_convertvector(v, PE_V(pe_vf));
}

/* Truncates towards zero; the numbers must be in range. */
PE_INLINE PE_V(pe_vi) PE_V(pe_to_i)(PE_V(pe_vf) v) {
    return __builtin_convertvector(v, PE_V(pe_vi));
}

/* Truncates towards zero; saturates, and NaN gives 0, on every CPU. */
PE_INLINE PE_V(pe_vi) PE_V(pe_saturate_i)(PE_V(pe_vf) v) {
    const PE_V(pe_vi) over = v >= 2147483648.0f, under = v < -2147483648.0f;
    const PE_V(pe_vi) inside = ~over & ~under & (v == v);
    PE_V(pe_vi) y = PE_V(pe_to_i)(PE_V(pe_select)(inside, v, PE_V(pe_zero)()));
    y = PE_V(pe_select_i)(over, PE_V(pe_splat_i)(INT32_MAX), y);
    return PE_V(pe_select_i)(under, PE_V(pe_splat_i)(INT32_MIN), y);
}

PE_INLINE PE_V(pe_vl) PE_V(pe_saturate_l)(PE_V(pe_vf) v) {
    const PE_V(pe_vi) over = v >= 9223372036854775808.0f, under = v < -9223372036854775808.0f;
    const PE_V(pe_vi) inside = ~over & ~under & (v == v);
    const PE_V(pe_vf) safe = PE_V(pe_select)(inside, v, PE_V(pe_zero)());
    PE_V(pe_vl) y = __builtin_convertvector(safe, PE_V(pe_vl));
    y = PE_V(pe_select_l)(PE_V(pe_widen)(over), PE_V(pe_splat_l)(INT64_MAX), y);
    return PE_V(pe_select_l)(PE_V(pe_widen)(under), PE_V(pe_splat_l)(INT64_MIN), y);
}

#if PE_NEON && PE_LANES < 32
/* A vector, and the registers that hold it. */
typedef union PE_V(pe_quads) {
    PE_V(pe_vf) v;
    float32x4_t quads[PE_LANES / 4];
} PE_V(pe_quads);
#endif

/* The larger and the smaller of a, which is not NaN, and b: NaN if b is. NEON has instructions that
 * propagate NaN; elsewhere compilers turn such a comparison into one instruction. */
PE_INLINE PE_V(pe_vf) PE_V(pe_max)(PE_V(pe_vf) a, PE_V(pe_vf) b) {
#if PE_NEON
    PE_V(pe_quads) x = {.v = a}, y = {.v = b};
    PE_UNROLL
    for (int i = 0; i < PE_LANES / 4; i++) {
        x.quads[i] = vmaxq_f32(x.quads[i], y.quads[i]);
    }
    return x.v;
#else
    return PE_V(pe_select)(a > b, a, b);
#endif
}

PE_INLINE PE_V(pe_vf) PE_V(pe_min)(PE_V(pe_vf) a, PE_V(pe_vf) b) {
#if PE_NEON
    PE_V(pe_quads) x = {.v = a}, y = {.v = b};
    PE_UNROLL
    for (int i = 0; i < PE_LANES / 4; i++) {
        x.quads[i] = vminq_f32(x.quads[i], y.quads[i]);
    }
    return x.v;
#else
    return PE_V(pe_select)(a < b, a, b);
#endif
}

/* Sum of all lanes, in pairs: the order is the same for every compiler. */
PE_INLINE float PE_V(pe_sum)(PE_V(pe_vf) v) {
#if PE_NEON
    PE_V(pe_quads) x = {.v = v};
    PE_UNROLL
    for (int half = PE_LANES / 8; half > 0; half /= 2) {
        PE_UNROLL
        for (int i = 0; i < half; i++) {
            x.quads[i] = vaddq_f32(x.quads[i], x.quads[i + half]);
        }
    }
    const float32x2_t pair = vadd_f32(vget_low_f32(x.quads[0]), vget_high_f32(x.quads[0]));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
#else
    PE_UNROLL
    for (int half = PE_LANES / 2; half > 0; half /= 2) {
        PE_UNROLL
        for (int i = 0; i < half; i++) {
            v[i] += v[i + half];
        }
    }
    return v[0];
#endif
}

#endif

PE_INLINE int32_t PE_V(pe_sum_i)(PE_V(pe_vi) v) {
    int32_t sum = 0;
    PE_UNROLL
    for (int i = 0; i < PE_LANES; i++) {
        sum += v[i];
    }
    return sum;
}

#if PE_LANES < 32
PE_INLINE float PE_V(pe_largest)(PE_V(pe_vf) v) {
    PE_UNROLL
    for (int half = PE_LANES / 2; half > 0; half /= 2) {
        PE_UNROLL
        for (int i = 0; i < half; i++) {
            v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
        }
    }
    return v[0];
}
#endif

#include "pe_stored_lanes.inc.h"

#undef PE_V
