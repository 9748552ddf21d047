/* What every model of a core gives to observe.c, which feeds it. */
#ifndef POCKENGINE_CYCLES_CORE_H
#define POCKENGINE_CYCLES_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Causes of cycles: the core itself, waiting for the second level and beyond, for memory, for
 * wrong predictions, for instructions. */
enum part { CORE, CACHE, DRAM, BRANCH, FETCH, PARTS };

enum branch { NO_BRANCH, JUMP, CONDITIONAL, CALL, INDIRECT, INDIRECT_CALL, RETURN };

/* An address that an instruction of a segment touched, in the order of execution. */
struct touched {
    uint32_t index, bytes;
    uint64_t address;
};

/* Instructions that execute one after another, the last of which may branch. */
struct segment;
/* When a thread's registers have their values. */
struct registers;

/* What a decoded instruction does, for the one who feeds the model. */
struct decoded {
    bool known, accesses; /* whether it has a class, and whether it loads or stores */
};

/* An empty segment for `count` instructions that starts at `address`, and new registers. */
struct segment *new_segment(uint64_t address, size_t count);
struct registers *new_registers(void);
/* Append an instruction of `bytes` bytes, of which `code` are the first four, from the lowest. */
struct decoded append(struct segment *segment, uint32_t code, size_t bytes);
uint64_t address_of(const struct segment *segment);

/* Read a core's numbers from a file of lines; false with a message otherwise. Then start. */
bool read_numbers(const char *path);
void start_model(void);

/* Execute a segment after which `target` is executed, 0 if that is unknown. */
void execute(struct registers *registers, const struct segment *segment,
             const struct touched *touched, size_t count, uint64_t target);

/* Cycles spent so far, by part. */
void spent(uint64_t parts[PARTS]);

/* Return whether a branch that went to `target` was predicted; all of it is learned. */
bool predicted(enum branch kind, uint64_t address, uint64_t next, uint64_t target);

/* The fields of a core's numbers by name, the last without one, and its own kinds of lines. */
struct field {
    const char *name;
    uint32_t *value;
};
extern const struct field fields[];
/* Read a line that starts with the name of a kind; false if it is none or has wrong values. */
bool read_row(const char *line);

#endif
