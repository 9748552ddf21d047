/* Decoding by the encoding index of the Arm Architecture Reference Manual (DDI 0487, C4.1). */
#include "decode.h"

#include <stddef.h>

#include "rows.h"

const char *const class_names[CLASS_COUNT] = {
#define X(name) #name,
    CLASSES(X)
#undef X
};

static bool has_q_form(uint8_t class) {
    const char *wide = class + 1 < CLASS_COUNT ? class_names[class + 1] : "";
    size_t length = 0;
    while (wide[length] != '\0') {
        length++;
    }
    return class >= CLASS_v_int && length > 2 && wide[length - 1] == 'q' && wide[length - 2] == '_';
}

static void read_from(struct instruction *made, uint8_t reg) {
    if (made->sources < MAX_SOURCES) {
        made->source[made->sources++] = reg;
    }
}

static void write_to(struct instruction *made, uint8_t reg) {
    if (made->results < MAX_RESULTS) {
        made->result[made->results++] = reg;
    }
}

static void read_general(struct instruction *made, uint32_t field) {
    if ((field & 31) != 31) { /* the zero register is always ready */
        read_from(made, field & 31);
    }
}

static void write_general(struct instruction *made, uint32_t field) {
    if ((field & 31) != 31) {
        write_to(made, field & 31);
    }
}

static uint8_t vector(uint32_t field) { return (uint8_t)(FIRST_VECTOR + (field & 31)); }

/* Add the operand of a letter, if it is read; return false otherwise. */
static bool operand_read(struct instruction *made, uint32_t word, char letter) {
    switch (letter) {
    case 'T':
        read_general(made, word);
        return true;
    case 'N':
        read_general(made, word >> 5);
        return true;
    case 'M':
        read_general(made, word >> 16);
        return true;
    case 'S':
        read_from(made, word >> 5 & 31);
        return true;
    case 't':
        read_from(made, vector(word));
        return true;
    case 'n':
        read_from(made, vector(word >> 5));
        return true;
    case 'm':
        read_from(made, vector(word >> 16));
        return true;
    case 'i':
        read_from(made, vector(word >> 16 & 15));
        return true;
    case 'F':
        read_from(made, FLAGS);
        return true;
    default:
        return false;
    }
}

static void operand(struct instruction *made, uint32_t word, char letter) {
    if (operand_read(made, word, letter)) {
        return;
    }
    uint8_t third = word >> 10 & 31;
    if (letter == 'D') {
        write_general(made, word);
    } else if (letter == 'P') {
        write_to(made, word & 31);
    } else if (letter == 'd' || letter == 'k') {
        made->accumulator = letter == 'k' ? vector(word) : made->accumulator;
        write_to(made, vector(word));
    } else if (letter == 'q') {
        made->accumulator = vector(third);
    } else if (letter == 'K' && third != 31) {
        made->accumulator = third;
    } else if (letter == 'f') {
        write_to(made, FLAGS);
    } else if (letter == 'l') {
        write_to(made, 30);
    }
}

static bool by_rows(struct instruction *made, uint32_t word, const struct row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if ((word & rows[i].mask) != rows[i].value) {
            continue;
        }
        made->class = rows[i].class;
        for (const char *letter = rows[i].operands; *letter != '\0'; letter++) {
            if (*letter == '+') {
                operand(made, word, letter[1] == 'D' ? 'T' : 't');
            } else {
                operand(made, word, *letter);
            }
        }
        return true;
    }
    return false;
}

static void by_branch(struct instruction *made, uint32_t word) {
    made->class = CLASS_branch;
    if ((word & 0x7c000000) == 0x14000000) {
        made->branch = word >> 31 ? CALL : JUMP;
    } else if ((word & 0xff000010) == 0x54000000) {
        made->branch = CONDITIONAL;
        operand(made, word, 'F');
    } else if ((word & 0x7c000000) == 0x34000000) { /* CBZ, TBZ and kin */
        made->branch = CONDITIONAL;
        operand(made, word, 'T');
    } else { /* BR, BLR, RET */
        uint32_t kind = word >> 21 & 15;
        made->class = CLASS_branch_register;
        made->branch = kind == 1 ? INDIRECT_CALL : kind == 2 ? RETURN : INDIRECT;
        operand(made, word, 'N');
    }
    if (made->branch == CALL || made->branch == INDIRECT_CALL) {
        made->class = CLASS_branch_link;
        operand(made, word, 'l');
    }
}

/* Read or write `count` registers from the field's on, general or vectors. */
static void transfer(struct instruction *made, uint32_t first, unsigned count, bool vectors) {
    for (unsigned i = 0; i < count; i++) {
        uint8_t reg = vectors ? vector(first + i) : (first + i) & 31;
        if (!vectors && reg == 31) {
            continue;
        }
        if (made->loads) {
            write_to(made, reg);
        } else {
            read_from(made, reg);
        }
    }
}

static void base_register(struct instruction *made, uint32_t word, bool written) {
    operand(made, word, 'S');
    if (written) {
        made->base = word >> 5 & 31;
    }
}

static void by_pair(struct instruction *made, uint32_t word) {
    bool vectors = word >> 26 & 1, quads = vectors && word >> 30 == 2;
    made->loads = word >> 22 & 1;
    made->stores = !made->loads;
    base_register(made, word, word >> 23 & 1);
    transfer(made, word & 31, 1, vectors);
    transfer(made, word >> 10 & 31, 1, vectors);
    if (made->loads) {
        made->class = quads     ? CLASS_load_q_pair
                      : vectors ? CLASS_load_vector_pair
                                : CLASS_load_pair;
    } else {
        made->class = quads     ? CLASS_store_q_pair
                      : vectors ? CLASS_store_vector_pair
                                : CLASS_store_pair;
    }
}

static void by_structure(struct instruction *made, uint32_t word) {
    static const uint8_t counts[16] = {4, 0, 4, 0, 3, 0, 3, 1, 2, 0, 2};
    bool single = word >> 24 & 1;
    uint32_t code = word >> 12 & 15;
    unsigned count = single ? ((word >> 12 & 2) | (word >> 21 & 1)) + 1 : counts[code];
    bool interleaved = single ? count > 1 : code == 0 || code == 4 || code == 8;
    made->loads = word >> 22 & 1;
    made->stores = !made->loads;
    base_register(made, word, word >> 23 & 1);
    if (word >> 23 & 1) {
        operand(made, word, 'M');
    }
    transfer(made, word & 31, count, true);
    if (interleaved) {
        made->class = made->loads ? CLASS_load_interleaved : CLASS_store_interleaved;
    } else if (single) {
        bool replicate = (word >> 13 & 7) == 6;
        made->class = !made->loads ? CLASS_store_1
                      : replicate  ? CLASS_load_replicate
                                   : CLASS_load_lane;
        if (made->class == CLASS_load_lane) {
            operand(made, word, 't');
        }
    } else {
        made->class = (made->loads ? CLASS_load_1 : CLASS_store_1) + count - 1;
    }
}

static void by_exclusive(struct instruction *made, uint32_t word) {
    bool atomic = (word & 0x3b200c00) == 0x38200000;
    made->loads = atomic || (word >> 22 & 1);
    made->stores = !made->loads;
    base_register(made, word, false);
    made->class = atomic ? CLASS_atomic : made->loads ? CLASS_load : CLASS_store;
    if (made->loads) {
        write_general(made, word);
    } else {
        read_general(made, word);
        if ((word & 0x00800000) == 0) {
            write_general(made, word >> 16); /* the status of STXR */
        }
    }
    if (atomic) {
        read_general(made, word >> 16);
    }
}

static void by_register(struct instruction *made, uint32_t word) {
    bool vectors = word >> 26 & 1, scaled = word >> 24 & 1;
    uint32_t size = word >> 30, opc = word >> 22 & 3;
    bool quad = vectors && size == 0 && opc >= 2;
    if (!vectors && size == 3 && opc == 2) { /* PRFM: QEMU shows no address of it */
        made->class = CLASS_nop;
        return;
    }
    made->loads = vectors ? opc & 1 : opc != 0;
    made->stores = !made->loads;
    base_register(made, word, !scaled && !(word >> 21 & 1) && (word >> 10 & 1));
    if (!scaled && (word >> 21 & 1)) {
        operand(made, word, 'M');
    }
    transfer(made, word & 31, 1, vectors);
    if (made->loads) {
        made->class = vectors ? CLASS_load_vector : CLASS_load;
    } else {
        made->class = quad ? CLASS_store_q : vectors ? CLASS_store_vector : CLASS_store;
    }
}

static void by_memory(struct instruction *made, uint32_t word) {
    if ((word & 0x3b000000) == 0x18000000) { /* literals */
        made->loads = true;
        made->class = word >> 26 & 1 ? CLASS_load_vector : CLASS_load;
        transfer(made, word & 31, 1, word >> 26 & 1);
    } else if ((word & 0x3a000000) == 0x28000000) {
        by_pair(made, word);
    } else if ((word & 0xbe000000) == 0x0c000000) {
        by_structure(made, word);
    } else if ((word & 0x3f000000) == 0x08000000 || (word & 0x3b200c00) == 0x38200000) {
        by_exclusive(made, word);
    } else if ((word & 0x3a000000) == 0x38000000) {
        by_register(made, word);
    }
}

#define ROWS(rows) rows, sizeof(rows) / sizeof((rows)[0])

struct instruction decode(uint32_t word) {
    struct instruction made = {.class = CLASS_other,
                               .accumulator = ALWAYS_READY,
                               .base = NEVER_READ,
                               .source = {ALWAYS_READY, ALWAYS_READY, ALWAYS_READY},
                               .result = {NEVER_READ}};
    if ((word & 0x0a000000) == 0x08000000) {
        by_memory(&made, word);
    } else if ((word & 0x7c000000) == 0x14000000 || (word & 0x7c000000) == 0x34000000 ||
               (word & 0xff000000) == 0x54000000 || (word & 0xfe000000) == 0xd6000000) {
        by_branch(&made, word);
    } else if ((word & 0x0e000000) == 0x0e000000) {
        if ((word & 0x5f000000) == 0x1e000000 || (word & 0x5f000000) == 0x1f000000) {
            by_rows(&made, word, ROWS(fp_rows));
        } else {
            bool scalar = word >> 28 & 1;
            uint32_t form = scalar ? word & ~0x50000000U : word & ~0x40000000U;
            by_rows(&made, form, ROWS(vector_rows));
            if (!scalar && word >> 30 & 1 && has_q_form(made.class)) {
                made.class++;
            }
        }
    } else {
        by_rows(&made, word, ROWS(scalar_rows));
    }
    return made;
}
