/* Instructions of Armv7E-M (Thumb) as a pipeline sees them: a class, registers read and written. */
#ifndef POCKENGINE_CYCLES_THUMB_DECODE_H
#define POCKENGINE_CYCLES_THUMB_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Classes of instructions that a core executes alike; cores.toml has a row of each. */
/* clang-format off */
#define CLASSES(X) \
    X(other) X(nop) X(system) X(branch) X(table_branch) X(alu) X(alu_shift) X(shift) X(bitfield) \
    X(bitfield_insert) X(extend) X(extend_add) X(simd) X(simd_saturating) X(saturate) X(reverse) \
    X(pack) X(clz) X(mul) X(mac) X(div) X(load) X(load_small) X(load_double) X(load_multiple) \
    X(store) X(store_double) X(store_multiple) X(fp_load) X(fp_load_double) X(fp_load_multiple) \
    X(fp_store) X(fp_store_double) X(fp_store_multiple) X(fp_alu) X(fp_mul) X(fp_mla) X(fp_fma) \
    X(fp_div) X(fp_sqrt) X(fp_convert) X(fp_move) X(fp_from_general) X(fp_to_general) \
    X(fp_move_pair) X(fp_compare) X(fp_flags) X(fp_select)
/* clang-format on */

enum class {
#define X(name) CLASS_##name,
    CLASSES(X)
#undef X
        CLASS_COUNT
};

extern const char *const class_names[CLASS_COUNT];

/* Registers: r0 to r15, s0 to s31, the flags of both; MAX_OPERANDS holds a list of all. */
enum {
    STACK_POINTER = 13,
    LINK = 14,
    PROGRAM_COUNTER = 15,
    FIRST_SINGLE = 16,
    FLAGS = 48,
    FP_FLAGS = 49,
    REGISTERS = 50,
    MAX_OPERANDS = 34
};

/* When an operand is read: an address a cycle before the others, the data of a store after them,
 * an accumulator as late as its class says. */
enum stage { EARLY, USUAL, LATE, ACCUMULATED };

struct operand {
    uint8_t reg, stage;
};

struct instruction {
    uint8_t class, branch, bytes;
    uint8_t sources, results;
    uint8_t moved; /* words that a list moves, else 0 */
    uint8_t base;  /* the address register that is written back, or REGISTERS */
    bool loads, stores;
    struct operand source[MAX_OPERANDS];
    uint8_t result[MAX_OPERANDS];
};

/* Decode an instruction of two or four bytes, the first halfword in the low bits of `code`. */
struct instruction decode(uint32_t code, size_t bytes);

#endif
