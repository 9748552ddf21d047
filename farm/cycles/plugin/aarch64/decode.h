/* AArch64 instructions as a pipeline sees them: a class, the registers read and written. */
#ifndef POCKENGINE_CYCLES_DECODE_H
#define POCKENGINE_CYCLES_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "../core.h"

/* Classes of instructions that a core executes alike; cores.toml has a row of each. A `_q` class is
 * the same operation on 128 bits. */
/* clang-format off */
#define CLASSES(X) \
    X(other) X(nop) X(branch) X(branch_link) X(branch_register) X(alu) X(alu_shift) \
    X(logic_shift) X(bitfield_insert) X(extract) X(mul32) X(mul64) X(mul_high) X(div32) X(div64) \
    X(crc) X(load) X(load_pair) X(load_vector) X(load_vector_pair) X(load_q_pair) X(load_1) \
    X(load_2) X(load_3) X(load_4) X(load_lane) X(load_replicate) X(load_interleaved) X(store) \
    X(store_pair) X(store_vector) X(store_q) X(store_vector_pair) X(store_q_pair) X(store_1) \
    X(store_2) X(store_3) X(store_4) X(store_interleaved) X(atomic) X(fp_move) X(fp_add) \
    X(fp_mul) X(fp_fma) X(fp_div32) X(fp_div64) X(fp_sqrt32) X(fp_sqrt64) X(fp_compare) \
    X(fp_select) X(fp_minmax) X(fp_convert) X(general_to_fp) X(fp_to_general) \
    X(convert_from_general) X(convert_to_general) X(v_int) X(v_int_q) X(v_mul) X(v_mul_q) \
    X(v_mla) X(v_mla_q) X(v_mull) X(v_mlal) X(v_dot) X(v_dot_q) X(v_shift) X(v_shift_q) \
    X(v_narrow) X(v_fadd) X(v_fadd_q) X(v_fmul) X(v_fmul_q) X(v_fma) X(v_fma_q) X(v_fdiv) \
    X(v_fdiv_q) X(v_fsqrt) X(v_fsqrt_q) X(v_fminmax) X(v_fminmax_q) X(v_fcompare) \
    X(v_fcompare_q) X(v_fpair) X(v_fpair_q) X(v_fconvert) X(v_fconvert_q) X(v_estimate) \
    X(v_estimate_q) X(v_permute) X(v_permute_q) X(v_table) X(v_duplicate_general) \
    X(v_insert_general) X(v_to_general) X(v_reduce) X(v_reduce_q)
/* clang-format on */

enum class {
#define X(name) CLASS_##name,
    CLASSES(X)
#undef X
        CLASS_COUNT
};

extern const char *const class_names[CLASS_COUNT];

/* Registers: x0 to x30, the stack pointer, v0 to v31, the flags; one that is always ready and one
 * that nothing reads, in the place of absent operands. */
enum {
    STACK_POINTER = 31,
    FIRST_VECTOR = 32,
    FLAGS = 64,
    ALWAYS_READY = 65,
    NEVER_READ = 66,
    REGISTERS = 67,
    MAX_SOURCES = 8,
    MAX_RESULTS = 5
};

struct instruction {
    uint8_t class;
    uint8_t branch;
    uint8_t sources, results;
    bool loads, stores;
    uint8_t accumulator; /* a source that a multiply-add may get late, or ALWAYS_READY */
    uint8_t base;        /* the address register that is written back, or NEVER_READ */
    uint8_t source[MAX_SOURCES];
    uint8_t result[MAX_RESULTS];
};

struct instruction decode(uint32_t word);

#endif
