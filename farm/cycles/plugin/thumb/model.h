/* The numbers of a microcontroller's core, and the parts of its model: pipeline and memory. */
#ifndef POCKENGINE_CYCLES_THUMB_MODEL_H
#define POCKENGINE_CYCLES_THUMB_MODEL_H

#include "../core.h"
#include "decode.h"

enum { LINE_BYTES = 32, MAX_PIPES = 16 };

/* How instructions are grouped: with any other, only as the first of a cycle, or alone. */
enum grouping { ANY_SLOT, FIRST_SLOT, ALONE };

/* How a class executes: in one of `pipes`, a mask, and one of `also`, if any. An accumulator is
 * read `late` cycles after the other operands. `busy` is the cycles until the next one starts. */
struct cost {
    uint32_t latency, late, busy;
    uint32_t pipes, also;
    uint32_t grouping;
};

struct numbers {
    uint32_t width, mispredict, taken;
    uint32_t pipes;
    uint32_t data_bytes, data_ways, instruction_bytes, instruction_ways;
    uint32_t tcm_begin, tcm_bytes;    /* memory that is as fast as the caches */
    uint32_t ram_begin;               /* addresses below are flash */
    uint32_t flash_first, flash_line; /* cycles from a miss to the first word, and to the line */
    uint32_t ram_first, ram_line;
    uint32_t stores; /* lines that stores may wait for at once */
    struct cost cost[CLASS_COUNT];
};

extern struct numbers numbers;

/* Return when a load that starts at `now` has its value without the class's own latency; `part`
 * becomes what it waited for. */
uint64_t load_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when a store that starts at `now` leaves the pipeline. */
uint64_t store_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part);
/* Return when the instructions of a line are there. */
uint64_t fetch_at(uint64_t now, uint64_t address);

void start_memory(void);

#endif
