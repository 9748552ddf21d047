/* An out-of-order pipeline, instruction by instruction.
 *
 * Each is dispatched in order, as many a cycle as the core is wide, while its window and the issue
 * queues of its pipes have room; starts as soon as its operands are ready and a pipe is free, also
 * before older ones; retires in order. Time passes where retirement waits, and is attributed to the
 * cause of the wait.
 */
#include "model.h"

enum {
    HORIZON = 4096,
    WINDOW = 512,
    BUFFER = 128,
    FORWARDED = 4096,
    FIRST_STAGES = 1,
    MAX_CLAIMED = 16
};

/* An issue queue: the cycles from which its entries are free, and the entry that is free first. */
struct queue {
    uint64_t free[MAX_ENTRIES];
    uint32_t first;
};

static struct queue queues[MAX_PIPES];
static struct queue *claimed[MAX_CLAIMED];
static uint32_t claims[MAX_CLAIMED], claim_count; /* entries of the next instruction in `claimed` */
static uint64_t taken_at[MAX_PIPES][HORIZON];     /* the cycle for which a pipe's slot is taken */
static struct {
    uint64_t from, to;
} busy[MAX_PIPES]; /* the last fully occupied cycles, which a search skips */
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

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint32_t next_place(uint32_t place, uint32_t places) {
    return place + 1 < places ? place + 1 : 0;
}

/* Return the first cycle from `at` on in which a pipe is free. */
static uint64_t first_free(uint32_t pipe, uint64_t at) {
    if (at >= busy[pipe].from && at < busy[pipe].to) {
        at = busy[pipe].to;
    }
    while (taken_at[pipe][at % HORIZON] == at) {
        at++;
    }
    return at;
}

static void take_cycle(uint32_t pipe, uint64_t at) {
    taken_at[pipe][at % HORIZON] = at;
    if (at == busy[pipe].to) {
        busy[pipe].to++;
    } else if (at > busy[pipe].to) {
        busy[pipe].from = at;
        busy[pipe].to = at + 1;
    }
}

/* Take the first slot of some pipes, for `cycles`; return its cycle. */
static uint64_t take(uint32_t pipes, uint64_t ready, uint32_t cycles) {
    uint64_t at = UINT64_MAX;
    uint32_t chosen = 0;
    for (uint32_t pipe = 0; pipe < MAX_PIPES && pipes >> pipe != 0; pipe++) {
        uint64_t found = pipes >> pipe & 1 ? first_free(pipe, ready) : UINT64_MAX;
        if (found < at) {
            at = found;
            chosen = pipe;
        }
    }
    for (uint32_t i = 0; i < cycles; i++) {
        take_cycle(chosen, at + i);
    }
    return at;
}

static uint64_t issue(const struct cost *cost, uint64_t ready) {
    uint64_t last = ready;
    for (uint32_t i = 0; i < cost->slots; i++) {
        last = later(last, take(cost->pipes, ready, cost->busy));
    }
    for (uint32_t i = 0; cost->also != 0 && i < cost->slots; i++) {
        last = later(last, take(cost->also, ready, cost->busy));
    }
    return last;
}

static void set_entry(struct queue *queue, uint32_t entry, uint64_t free) {
    uint32_t entries = numbers.entries[queue - queues];
    queue->free[entry] = free;
    for (uint32_t i = 0; i < entries; i++) {
        if (queue->free[i] < queue->free[queue->first]) {
            queue->first = i;
        }
    }
}

/* Claim the entry that is free first in the queues of some pipes; return when it is. */
static uint64_t claim(uint32_t pipes) {
    struct queue *chosen = NULL;
    for (uint32_t pipe = 0; pipe < numbers.pipes; pipe++) {
        struct queue *queue = &queues[pipe];
        if ((pipes >> pipe & 1) != 0 &&
            (chosen == NULL || queue->free[queue->first] < chosen->free[chosen->first])) {
            chosen = queue;
        }
    }
    uint64_t free = chosen->free[chosen->first];
    if (free == UINT64_MAX || claim_count == MAX_CLAIMED) {
        return 0; /* more operations than entries: the last ones follow as entries become free */
    }
    claimed[claim_count] = chosen;
    claims[claim_count++] = chosen->first;
    set_entry(chosen, chosen->first, UINT64_MAX);
    return free;
}

/* Claim an entry for each operation of an instruction; return when all are free. */
static uint64_t claim_entries(const struct cost *cost) {
    uint64_t free = 0;
    claim_count = 0;
    for (uint32_t i = 0; i < cost->slots; i++) {
        free = later(free, claim(cost->pipes));
        free = later(free, cost->also != 0 ? claim(cost->also) : 0);
    }
    return free;
}

/* The operations leave their queues. */
static void release_entries(uint64_t start) {
    for (uint32_t i = 0; i < claim_count; i++) {
        set_entry(claimed[i], claims[i], start);
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
    if (at > dispatching) {
        dispatching = at;
        dispatched = 0;
    }
    if (++dispatched >= numbers.width) {
        dispatching++;
        dispatched = 0;
    }
    return at;
}

/* Return when an instruction can retire that is complete; the wait is attributed to `part`. */
static void retire(uint64_t complete, enum part part) {
    if (complete > retiring) {
        parts[part] += complete - retiring;
        retiring = complete;
        retired = 0;
    }
    if (++retired > numbers.retire) {
        parts[CORE]++;
        retiring++;
        retired = 1;
    }
    window[executed] = retiring;
    executed = next_place(executed, numbers.window);
}

static uint64_t operands_ready(const struct registers *registers, const struct instruction *one) {
    uint64_t ready = 0;
    for (unsigned i = 0; i < one->sources; i++) {
        ready = later(ready, registers->ready[one->source[i]]);
    }
    if (one->accumulator == NO_REGISTER) {
        return ready;
    }
    uint64_t sum = registers->ready[one->accumulator];
    const struct cost *cost = &numbers.cost[one->class];
    if (registers->producer[one->accumulator] == one->class) {
        sum -= cost->latency - cost->forward;
    }
    return later(ready, sum);
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
    for (unsigned i = 0; i < one->results; i++) {
        registers->ready[one->result[i]] = done;
        registers->producer[one->result[i]] = one->class;
    }
    if (one->base != NO_REGISTER) {
        registers->ready[one->base] = start + 1;
        registers->producer[one->base] = CLASS_alu;
    }
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
