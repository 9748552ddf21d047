/* An in-order pipeline that starts up to two instructions a cycle.
 *
 * An instruction starts with the one before it or later: once its operands are there at the stage
 * that reads them, its pipes are free, and, where a cycle has begun, it may be grouped with what
 * started in it. A load that misses holds up all that follow. Time passes where an instruction
 * starts in a later cycle than the one before, and is attributed to the cause of that.
 */
#include <stdlib.h>

#include "model.h"

struct segment {
    uint64_t address, next; /* next: where execution goes on if it does not branch */
    size_t count;
    struct instruction instruction[];
};

struct registers {
    uint64_t ready[REGISTERS + 1];
    uint8_t producer[REGISTERS + 1];
};

static uint64_t cycle, fetched;
static uint32_t started; /* instructions that started in this cycle */
static bool closed;      /* whether no other may */
static uint64_t pipe_free[MAX_PIPES];
static uint64_t parts[PARTS];
static enum part waits_for; /* why the next instruction waits for `fetched` */

void start_model(void) { start_memory(); }

struct segment *new_segment(uint64_t address, size_t count) {
    struct segment *made = calloc(1, sizeof *made + count * sizeof(struct instruction));
    made->address = made->next = address;
    return made;
}

struct registers *new_registers(void) { return calloc(1, sizeof(struct registers)); }

struct decoded append(struct segment *segment, uint32_t code, size_t bytes) {
    struct instruction *one = &segment->instruction[segment->count++];
    *one = decode(code, bytes);
    segment->next += bytes;
    return (struct decoded){one->class != CLASS_other, one->loads || one->stores};
}

uint64_t address_of(const struct segment *segment) { return segment->address; }

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Return the pipe of a mask that is free first. */
static uint32_t first_free(uint32_t pipes) {
    uint32_t chosen = (uint32_t)__builtin_ctz(pipes);
    for (pipes &= pipes - 1; pipes != 0; pipes &= pipes - 1) {
        uint32_t pipe = (uint32_t)__builtin_ctz(pipes);
        chosen = pipe_free[pipe] < pipe_free[chosen] ? pipe : chosen;
    }
    return chosen;
}

static uint64_t when_free(uint32_t pipes) { return pipes == 0 ? 0 : pipe_free[first_free(pipes)]; }

/* Return when an operand permits its reader to start. */
static uint64_t operand_ready(const struct registers *registers, const struct instruction *one,
                              struct operand operand) {
    uint64_t ready = registers->ready[operand.reg];
    uint32_t late = operand.stage == LATE ? 1 : 0;
    if (operand.stage == ACCUMULATED && registers->producer[operand.reg] == one->class) {
        late = numbers.cost[one->class].late;
    }
    return operand.stage == EARLY ? ready + 1 : ready - (ready >= late ? late : ready);
}

static uint64_t operands_ready(const struct registers *registers, const struct instruction *one) {
    uint64_t ready = 0;
    for (unsigned i = 0; i < one->sources; i++) {
        ready = later(ready, operand_ready(registers, one, one->source[i]));
    }
    return ready;
}

/* Go to a later cycle. */
static void advance(uint64_t to, enum part part) {
    parts[part] += to - cycle;
    cycle = to;
    started = 0;
    closed = false;
}

static void occupy(uint32_t pipes, uint64_t until) {
    if (pipes != 0) {
        pipe_free[first_free(pipes)] = until;
    }
}

/* Begin the cycle in which an instruction starts. */
static void group(const struct instruction *one, uint64_t ready) {
    const struct cost *cost = &numbers.cost[one->class];
    if (fetched > cycle) {
        advance(fetched, waits_for);
    }
    uint64_t at = later(ready, later(when_free(cost->pipes), when_free(cost->also)));
    bool joins = started == 0 || (cost->grouping == ANY_SLOT && !closed && started < numbers.width);
    if (at > cycle) {
        advance(at, CORE);
    } else if (!joins) {
        advance(cycle + 1, CORE);
        at = later(when_free(cost->pipes), when_free(cost->also));
        if (at > cycle) {
            advance(at, CORE);
        }
    }
    started++;
    closed = closed || cost->grouping == ALONE;
}

/* Access the memory of an instruction; a load that waits holds up the pipeline. */
static void access(const struct instruction *one, const struct touched *touched, size_t count) {
    for (size_t i = 0; i < count; i++) {
        enum part part = CORE;
        uint64_t at = one->loads ? load_at(cycle, touched[i].address, touched[i].bytes, &part)
                                 : store_at(cycle, touched[i].address, touched[i].bytes, &part);
        if (at > cycle) {
            advance(at, part);
        }
    }
}

static void set_result(struct registers *registers, uint32_t reg, uint64_t ready, uint8_t class) {
    registers->ready[reg] = ready;
    registers->producer[reg] = class;
}

static void run(struct registers *registers, const struct instruction *one,
                const struct touched *touched, size_t count) {
    const struct cost *cost = &numbers.cost[one->class];
    /* A list moves two words a cycle. */
    uint32_t busy = one->moved > 2 ? (one->moved + 1U) / 2 : cost->busy;
    group(one, operands_ready(registers, one));
    access(one, touched, count);
    occupy(cost->pipes, cycle + busy);
    occupy(cost->also, cycle + busy);
    if (one->moved > 2) {
        advance(cycle + busy - 1, CORE);
        closed = true;
    }
    for (unsigned i = 0; i < one->results; i++) {
        set_result(registers, one->result[i], cycle + cost->latency, one->class);
    }
    set_result(registers, one->base, cycle, CLASS_alu); /* from the stage that reads addresses */
}

static void fetch(const struct segment *segment) {
    for (uint64_t line = segment->address / LINE_BYTES; line <= (segment->next - 1) / LINE_BYTES;
         line++) {
        uint64_t there = fetch_at(later(cycle, fetched), line * LINE_BYTES);
        if (there > later(cycle, fetched)) {
            fetched = there;
            waits_for = FETCH;
        }
    }
}

/* Go on at `target`: nothing starts in the cycle of a taken branch any more. */
static void go_on(const struct segment *segment, uint64_t target) {
    const struct instruction *last = &segment->instruction[segment->count - 1];
    if (target == 0 || (last->branch == NO_BRANCH && target == segment->next)) {
        return;
    }
    uint64_t address = segment->next - last->bytes;
    if (!predicted((enum branch)last->branch, address, segment->next, target)) {
        fetched = later(fetched, cycle + numbers.mispredict);
        waits_for = BRANCH;
    } else if (target != segment->next) {
        closed = true;
        if (numbers.taken > 0) {
            fetched = later(fetched, cycle + 1 + numbers.taken);
            waits_for = BRANCH;
        }
    }
}

void execute(struct registers *registers, const struct segment *segment,
             const struct touched *touched, size_t count, uint64_t target) {
    size_t next = 0;
    fetch(segment);
    for (size_t i = 0; i < segment->count; i++) {
        size_t first = next;
        while (next < count && touched[next].index == i) {
            next++;
        }
        run(registers, &segment->instruction[i], &touched[first], next - first);
    }
    go_on(segment, target);
}

void spent(uint64_t copy[PARTS]) {
    for (int i = 0; i < PARTS; i++) {
        copy[i] = parts[i];
    }
}
