/* A core's numbers, and the parts of the model: pipeline, memory, branch predictor. */
#ifndef POCKENGINE_CYCLES_MODEL_H
#define POCKENGINE_CYCLES_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode.h"

enum { LINE_BYTES = 64, MAX_LEVELS = 3, MAX_PIPES = 16, MAX_ENTRIES = 16 };

/* Causes of cycles: the core itself, waiting for the second level and beyond, for DRAM, for
 * wrong predictions, for instructions. */
enum part { CORE, CACHE, DRAM, BRANCH, FETCH, PARTS };

/* How a class executes. `pipes` is a mask; `slots` are taken in them, each for `busy` cycles, and
 * as many in `also`, if any. `forward` is the latency from an accumulator to the next result. */
struct cost {
    uint32_t latency, forward, slots, busy;
    uint32_t pipes, also;
};

struct level {
    uint32_t bytes, ways, latency; /* latency: cycles from a load to its value */
    uint32_t transfer;             /* cycles that a line's way to the level above takes */
};

struct numbers {
    uint32_t width, window, retire, mispredict, taken;
    uint32_t levels, misses, stores, ahead, far_ahead;
    uint32_t dram_latency, dram_line, page_walk, walkers, pages, page_latency;
    uint32_t instruction_bytes, instruction_ways;
    uint32_t pipes, entries[MAX_PIPES]; /* entries: of the issue queue before each pipe */
    struct level level[MAX_LEVELS];
    struct cost cost[CLASS_COUNT];
};

extern struct numbers numbers;

/* Read a core's numbers from a file of lines `name value...`; false with a message otherwise. */
bool read_numbers(const char *path);

void start_memory(void);
void start_pipeline(void);
/* Return when a load that starts at `now` has its value; `part` becomes what it waited for. */
uint64_t load_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when a store that leaves the buffer at `now` has its line. */
uint64_t store_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when the instructions of a line are there. */
uint64_t fetch_at(uint64_t now, uint64_t address);

/* Return whether a branch that went to `target` was predicted; all of it is learned. */
bool predicted(enum branch kind, uint64_t address, uint64_t next, uint64_t target);

/* An address that an instruction of a segment touched, in the order of execution. */
struct touched {
    uint32_t index, bytes;
    uint64_t address;
};

/* Instructions that execute one after another, the last of which may branch. */
struct segment {
    uint64_t address, next; /* next: where execution goes on if it does not branch */
    size_t count;
    struct instruction instruction[];
};

/* When a thread's registers have their values. */
struct registers {
    uint64_t ready[REGISTERS];
    uint8_t producer[REGISTERS];
};

/* Execute a segment after which `target` is executed, 0 if that is unknown. */
void execute(struct registers *registers, const struct segment *segment,
             const struct touched *touched, size_t count, uint64_t target);

/* Cycles spent so far, by part. */
void spent(uint64_t parts[PARTS]);

#endif
