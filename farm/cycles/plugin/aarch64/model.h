/* A core's numbers, and the parts of the model: pipeline, memory, branch predictor. */
#ifndef POCKENGINE_CYCLES_MODEL_H
#define POCKENGINE_CYCLES_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../core.h"
#include "decode.h"

enum { LINE_BYTES = 64, MAX_LEVELS = 3, MAX_PIPES = 16, MAX_ENTRIES = 16 };

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

void start_memory(void);
/* Return when a load that starts at `now` has its value; `part` becomes what it waited for. */
uint64_t load_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when a store that leaves the buffer at `now` has its line. */
uint64_t store_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when the instructions of a line are there. */
uint64_t fetch_at(uint64_t now, uint64_t address);

#endif
