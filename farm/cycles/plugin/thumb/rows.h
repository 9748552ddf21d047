/* The rows by which decode.c finds what an instruction is; an encoding has the first that fits.
 *
 * Letters of operands. Capitals are written, others read; before a letter, @ means read early, >
 * read late. Of 16 bits:
 *   D, d  [2:0]   n  [5:3]   m  [8:6]   E, e  [10:8]   H, h  [7] and [2:0]   i  [6:3]
 *   S, s  the stack pointer   L, l  the list [7:0]; W  the base in [10:8], written back
 * Of 32 bits, where the first halfword is the high one:
 *   D, d  [11:8]   n  [19:16]   m  [3:0]   T, t  [15:12]   P  [19:16]   a, b  accumulators in
 *   [15:12], [11:8]   L, l  the list [15:0]   W  n written back if [21]   w  likewise if [8]
 *   single precision:  Q, q  [15:12] and [22]   k  the same, accumulated   V, v  [19:16] and [7]
 *   u  [3:0] and [5]   X, x  the pair [15:12] and [22]   Z, z  [7:0] words from Q on
 * Of both:  F, f  the flags   C  the flags if [20]   G, g  those of floating point   R  the link
 */
#ifndef POCKENGINE_CYCLES_THUMB_ROWS_H
#define POCKENGINE_CYCLES_THUMB_ROWS_H

#include "../core.h"
#include "decode.h"

struct row {
    uint32_t mask, value;
    uint8_t class, branch;
    const char *operands;
};

#define C(name) CLASS_##name, NO_BRANCH

static const struct row short_rows[] = {
    {0xf800, 0x1800, C(alu), "DnmF"},
    {0xfc00, 0x1c00, C(alu), "DnF"},
    {0xe000, 0x0000, C(shift), "DnF"},
    {0xf800, 0x2000, C(alu), "EF"}, /* MOVS */
    {0xf800, 0x2800, C(alu), "eF"}, /* CMP */
    {0xf000, 0x3000, C(alu), "EeF"},
    {0xffc0, 0x4200, C(alu), "dnF"}, /* TST */
    {0xff80, 0x4280, C(alu), "dnF"}, /* CMP, CMN */
    {0xffc0, 0x4240, C(alu), "DnF"}, /* RSBS */
    {0xffc0, 0x4340, C(mul), "DdnF"},
    {0xffc0, 0x43c0, C(alu), "DnF"},    /* MVNS */
    {0xff80, 0x4080, C(shift), "DdnF"}, /* LSLS, LSRS */
    {0xffc0, 0x4100, C(shift), "DdnF"},
    {0xffc0, 0x41c0, C(shift), "DdnF"},
    {0xffc0, 0x4140, C(alu), "DdnfF"}, /* ADCS, SBCS */
    {0xffc0, 0x4180, C(alu), "DdnfF"},
    {0xfc00, 0x4000, C(alu), "DdnF"},
    {0xff00, 0x4400, C(alu), "Hhi"},
    {0xff00, 0x4500, C(alu), "hiF"},
    {0xff00, 0x4600, C(alu), "Hi"},
    {0xfff8, 0x4770, CLASS_branch, RETURN, "i"},
    {0xff80, 0x4700, CLASS_branch, INDIRECT, "i"},
    {0xff80, 0x4780, CLASS_branch, INDIRECT_CALL, "iR"},
    {0xf800, 0x4800, C(load), "E"},
    {0xf800, 0x5000, C(store), ">d@n@m"},
    {0xfe00, 0x5800, C(load), "D@n@m"},
    {0xfe00, 0x5400, C(store), ">d@n@m"},
    {0xf000, 0x5000, C(load_small), "D@n@m"},
    {0xf800, 0x6000, C(store), ">d@n"},
    {0xf800, 0x6800, C(load), "D@n"},
    {0xf800, 0x7000, C(store), ">d@n"},
    {0xf800, 0x7800, C(load_small), "D@n"},
    {0xf800, 0x8000, C(store), ">d@n"},
    {0xf800, 0x8800, C(load_small), "D@n"},
    {0xf800, 0x9000, C(store), ">e@s"},
    {0xf800, 0x9800, C(load), "E@s"},
    {0xf800, 0xa000, C(alu), "E"},
    {0xf800, 0xa800, C(alu), "Es"},
    {0xff00, 0xb000, C(alu), "Ss"},
    {0xf500, 0xb100, CLASS_branch, CONDITIONAL, "d"},
    {0xff00, 0xb200, C(extend), "Dn"},
    {0xfe00, 0xb400, C(store_multiple), "l@sS"},
    {0xff00, 0xba00, C(reverse), "D@n"},
    {0xff00, 0xbc00, C(load_multiple), "L@sS"},
    {0xff00, 0xbd00, CLASS_load_multiple, RETURN, "L@sS"},
    {0xff00, 0xbe00, C(system), ""},
    {0xff00, 0xbf00, C(nop), ""}, /* hints, IT */
    {0xf800, 0xc000, C(store_multiple), "l@eW"},
    {0xf800, 0xc800, C(load_multiple), "L@eW"},
    {0xfe00, 0xde00, C(system), ""},
    {0xf000, 0xd000, CLASS_branch, CONDITIONAL, "f"},
    {0xf800, 0xe000, CLASS_branch, JUMP, ""},
};

static const struct row long_rows[] = {
    {0xfff0ffe0, 0xe8d0f000, CLASS_table_branch, INDIRECT, "@n@m"},
    {0xffd08000, 0xe8908000, CLASS_load_multiple, RETURN, "L@nW"},
    {0xffd00000, 0xe8900000, C(load_multiple), "L@nW"},
    {0xffd00000, 0xe9100000, C(load_multiple), "L@nW"},
    {0xffd00000, 0xe8800000, C(store_multiple), "l@nW"},
    {0xffd00000, 0xe9000000, C(store_multiple), "l@nW"},
    {0xfe500000, 0xe8500000, C(load_double), "TD@nW"},
    {0xfe500000, 0xe8400000, C(store_double), ">t>d@nW"},
    {0xffef70f0, 0xea4f0000, C(alu), "DmC"}, /* MOV */
    {0xffef0000, 0xea4f0000, C(shift), "DmC"},
    {0xffef0000, 0xea6f0000, C(alu_shift), "D@mC"}, /* MVN */
    {0xfff07ff0, 0xea100f00, C(alu), "nmF"},        /* TST, TEQ, CMN, CMP */
    {0xfff07ff0, 0xea900f00, C(alu), "nmF"},
    {0xfff07ff0, 0xeb100f00, C(alu), "nmF"},
    {0xfff07ff0, 0xebb00f00, C(alu), "nmF"},
    {0xfff00f00, 0xea100f00, C(alu_shift), "n@mF"},
    {0xfff00f00, 0xea900f00, C(alu_shift), "n@mF"},
    {0xfff00f00, 0xeb100f00, C(alu_shift), "n@mF"},
    {0xfff00f00, 0xebb00f00, C(alu_shift), "n@mF"},
    {0xfff00000, 0xeac00000, C(pack), "Dn@m"},
    {0xffe070f0, 0xeb400000, C(alu), "DnmfC"}, /* ADC, SBC */
    {0xffe070f0, 0xeb600000, C(alu), "DnmfC"},
    {0xfe0070f0, 0xea000000, C(alu), "DnmC"},
    {0xfe000000, 0xea000000, C(alu_shift), "Dn@mC"},
    {0xfbef8000, 0xf04f0000, C(alu), "DC"}, /* MOV, MVN */
    {0xfbef8000, 0xf06f0000, C(alu), "DC"},
    {0xfbf08f00, 0xf0100f00, C(alu), "nF"}, /* TST, TEQ, CMN, CMP */
    {0xfbf08f00, 0xf0900f00, C(alu), "nF"},
    {0xfbf08f00, 0xf1100f00, C(alu), "nF"},
    {0xfbf08f00, 0xf1b00f00, C(alu), "nF"},
    {0xfbe08000, 0xf1400000, C(alu), "DnfC"}, /* ADC, SBC */
    {0xfbe08000, 0xf1600000, C(alu), "DnfC"},
    {0xfa008000, 0xf0000000, C(alu), "DnC"},
    {0xfbf08000, 0xf2000000, C(alu), "Dn"}, /* ADDW, SUBW */
    {0xfbf08000, 0xf2a00000, C(alu), "Dn"},
    {0xfbf08000, 0xf2400000, C(alu), "D"}, /* MOVW, MOVT */
    {0xfbf08000, 0xf2c00000, C(alu), "Dd"},
    {0xffd08000, 0xf3000000, C(saturate), "D@n"},
    {0xffd08000, 0xf3800000, C(saturate), "D@n"},
    {0xfff08000, 0xf3400000, C(bitfield), "D@n"},
    {0xfff08000, 0xf3c00000, C(bitfield), "D@n"},
    {0xfff08000, 0xf3600000, C(bitfield_insert), "Ddn"},
    {0xfffff800, 0xf3af8000, C(nop), ""},
    {0xff80d000, 0xf3808000, C(system), ""},
    {0xf800d000, 0xf000d000, CLASS_branch, CALL, "R"},
    {0xf800d000, 0xf0009000, CLASS_branch, JUMP, ""},
    {0xf800d000, 0xf0008000, CLASS_branch, CONDITIONAL, "f"},
    {0xff900000, 0xf8800000, C(store), ">t@n"},
    {0xff900fc0, 0xf8000000, C(store), ">t@n@m"},
    {0xff900800, 0xf8000800, C(store), ">t@nw"},
    {0xff7ff000, 0xf85ff000, CLASS_load, INDIRECT, ""},
    {0xff7f0000, 0xf85f0000, C(load), "T"},
    {0xfff0f000, 0xf8d0f000, CLASS_load, INDIRECT, "@n"},
    {0xfff00000, 0xf8d00000, C(load), "T@n"},
    {0xfff0ffc0, 0xf850f000, CLASS_load, INDIRECT, "@n@m"},
    {0xfff00fc0, 0xf8500000, C(load), "T@n@m"},
    {0xfff0f800, 0xf850f800, CLASS_load, RETURN, "@nw"}, /* POP {PC} */
    {0xfff00800, 0xf8500800, C(load), "T@nw"},
    {0xfe900000, 0xf8900000, C(load_small), "T@n"},
    {0xfe900fc0, 0xf8100000, C(load_small), "T@n@m"},
    {0xfe900800, 0xf8100800, C(load_small), "T@nw"},
    {0xff80f0f0, 0xfa00f000, C(shift), "DnmC"},
    {0xff8ff080, 0xfa0ff080, C(extend), "Dm"},
    {0xff80f080, 0xfa00f080, C(extend_add), "Dn@m"},
    {0xff80f0b0, 0xfa80f010, C(simd_saturating), "Dnm"},
    {0xff80f080, 0xfa80f000, C(simd), "Dnm"},
    {0xfff0f0c0, 0xfa80f080, C(simd_saturating), "Dnm"},
    {0xfff0f0c0, 0xfa90f080, C(reverse), "D@m"},
    {0xfff0f0c0, 0xfaa0f080, C(simd), "Dnmf"}, /* SEL */
    {0xfff0f0c0, 0xfab0f080, C(clz), "Dm"},
    {0xff80f000, 0xfb00f000, C(mul), "Dnm"},
    {0xff800000, 0xfb000000, C(mac), "Dnma"},
    {0xffd0f0f0, 0xfb90f0f0, C(div), "Dnm"},
    {0xffd000f0, 0xfb800000, C(mul), "TDnm"},
    {0xff800000, 0xfb800000, C(mac), "TDnmab"},
    {0xfff00ed0, 0xec500a10, C(fp_move_pair), "TPu"},
    {0xfff00ed0, 0xec400a10, C(fp_move_pair), "tnU"},
    {0xff300f00, 0xed100a00, C(fp_load), "Q@n"},
    {0xff300f00, 0xed100b00, C(fp_load_double), "X@n"},
    {0xff300f00, 0xed000a00, C(fp_store), ">q@n"},
    {0xff300f00, 0xed000b00, C(fp_store_double), ">x@n"},
    {0xfe100e00, 0xec100a00, C(fp_load_multiple), "Z@nW"},
    {0xfe100e00, 0xec000a00, C(fp_store_multiple), "z@nW"},
    {0xffa00e10, 0xee000a00, C(fp_mla), "Qkvu"},
    {0xffb00e10, 0xee200a00, C(fp_mul), "Qvu"},
    {0xffb00e10, 0xee300a00, C(fp_alu), "Qvu"},
    {0xffb00e10, 0xee800a00, C(fp_div), "Qvu"},
    {0xffb00e10, 0xee900a00, C(fp_fma), "Qkvu"},
    {0xffb00e10, 0xeea00a00, C(fp_fma), "Qkvu"},
    {0xffb00ef0, 0xeeb00a00, C(fp_move), "Q"},
    {0xffbf0ed0, 0xeeb00a40, C(fp_move), "Qu"},
    {0xffbf0ed0, 0xeeb00ac0, C(fp_alu), "Qu"}, /* VABS, VNEG */
    {0xffbf0ed0, 0xeeb10a40, C(fp_alu), "Qu"},
    {0xffbf0ed0, 0xeeb10ac0, C(fp_sqrt), "Qu"},
    {0xffbe0e50, 0xeeb40a40, C(fp_compare), "quG"},
    {0xffb00e50, 0xeeb00a40, C(fp_convert), "Qu"},
    {0xfff00f7f, 0xee000a10, C(fp_from_general), "Vt"},
    {0xfff00f7f, 0xee100a10, C(fp_to_general), "Tv"},
    {0xffffffff, 0xeef1fa10, C(fp_flags), "gF"},
    {0xffef0fff, 0xeee10a10, C(system), ""},
    {0xff800e50, 0xfe000a00, C(fp_select), "Qvu@f"},
    {0xffb00e10, 0xfe800a00, C(fp_alu), "Qvu"}, /* VMAXNM, VMINNM */
    {0xffb00e50, 0xfeb00a40, C(fp_convert), "Qu"},
};

#undef C

#endif
