/* The part of Hexagon's vectors that kernels use (HVX, 128 bytes) beyond arithmetic: parts of a
 * vector at any address, and conversion between bytes and lanes of i32.
 *
 * A part is read through the aligned vectors that contain its first and last byte, so no other page
 * is touched; a store writes only the part's bytes. Parts have 1 to 128 bytes.
 */
#ifndef PE_HVX_H
#define PE_HVX_H

#if defined(__HVX__)
#define PE_HVX 1
#include <hexagon_types.h>

#include <hexagon_protos.h>
#include <hvx_hexagon_protos.h>

PE_INLINE HVX_Vector pe_hvx_load(const void *p, const int bytes) {
    const uintptr_t at = (uintptr_t)p, last = at + (uintptr_t)bytes - 1;
    const HVX_Vector low = *(const HVX_Vector *)(at & ~(uintptr_t)127);
    return Q6_V_valign_VVR(*(const HVX_Vector *)(last & ~(uintptr_t)127), low, (int)at);
}

/* Loads a part, then zeros. */
PE_INLINE HVX_Vector pe_hvx_load_only(const void *p, const int bytes) {
    return Q6_V_vand_QV(Q6_Q_vsetq2_R(bytes), pe_hvx_load(p, bytes));
}

PE_INLINE void pe_hvx_store(void *p, HVX_Vector v, const int bytes) {
    const int begin = (int)((uintptr_t)p & 127), end = begin + bytes;
    HVX_Vector *to = (HVX_Vector *)((uintptr_t)p & ~(uintptr_t)127);
    v = Q6_V_vlalign_VVR(v, v, begin);
    const HVX_VectorPred before = Q6_Q_vsetq_R(begin), inside = Q6_Q_vsetq2_R(end);
    if (end > 128) {
        Q6_vmem_QnRIV(before, to, v);
        Q6_vmem_QRIV(inside, to + 1, v);
    } else {
        Q6_vmem_QRIV(Q6_Q_and_QQn(inside, before), to, v);
    }
}

/* Any number of bytes; calls of memcpy and memset cost tens of packets each. */
PE_INLINE void pe_copy_bytes(int8_t *to, const int8_t *from, const int bytes) {
    for (int i = 0; i < bytes; i += 128) {
        const int left = bytes - i < 128 ? bytes - i : 128;
        pe_hvx_store(to + i, pe_hvx_load(from + i, left), left);
    }
}

PE_INLINE void pe_fill_bytes(int8_t *to, const int8_t byte, const int bytes) {
    for (int i = 0; i < bytes; i += 128) {
        pe_hvx_store(to + i, Q6_Vb_vsplat_R(byte), bytes - i < 128 ? bytes - i : 128);
    }
}

/* The first 32 bytes as lanes. */
PE_INLINE HVX_Vector pe_hvx_widen(HVX_Vector bytes) {
    return Q6_V_lo_W(Q6_Ww_vunpack_Vh(Q6_V_lo_W(Q6_Wh_vunpack_Vb(bytes))));
}

PE_INLINE HVX_Vector pe_hvx_widen_unsigned(HVX_Vector bytes) {
    return Q6_V_lo_W(Q6_Wuw_vunpack_Vuh(Q6_V_lo_W(Q6_Wuh_vunpack_Vub(bytes))));
}

/* The lowest bytes of the lanes, in the first 32. */
PE_INLINE HVX_Vector pe_hvx_narrow(HVX_Vector lanes) {
    const HVX_Vector halves = Q6_Vh_vpacke_VwVw(lanes, lanes);
    return Q6_Vb_vpacke_VhVh(halves, halves);
}

/* x multiplier 2^(exponent - 31), as pe_rescale of pe_quantized_lanes.inc.h: the upper half of the
 * doubled product, rounded; then a shift in two steps, whose last bit rounds. With `once` that is
 * all rounding of lanes that shift. */
PE_INLINE HVX_Vector pe_hvx_rescale(HVX_Vector x, HVX_Vector multiplier, HVX_Vector exponent,
                                    const int down, const int once) {
    const HVX_Vector zero = Q6_V_vzero(), one = Q6_V_vsplat_R(1);
    if (!down) {
        x = Q6_Vw_vasl_VwVw(x, Q6_Vw_vmax_VwVw(exponent, zero));
    }
    const HVX_Vector low = Q6_Vw_vmpye_VwVuh(x, multiplier);
    const HVX_Vector high = Q6_Vw_vmpyoacc_VwVwVh_s1_rnd_sat_shift(low, x, multiplier);
    const HVX_Vector less = once ? Q6_Vw_vmpyoacc_VwVwVh_s1_sat_shift(low, x, multiplier)
                                 : Q6_Vw_vadd_VwVw(high, Q6_Vw_vasr_VwR(high, 31));
    HVX_Vector y = Q6_Vw_vasr_VwVw(less, Q6_V_vnot_V(exponent)); /* -exponent - 1 */
    y = Q6_Vw_vasr_VwR(Q6_Vw_vadd_VwVw(y, one), 1);
    return down ? y : Q6_V_vmux_QVV(Q6_Q_vcmp_gt_VwVw(zero, exponent), y, high);
}
#else
#define PE_HVX 0
PE_INLINE void pe_copy_bytes(int8_t *to, const int8_t *from, const int bytes) {
    memcpy(to, from, (size_t)bytes);
}

PE_INLINE void pe_fill_bytes(int8_t *to, const int8_t byte, const int bytes) {
    memset(to, byte, (size_t)bytes);
}
#endif

#endif
