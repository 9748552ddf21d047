/* The rows by which decode.c finds what an instruction is; an encoding has the first that fits.
 *
 * An operand letter names a field and a file of registers:
 *   fields   D [4:0]  N [9:5]  M [20:16]  A [14:10]
 *   capital  general registers, 31 is zero; small: vectors
 *   D, d     written; with a + before them, also read
 *   T, t     [4:0], read;  S  [9:5] general, 31 is the stack pointer;  P  [4:0] written, likewise
 *   k        [4:0] vector, the accumulator;  K, q  [14:10] the accumulator, general, vector
 *   f, F     flags written, read;  l  x30 written;  i  M's 4-bit field [19:16], a vector
 */
#ifndef POCKENGINE_CYCLES_ROWS_H
#define POCKENGINE_CYCLES_ROWS_H

#include "decode.h"

struct row {
    uint32_t mask, value;
    uint8_t class;
    const char *operands;
};

#define C(name) CLASS_##name

static const struct row scalar_rows[] = {
    {0x1f000000, 0x10000000, C(alu), "D"},   /* ADR, ADRP */
    {0x3f000000, 0x31000000, C(alu), "DSf"}, /* ADDS, SUBS immediate */
    {0x1f000000, 0x11000000, C(alu), "PS"},
    {0x7f800000, 0x72000000, C(alu), "DNf"}, /* ANDS immediate */
    {0x1f800000, 0x12000000, C(alu), "PN"},
    {0x7f800000, 0x72800000, C(alu), "+D"}, /* MOVK */
    {0x1f800000, 0x12800000, C(alu), "D"},
    {0x7f800000, 0x33000000, C(bitfield_insert), "+DN"},
    {0x1f800000, 0x13000000, C(alu), "DN"},
    {0x1f800000, 0x13800000, C(extract), "DNM"},
    {0x7f00fc00, 0x6a000000, C(alu), "DNMf"}, /* ANDS, BICS, not shifted */
    {0x7f000000, 0x6a000000, C(alu_shift), "DNMf"},
    {0x1f00fc00, 0x0a000000, C(alu), "DNM"},
    {0x1f000000, 0x0a000000, C(logic_shift), "DNM"},
    {0x3f20fc00, 0x2b000000, C(alu), "DNMf"}, /* ADDS, SUBS, not shifted */
    {0x3f200000, 0x2b000000, C(alu_shift), "DNMf"},
    {0x1f20fc00, 0x0b000000, C(alu), "DNM"},
    {0x1f200000, 0x0b000000, C(alu_shift), "DNM"},
    {0x3f200000, 0x2b200000, C(alu_shift), "DSMf"}, /* extended */
    {0x1f200000, 0x0b200000, C(alu_shift), "PSM"},
    {0x3fe00000, 0x3a000000, C(alu), "DNMFf"}, /* ADCS, SBCS */
    {0x1fe00000, 0x1a000000, C(alu), "DNMF"},
    {0x1fe00800, 0x1a400800, C(alu), "NFf"}, /* CCMP immediate */
    {0x1fe00000, 0x1a400000, C(alu), "NMFf"},
    {0x1fe00000, 0x1a800000, C(alu), "DNMF"}, /* CSEL */
    {0xdfe0f800, 0x1ac00800, C(div32), "DNM"},
    {0xdfe0f800, 0x9ac00800, C(div64), "DNM"},
    {0x5fe0f000, 0x1ac02000, C(alu), "DNM"}, /* shifts by a register */
    {0x5fe0e000, 0x1ac04000, C(crc), "DNM"},
    {0x5fe00000, 0x5ac00000, C(alu), "DN"},
    {0xffe00000, 0x1b000000, C(mul32), "DNMK"},
    {0xffe00000, 0x9b000000, C(mul64), "DNMK"},
    {0x1f600000, 0x1b200000, C(mul32), "DNMK"}, /* SMADDL, UMADDL */
    {0x1f600000, 0x1b400000, C(mul_high), "DNM"},
    {0xfff00000, 0xd5300000, C(alu), "D"}, /* MRS */
    {0xffffffff, 0xd4000001, C(nop), ""},  /* SVC: the kernel's time is not modelled */
    {0xff000000, 0xd5000000, C(nop), ""},
};

static const struct row fp_rows[] = {
    {0xff3ffc00, 0x1e270000, C(general_to_fp), "dN"}, /* FMOV */
    {0x7f36fc00, 0x1e260000, C(fp_to_general), "Dn"},
    {0xfffffc00, 0x9eaf0000, C(general_to_fp), "dN"}, /* FMOV of an upper half */
    {0xfffffc00, 0x9eae0000, C(fp_to_general), "Dn"},
    {0x7f36fc00, 0x1e220000, C(convert_from_general), "dN"},
    {0x7f20fc00, 0x1e200000, C(convert_to_general), "Dn"},
    {0x7f360000, 0x1e020000, C(convert_from_general), "dN"}, /* fixed point */
    {0x7f200000, 0x1e000000, C(convert_to_general), "Dn"},
    {0x5f20fc00, 0x1e200800, C(fp_mul), "dnm"},
    {0x5f20fc00, 0x1e208800, C(fp_mul), "dnm"},
    {0x5fe0fc00, 0x1e601800, C(fp_div64), "dnm"},
    {0x5f20fc00, 0x1e201800, C(fp_div32), "dnm"},
    {0x5f20ec00, 0x1e202800, C(fp_add), "dnm"},
    {0x5f20cc00, 0x1e204800, C(fp_minmax), "dnm"},
    {0x5f200c00, 0x1e200400, C(fp_compare), "nmFf"},
    {0x5f200c00, 0x1e200c00, C(fp_select), "dnmF"},
    {0x5ffffc00, 0x1e61c000, C(fp_sqrt64), "dn"},
    {0x5f3ffc00, 0x1e21c000, C(fp_sqrt32), "dn"},
    {0x5f3e7c00, 0x1e204000, C(fp_move), "dn"},
    {0x5f3e7c00, 0x1e20c000, C(fp_move), "dn"},
    {0x5f207c00, 0x1e204000, C(fp_convert), "dn"},
    {0x5f203c00, 0x1e202000, C(fp_compare), "nmf"},
    {0x5f201c00, 0x1e201000, C(fp_move), "d"},
    {0x5f000000, 0x1f000000, C(fp_fma), "dnmq"},
};

/* Vectors, without bits 30 and 28: a scalar form of one is 64 bits wide. A class that is followed
 * by its `_q` becomes that for 128 bits. */
static const struct row vector_rows[] = {
    {0x9ff80400, 0x0f000400, C(v_int), "d"},       /* modified immediate */
    {0x9f80f400, 0x0f00e400, C(v_fconvert), "dn"}, /* SCVTF by fixed point */
    {0x9f80fc00, 0x0f00fc00, C(v_fconvert), "dn"},
    {0x9f80cc00, 0x0f008400, C(v_narrow), "+dn"}, /* SHRN and kin */
    {0x9f80ec00, 0x0f00a400, C(v_shift), "dn"},   /* SSHLL */
    {0x9f80dc00, 0x0f001400, C(v_shift), "nk"},   /* SSRA */
    {0x9f80fc00, 0x2f004400, C(v_shift), "nk"},   /* SRI */
    {0x9f80fc00, 0x2f005400, C(v_shift), "nk"},   /* SLI */
    {0x9f800400, 0x0f000400, C(v_shift), "dn"},
    {0x9f00b400, 0x0f001000, C(v_fma), "nmk"}, /* FMLA, FMLS by element */
    {0x9f00f400, 0x0f009000, C(v_fmul), "dnm"},
    {0x9f00f400, 0x0f00e000, C(v_dot), "nmk"},
    {0xbf00f400, 0x0f00f000, C(v_dot), "nmk"}, /* SUDOT, USDOT by element */
    {0xbf00b400, 0x2f000000, C(v_mla), "nik"},
    {0x9f00f400, 0x0f008000, C(v_mul), "dni"},
    {0x9f00b400, 0x0f002000, C(v_mlal), "nik"},
    {0x9f00f400, 0x0f00a000, C(v_mull), "dni"},
    {0x9f000400, 0x0f000000, C(v_mul), "dni"},
    {0xbf20fc00, 0x0e009400, C(v_dot), "nmk"},
    {0x9f20fc00, 0x0e009c00, C(v_dot), "nmk"},
    {0x9f20f400, 0x0e00a400, C(v_dot), "nmk"}, /* MMLA */
    {0x9f208400, 0x0e008400, C(v_mla), "nmk"},
    {0x9fe0fc00, 0x0e000c00, C(v_duplicate_general), "dN"},
    {0xbfe0fc00, 0x0e001c00, C(v_insert_general), "+dN"},
    {0xbfe0ec00, 0x0e002c00, C(v_to_general), "Dn"},
    {0xbfe08400, 0x2e000400, C(v_permute), "+dn"}, /* INS of an element */
    {0x9fe08400, 0x0e000400, C(v_permute), "dn"},
    {0xbf208c00, 0x0e000800, C(v_permute), "dnm"}, /* ZIP, UZP, TRN */
    {0xbf208400, 0x2e000000, C(v_permute), "dnm"}, /* EXT */
    {0xbf209c00, 0x0e001000, C(v_table), "+dnm"},
    {0xbf208c00, 0x0e000000, C(v_table), "dnm"},
    {0x9f3e0c00, 0x0e300800, C(v_reduce), "dn"},
    {0x9f3ffc00, 0x0e212800, C(v_narrow), "+dn"}, /* XTN */
    {0x9f3ffc00, 0x0e214800, C(v_narrow), "+dn"},
    {0x9f3efc00, 0x0e20c800, C(v_fcompare), "dn"},
    {0x9f3ffc00, 0x0e20d800, C(v_fcompare), "dn"},
    {0x9f3ffc00, 0x0e20e800, C(v_fcompare), "dn"},
    {0x9f3ffc00, 0x0e20f800, C(v_int), "dn"}, /* FABS, FNEG */
    {0x9fbffc00, 0x0ea1d800, C(v_estimate), "dn"},
    {0xbfbffc00, 0x2ea1f800, C(v_fsqrt), "dn"},
    {0x9f3f8c00, 0x0e218800, C(v_fconvert), "dn"},
    {0x9f3fec00, 0x0e216800, C(v_fconvert), "dn"},
    {0x9f3e0c00, 0x0e200800, C(v_int), "dn"},
    {0xbf20fc00, 0x0e20cc00, C(v_fma), "nmk"}, /* FMLA, FMLS */
    {0x9f20fc00, 0x0e20c400, C(v_fminmax), "dnm"},
    {0xbfa0fc00, 0x2e20d400, C(v_fpair), "dnm"}, /* FADDP */
    {0x9f20fc00, 0x0e20d400, C(v_fadd), "dnm"},
    {0x9f20fc00, 0x0e20dc00, C(v_fmul), "dnm"},
    {0x9f20f400, 0x0e20e400, C(v_fcompare), "dnm"},
    {0x9f20fc00, 0x0e20f400, C(v_fminmax), "dnm"},
    {0xbfa0fc00, 0x2e20fc00, C(v_fdiv), "dnm"},
    {0x9f20fc00, 0x0e20fc00, C(v_fma), "dnm"}, /* FRECPS, FRSQRTS */
    {0x9f20fc00, 0x0e209400, C(v_mla), "nmk"},
    {0x9f20fc00, 0x0e209c00, C(v_mul), "dnm"},
    {0x9f20fc00, 0x0e20b400, C(v_mul), "dnm"},
    {0x9f20fc00, 0x0e207c00, C(v_shift), "nmk"}, /* SABA */
    {0xbf20fc00, 0x2e201c00, C(v_int), "+dnm"},  /* BSL, BIT, BIF */
    {0x9f20e400, 0x0e204400, C(v_shift), "dnm"}, /* shifts by a register */
    {0x9f200400, 0x0e200400, C(v_int), "dnm"},
    {0x9f20dc00, 0x0e208000, C(v_mlal), "nmk"},
    {0x9f20fc00, 0x0e209000, C(v_mlal), "nmk"},
    {0x9f20fc00, 0x0e20c000, C(v_mull), "dnm"},
    {0x9f20fc00, 0x0e20d000, C(v_mull), "dnm"},
    {0x9f20fc00, 0x0e20e000, C(v_mull), "dnm"},
    {0x9f20fc00, 0x0e205000, C(v_shift), "nmk"}, /* SABAL */
    {0x9f200c00, 0x0e200000, C(v_int), "dnm"},   /* long and wide additions */
    {0x9e000000, 0x0e000000, C(v_int), "dnm"},
};

#endif
