/* An out-of-order pipeline, instruction by instruction.
 *
 * Each is dispatched in order, as many a cycle as the core is wide, while its window and the issue
 * queues of its pipes have room; starts as soon as its operands are ready and a pipe is free, also
 * before older ones; retires in order. Time passes where retirement waits, and is attributed to the
 * cause of the wait.
 */
#include <stdlib.h>

#include "calendar.h"
#include "model.h"

enum { WINDOW = 512, BUFFER = 128, FORWARDED = 4096, FIRST_STAGES = 1, MAX_CLAIMED = 16 };

/* An issue queue: the cycles from which its entries are free, in order, in a ring. */
struct queue {
    uint64_t free[MAX_ENTRIES];
    uint32_t first, count;
};

static struct queue queues[MAX_PIPES];
static uint64_t earliest[MAX_PIPES]; /* when a queue's first entry is free; UINT64_MAX: none is */
static uint32_t claimed[MAX_CLAIMED], claim_count; /* queues that the next instruction waits in */
static struct calendar pipes_taken[MAX_PIPES];
static uint64_t dispatching, retiring, fetched;
static uint32_t dispatched, retired;
static uint64_t window[WINDOW], buffer[BUFFER];
static uint32_t executed, stored; /* places in these of the next instruction, and store */
static enum part stall[BUFFER];   /* cause of a buffered store's wait */
static uint64_t parts[PARTS];
static enum part waits_for; /* why dispatch waits for `fetched` */
static struct {
    uint64_t address, ready;
} forwarded[FORWARDED];

struct segment {
    uint64_t address, next; /* next: where execution goes on if it does not branch */
    size_t count;
    struct instruction instruction[];
};

struct registers {
    uint64_t ready[REGISTERS];
    uint8_t producer[REGISTERS];
};

void start_model(void) {
    start_memory();
    for (uint32_t pipe = 0; pipe < numbers.pipes; pipe++) {
        queues[pipe].count = numbers.entries[pipe];
    }
}

struct segment *new_segment(uint64_t address, size_t count) {
    struct segment *made = calloc(1, sizeof *made + count * sizeof(struct instruction));
    made->address = made->next = address;
    return made;
}

struct registers *new_registers(void) { return calloc(1, sizeof(struct registers)); }

struct decoded append(struct segment *segment, uint32_t code, size_t bytes) {
    struct instruction *one = &segment->instruction[segment->count++];
    *one = decode(code);
    segment->next += bytes;
    return (struct decoded){one->class != CLASS_other, one->loads || one->stores};
}

uint64_t address_of(const struct segment *segment) { return segment->address; }

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint32_t next_place(uint32_t place, uint32_t places) {
    return place + 1 < places ? place + 1 : 0;
}

static uint32_t first_pipe(uint32_t pipes) { return (uint32_t)__builtin_ctz(pipes); }

/* Whether a class is one operation in one pipe. */
static bool is_simple(const struct cost *cost) { return cost->slots == 1 && cost->also == 0; }

/* Take the first slot of some pipes, for `cycles`; return its cycle. */
static inline uint64_t take(uint32_t pipes, uint64_t ready, uint32_t cycles) {
    uint32_t chosen = first_pipe(pipes);
    uint64_t at = first_free(&pipes_taken[chosen], ready);
    for (pipes &= pipes - 1; pipes != 0 && at > ready; pipes &= pipes - 1) {
        uint64_t found = first_free(&pipes_taken[first_pipe(pipes)], ready);
        if (found < at) {
            at = found;
            chosen = first_pipe(pipes);
        }
    }
    take_turn(&pipes_taken[chosen], at);
    for (uint32_t i = 1; i < cycles; i++) {
        take_turn(&pipes_taken[chosen], at + i);
    }
    return at;
}

static inline uint64_t issue(const struct cost *cost, uint64_t ready) {
    uint64_t last = take(cost->pipes, ready, cost->busy);
    if (is_simple(cost)) {
        return last;
    }
    for (uint32_t i = 1; i < cost->slots; i++) {
        last = later(last, take(cost->pipes, ready, cost->busy));
    }
    for (uint32_t i = 0; cost->also != 0 && i < cost->slots; i++) {
        last = later(last, take(cost->also, ready, cost->busy));
    }
    return last;
}

/* Claim the entry that is free first in the queues of some pipes; return when it is. */
static inline uint64_t claim(uint32_t pipes) {
    uint32_t chosen = first_pipe(pipes);
    uint64_t free = earliest[chosen];
    for (pipes &= pipes - 1; pipes != 0; pipes &= pipes - 1) {
        uint32_t pipe = first_pipe(pipes);
        uint64_t other = earliest[pipe];
        chosen = other < free ? pipe : chosen;
        free = other < free ? other : free;
    }
    if (free == UINT64_MAX || claim_count == MAX_CLAIMED) {
        return 0; /* more operations than entries: the last ones follow as entries become free */
    }
    struct queue *queue = &queues[chosen];
    queue->first = (queue->first + 1) % MAX_ENTRIES;
    earliest[chosen] = --queue->count == 0 ? UINT64_MAX : queue->free[queue->first];
    claimed[claim_count++] = chosen;
    return free;
}

/* Claim an entry for each operation of an instruction; return when all are free. */
static inline uint64_t claim_entries(const struct cost *cost) {
    claim_count = 0;
    if (is_simple(cost)) {
        return claim(cost->pipes);
    }
    uint64_t free = 0;
    for (uint32_t i = 0; i < cost->slots; i++) {
        free = later(free, claim(cost->pipes));
        free = later(free, cost->also != 0 ? claim(cost->also) : 0);
    }
    return free;
}

/* The operations leave their queues: each entry goes to its place in the order. */
static inline void release_entries(uint64_t start) {
    for (uint32_t i = 0; i < claim_count; i++) {
        struct queue *queue = &queues[claimed[i]];
        uint32_t place = queue->first + queue->count++;
        while (place != queue->first && queue->free[(place - 1) % MAX_ENTRIES] > start) {
            queue->free[place % MAX_ENTRIES] = queue->free[(place - 1) % MAX_ENTRIES];
            place--;
        }
        queue->free[place % MAX_ENTRIES] = start;
        earliest[claimed[i]] = queue->free[queue->first];
    }
}

/* Return the cycle in which the next instruction is dispatched; `part` is the cause of the wait. */
static uint64_t dispatch(const struct instruction *one, enum part *part) {
    uint64_t at = later(dispatching, claim_entries(&numbers.cost[one->class]));
    if (fetched > at) {
        at = fetched;
        *part = waits_for;
    }
    at = later(at, window[executed]);
    if (one->stores && buffer[stored] > at) {
        at = buffer[stored];
        *part = stall[stored];
    }
    dispatched = at > dispatching ? 1 : dispatched + 1;
    dispatching = later(dispatching, at);
    bool full = dispatched >= numbers.width;
    dispatching += full;
    dispatched = full ? 0 : dispatched;
    return at;
}

/* Return when an instruction can retire that is complete; the wait is attributed to `part`. */
static void retire(uint64_t complete, enum part part) {
    uint64_t wait = later(complete, retiring) - retiring;
    uint32_t place = wait > 0 ? 1 : retired + 1;
    bool full = place > numbers.retire;
    parts[part] += wait;
    parts[CORE] += full;
    retiring += wait + full;
    retired = full ? 1 : place;
    window[executed] = retiring;
    executed = next_place(executed, numbers.window);
}

static uint64_t operands_ready(const struct registers *registers, const struct instruction *one) {
    const uint64_t *when = registers->ready;
    uint64_t ready = later(later(when[one->source[0]], when[one->source[1]]), when[one->source[2]]);
    for (unsigned i = 3; i < one->sources; i++) {
        ready = later(ready, when[one->source[i]]);
    }
    const struct cost *cost = &numbers.cost[one->class];
    bool forwards = registers->producer[one->accumulator] == one->class;
    return later(ready, when[one->accumulator] - (forwards ? cost->latency - cost->forward : 0));
}

static uint64_t forward_from_store(uint64_t address, uint64_t done) {
    uint64_t place = address >> 3;
    if (forwarded[place % FORWARDED].address != place) {
        return done;
    }
    return later(done, forwarded[place % FORWARDED].ready + numbers.level[0].latency);
}

/* Access the memory of an instruction; return when its value is there. */
static uint64_t access(const struct instruction *one, uint64_t start, const struct touched *touched,
                       size_t count, enum part *part) {
    uint64_t done = start, low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < count; i++) {
        low = touched[i].address < low ? touched[i].address : low;
        high = later(high, touched[i].address + touched[i].bytes);
    }
    uint32_t bytes = (uint32_t)(high - low);
    if (one->loads) {
        done = forward_from_store(low, load_at(start, low, bytes, part));
        uint32_t latency = numbers.cost[one->class].latency;
        return done + latency - numbers.level[0].latency;
    }
    for (uint64_t place = low >> 3; place << 3 < high; place++) {
        forwarded[place % FORWARDED].address = place;
        forwarded[place % FORWARDED].ready = start;
    }
    uint64_t older = buffer[stored == 0 ? numbers.stores - 1 : stored - 1];
    buffer[stored] = later(older, store_at(start, low, bytes, &stall[stored]));
    stored = next_place(stored, numbers.stores);
    return start + numbers.cost[one->class].latency;
}

static void set_result(struct registers *registers, uint8_t reg, uint64_t ready, uint8_t producer) {
    registers->ready[reg] = ready;
    registers->producer[reg] = producer;
}

static void run(struct registers *registers, const struct instruction *one,
                const struct touched *touched, size_t count, uint64_t *resolved) {
    const struct cost *cost = &numbers.cost[one->class];
    enum part part = CORE;
    uint64_t at = dispatch(one, &part);
    uint64_t start = issue(cost, later(at + FIRST_STAGES, operands_ready(registers, one)));
    release_entries(start);
    uint64_t done = start + cost->latency;
    if (count > 0) {
        enum part of_memory = CORE;
        done = access(one, start, touched, count, &of_memory);
        part = of_memory != CORE ? of_memory : part;
    }
    set_result(registers, one->result[0], done, one->class);
    for (unsigned i = 1; i < one->results; i++) {
        set_result(registers, one->result[i], done, one->class);
    }
    set_result(registers, one->base, start + 1, CLASS_alu);
    *resolved = done;
    retire(done, part);
}

static void fetch(const struct segment *segment) {
    uint64_t last = segment->address + 4 * segment->count - 1;
    for (uint64_t line = segment->address / LINE_BYTES; line <= last / LINE_BYTES; line++) {
        uint64_t there = fetch_at(later(dispatching, fetched), line * LINE_BYTES);
        if (there > later(dispatching, fetched)) {
            fetched = there;
            waits_for = FETCH;
        }
    }
}

/* Go on at `target`: after a wrong guess dispatch waits until the branch is resolved. */
static void go_on(const struct segment *segment, uint64_t target, uint64_t resolved) {
    const struct instruction *last = &segment->instruction[segment->count - 1];
    uint64_t address = segment->address + 4 * (segment->count - 1);
    if (target == 0 || last->branch == NO_BRANCH) {
        return;
    }
    if (!predicted((enum branch)last->branch, address, segment->next, target)) {
        fetched = later(fetched, resolved + numbers.mispredict);
        waits_for = BRANCH;
    } else if (target != segment->next) {
        dispatching += (dispatched > 0) + numbers.taken;
        dispatched = 0;
    }
}

void execute(struct registers *registers, const struct segment *segment,
             const struct touched *touched, size_t count, uint64_t target) {
    size_t next = 0;
    uint64_t resolved = 0;
    fetch(segment);
    for (size_t i = 0; i < segment->count; i++) {
        size_t first = next;
        while (next < count && touched[next].index == i) {
            next++;
        }
        run(registers, &segment->instruction[i], &touched[first], next - first, &resolved);
    }
    go_on(segment, target, resolved);
}

void spent(uint64_t copy[PARTS]) {
    for (int i = 0; i < PARTS; i++) {
        copy[i] = parts[i];
    }
}
