/* Loads and stores of the storage-only types, PE_LANES elements at a time: bf16 and f16 are f32 in
 * registers, i8 and u8 are i32. pe_vec_lanes.inc.h includes this file at its end.
 *
 * Names end in bf and hf for bf16 and f16 (halves), sb and ub for signed and unsigned bytes: i8
 * would be i32 of eight lanes. The cast that produced a value has already rounded or saturated it:
 * a store drops only padding bits.
 */

typedef uint16_t PE_V(pe_vh) __attribute__((vector_size(PE_LANES * 2)));
typedef int8_t PE_V(pe_vc) __attribute__((vector_size(PE_LANES)));

#if PE_LANES < 32
PE_INLINE size_t PE_V(pe_bytes)(int n, size_t size) {
    return (size_t)(n < PE_LANES ? n : PE_LANES) * size;
}

PE_INLINE PE_V(pe_vf) PE_V(pe_of_bits)(PE_V(pe_vi) bits) { return (PE_V(pe_vf))bits; }

/* To the nearest bf16, ties to even; NaN stays NaN. */
PE_INLINE PE_V(pe_vf) PE_V(pe_round_bf)(PE_V(pe_vf) v) {
    const PE_V(pe_vi) bits = (PE_V(pe_vi))v;
    const PE_V(pe_vi) rounded = (bits + (((bits >> 16) & 1) + 0x7fff)) & (int32_t)0xffff0000;
    return PE_V(pe_of_bits)(PE_V(pe_select_i)(v == v, rounded, bits | 0x7fc00000));
}

PE_INLINE PE_V(pe_vf) PE_V(pe_load_part_bf)(const uint16_t *p, int n) {
    PE_V(pe_vh) v = {0};
    memcpy(&v, p, PE_V(pe_bytes)(n, sizeof *p));
    return PE_V(pe_of_bits)(__builtin_convertvector(v, PE_V(pe_vi)) << 16);
}

PE_INLINE void PE_V(pe_store_part_bf)(uint16_t *p, PE_V(pe_vf) v, int n) {
    const PE_V(pe_vh) y = __builtin_convertvector((PE_V(pe_vi))v >> 16, PE_V(pe_vh));
    memcpy(p, &y, PE_V(pe_bytes)(n, sizeof *p));
}

/* An f16 in the low half of each lane. Subnormals are rounded by adding a constant whose last place
 * equals theirs. */
PE_INLINE PE_V(pe_vi) PE_V(pe_half_bits)(PE_V(pe_vf) v) {
    const PE_V(pe_vi) bits = (PE_V(pe_vi))v, a = bits & INT32_MAX;
    const PE_V(pe_vi) normal = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13;
    const PE_V(pe_vi) small = (PE_V(pe_vi))(PE_V(pe_of_bits)(a) + 0.5f) - 0x3f000000;
    const PE_V(pe_vi) large = PE_V(pe_splat_i)(0x7c00) + ((v != v) & 0x200);
    PE_V(pe_vi) y = PE_V(pe_select_i)(a < 0x38800000, small, normal);
    y = PE_V(pe_select_i)(a >= 0x47800000, large, y);
    return y | ((bits >> 16) & 0x8000);
}

#if PE_HALVES
typedef _Float16 PE_V(pe_vhf) __attribute__((vector_size(PE_LANES * 2)));

PE_INLINE PE_V(pe_vf) PE_V(pe_of_half)(PE_V(pe_vi) half) {
    const PE_V(pe_vhf) numbers = (PE_V(pe_vhf)) __builtin_convertvector(half, PE_V(pe_vh));
    return __builtin_convertvector(numbers, PE_V(pe_vf));
}
#else
PE_INLINE PE_V(pe_vf) PE_V(pe_of_half)(PE_V(pe_vi) half) {
    const PE_V(pe_vi) a = (half & 0x7fff) << 13;
    const PE_V(pe_vf) scaled = PE_V(pe_of_bits)(a) * 0x1p112f;
    const PE_V(pe_vi) infinite = (a >= 0x7c00 << 13) & (a | 0x7f800000);
    return PE_V(pe_of_bits)((PE_V(pe_vi))scaled | infinite | ((half & 0x8000) << 16));
}
#endif

PE_INLINE PE_V(pe_vf) PE_V(pe_round_hf)(PE_V(pe_vf) v) {
    return PE_V(pe_of_half)(PE_V(pe_half_bits)(v));
}

PE_INLINE PE_V(pe_vf) PE_V(pe_load_part_hf)(const uint16_t *p, int n) {
    PE_V(pe_vh) v = {0};
    memcpy(&v, p, PE_V(pe_bytes)(n, sizeof *p));
    return PE_V(pe_of_half)(__builtin_convertvector(v, PE_V(pe_vi)));
}

PE_INLINE void PE_V(pe_store_part_hf)(uint16_t *p, PE_V(pe_vf) v, int n) {
    const PE_V(pe_vh) y = __builtin_convertvector(PE_V(pe_half_bits)(v), PE_V(pe_vh));
    memcpy(p, &y, PE_V(pe_bytes)(n, sizeof *p));
}
#endif

#if PE_LANES == 32
PE_INLINE pe_vi32 pe_load_part_sb32(const int8_t *p, int n) {
    return (pe_vi32)pe_hvx_widen(n < 32 ? pe_hvx_load_only(p, n) : pe_hvx_load(p, 32));
}

PE_INLINE pe_vi32 pe_load_part_ub32(const uint8_t *p, int n) {
    return (pe_vi32)pe_hvx_widen_unsigned(n < 32 ? pe_hvx_load_only(p, n) : pe_hvx_load(p, 32));
}

PE_INLINE void pe_store_part_sb32(int8_t *p, pe_vi32 v, int n) {
    pe_hvx_store(p, pe_hvx_narrow((HVX_Vector)v), n < 32 ? n : 32);
}

PE_INLINE void pe_store_part_ub32(uint8_t *p, pe_vi32 v, int n) {
    pe_hvx_store(p, pe_hvx_narrow((HVX_Vector)v), n < 32 ? n : 32);
}
#else
PE_INLINE PE_V(pe_vi) PE_V(pe_load_part_sb)(const int8_t *p, int n) {
    PE_V(pe_vc) v = {0};
    memcpy(&v, p, PE_V(pe_bytes)(n, sizeof *p));
    return __builtin_convertvector(v, PE_V(pe_vi));
}

PE_INLINE PE_V(pe_vi) PE_V(pe_load_part_ub)(const uint8_t *p, int n) {
    PE_V(pe_vb) v = {0};
    memcpy(&v, p, PE_V(pe_bytes)(n, sizeof *p));
    return __builtin_convertvector(v, PE_V(pe_vi));
}

PE_INLINE void PE_V(pe_store_part_sb)(int8_t *p, PE_V(pe_vi) v, int n) {
    const PE_V(pe_vc) y = __builtin_convertvector(v, PE_V(pe_vc));
    memcpy(p, &y, PE_V(pe_bytes)(n, sizeof *p));
}

PE_INLINE void PE_V(pe_store_part_ub)(uint8_t *p, PE_V(pe_vi) v, int n) {
    const PE_V(pe_vb) y = __builtin_convertvector(v, PE_V(pe_vb));
    memcpy(p, &y, PE_V(pe_bytes)(n, sizeof *p));
}
#endif

#if PE_LANES < 32
PE_INLINE PE_V(pe_vf) PE_V(pe_splat_bf)(uint16_t x) {
    return PE_V(pe_of_bits)(PE_V(pe_splat_i)((int32_t)((uint32_t)x << 16)));
}

PE_INLINE PE_V(pe_vf) PE_V(pe_splat_hf)(uint16_t x) {
    return PE_V(pe_of_half)(PE_V(pe_splat_i)(x));
}
#endif

PE_INLINE PE_V(pe_vi) PE_V(pe_splat_sb)(int8_t x) { return PE_V(pe_splat_i)(x); }

PE_INLINE PE_V(pe_vi) PE_V(pe_splat_ub)(uint8_t x) { return PE_V(pe_splat_i)(x); }

/* Saturates integers to 8 bits; floats are truncated towards zero first. */
PE_INLINE PE_V(pe_vi) PE_V(pe_clamp_i)(PE_V(pe_vi) v, int32_t least, int32_t most) {
    v = PE_V(pe_select_i)(v < least, PE_V(pe_splat_i)(least), v);
    return PE_V(pe_select_i)(v > most, PE_V(pe_splat_i)(most), v);
}
