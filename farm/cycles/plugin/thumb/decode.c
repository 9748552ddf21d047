/* Decoding by the encodings of the Armv7-M Architecture Reference Manual (DDI 0403, chapter A5). */
#include "decode.h"

#include "rows.h"

enum { FIRST_LONG = 0xe800 }; /* from this halfword on an instruction has another one */

const char *const class_names[CLASS_COUNT] = {
#define X(name) #name,
    CLASSES(X)
#undef X
};

static void read_from(struct instruction *made, uint32_t reg, enum stage stage) {
    if (made->sources < MAX_OPERANDS && reg != PROGRAM_COUNTER) {
        made->source[made->sources++] = (struct operand){(uint8_t)reg, (uint8_t)stage};
    }
}

static void write_to(struct instruction *made, uint32_t reg) {
    if (made->results < MAX_OPERANDS && reg != PROGRAM_COUNTER) {
        made->result[made->results++] = (uint8_t)reg;
    }
}

static uint32_t bits(uint32_t word, uint32_t low, uint32_t count) {
    return word >> low & ((1U << count) - 1);
}

/* The number of a single-precision register: four bits at `low`, and the lowest at `last`. */
static uint32_t single(uint32_t word, uint32_t low, uint32_t last) {
    return FIRST_SINGLE + 2 * bits(word, low, 4) + bits(word, last, 1);
}

static void list(struct instruction *made, uint32_t first, uint32_t mask, bool written) {
    for (uint32_t i = 0; i < 32 && first + i < REGISTERS; i++) {
        if (mask >> i & 1) {
            made->moved++;
            written ? write_to(made, first + i) : read_from(made, first + i, LATE);
        }
    }
}

/* The register of a letter that both lengths have; REGISTERS if there is none. */
static uint32_t common(char letter) {
    switch (letter) {
    case 'F':
    case 'f':
        return FLAGS;
    case 'G':
    case 'g':
        return FP_FLAGS;
    case 'R':
        return LINK;
    case 'S':
    case 's':
        return STACK_POINTER;
    default:
        return REGISTERS;
    }
}

static uint32_t short_register(uint32_t code, char letter) {
    switch (letter) {
    case 'D':
    case 'd':
        return bits(code, 0, 3);
    case 'n':
        return bits(code, 3, 3);
    case 'm':
        return bits(code, 6, 3);
    case 'E':
    case 'e':
        return bits(code, 8, 3);
    case 'H':
    case 'h':
        return bits(code, 7, 1) << 3 | bits(code, 0, 3);
    case 'i':
        return bits(code, 3, 4);
    default:
        return common(letter);
    }
}

static uint32_t long_register(uint32_t code, char letter) {
    switch (letter) {
    case 'D':
    case 'd':
    case 'b':
        return bits(code, 8, 4);
    case 'n':
    case 'P':
        return bits(code, 16, 4);
    case 'm':
        return bits(code, 0, 4);
    case 'T':
    case 't':
    case 'a':
        return bits(code, 12, 4);
    case 'Q':
    case 'q':
    case 'k':
        return single(code, 12, 22);
    case 'V':
    case 'v':
        return single(code, 16, 7);
    case 'U':
    case 'u':
        return single(code, 0, 5);
    default:
        return common(letter);
    }
}

/* The list of general registers; a short PUSH has the link in a bit of its own. */
static uint32_t general_list(uint32_t code, bool is_long) {
    bool pushes_link = !is_long && (code & 0xff00) == 0xb500;
    return is_long ? bits(code, 0, 16) : bits(code, 0, 8) | (uint32_t)pushes_link << LINK;
}

/* Add what a letter means that is no single register; return false if it is one. */
static bool add_list(struct instruction *made, uint32_t code, char letter, bool is_long) {
    uint32_t pair = FIRST_SINGLE + 2 * (bits(code, 22, 1) << 4 | bits(code, 12, 4));
    uint32_t words = bits(code, 0, 8) < 32 ? (1U << bits(code, 0, 5)) - 1 : UINT32_MAX;
    switch (letter) {
    case 'L':
    case 'l':
        list(made, 0, general_list(code, is_long), letter == 'L');
        return true;
    case 'X':
    case 'x':
        list(made, pair, 3, letter == 'X');
        made->moved = 0;
        return true;
    case 'Z':
    case 'z':
        list(made, bits(code, 8, 1) ? pair : single(code, 12, 22), words, letter == 'Z');
        return true;
    case 'W':
        if (!is_long || bits(code, 21, 1)) {
            made->base = (uint8_t)(is_long ? bits(code, 16, 4) : bits(code, 8, 3));
        }
        return true;
    case 'w':
        if (bits(code, 8, 1)) {
            made->base = (uint8_t)bits(code, 16, 4);
        }
        return true;
    case 'C':
        if (bits(code, 20, 1)) {
            write_to(made, FLAGS);
        }
        return true;
    default:
        return false;
    }
}

static void add_operands(struct instruction *made, uint32_t code, const char *operands,
                         bool is_long) {
    enum stage stage = USUAL;
    for (const char *letter = operands; *letter != '\0'; letter++) {
        if (*letter == '@' || *letter == '>') {
            stage = *letter == '@' ? EARLY : LATE;
            continue;
        }
        if (add_list(made, code, *letter, is_long)) {
            stage = USUAL;
            continue;
        }
        uint32_t reg = is_long ? long_register(code, *letter) : short_register(code, *letter);
        bool accumulated = is_long && (*letter == 'a' || *letter == 'b' || *letter == 'k');
        if (*letter >= 'A' && *letter <= 'Z') {
            write_to(made, reg);
        } else {
            read_from(made, reg, accumulated ? ACCUMULATED : stage);
        }
        stage = USUAL;
    }
}

static bool starts_with(const char *text, const char *start) {
    while (*start != '\0' && *text == *start) {
        text++, start++;
    }
    return *start == '\0';
}

static bool moves(uint8_t class, const char *what) {
    const char *name = class_names[class];
    return starts_with(starts_with(name, "fp_") ? name + 3 : name, what);
}

struct instruction decode(uint32_t code, size_t bytes) {
    struct instruction made = {.class = CLASS_other, .bytes = (uint8_t)bytes, .base = REGISTERS};
    bool is_long = (code & 0xffff) >= FIRST_LONG;
    code = is_long ? code << 16 | code >> 16 : code & 0xffff;
    const struct row *rows = is_long ? long_rows : short_rows;
    size_t count =
        is_long ? sizeof long_rows / sizeof *long_rows : sizeof short_rows / sizeof *short_rows;
    for (size_t i = 0; i < count; i++) {
        if ((code & rows[i].mask) == rows[i].value) {
            made.class = rows[i].class;
            made.branch = rows[i].branch;
            add_operands(&made, code, rows[i].operands, is_long);
            break;
        }
    }
    made.loads = moves(made.class, "load") || made.class == CLASS_table_branch;
    made.stores = moves(made.class, "store");
    return made;
}
