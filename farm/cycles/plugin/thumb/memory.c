/* A microcontroller's memory: caches of one level, tightly coupled memory, RAM and flash on a bus.
 *
 * The bus moves one line at a time. A load continues when its first word is there; another load of
 * the same line waits until all of it is. Stores wait in a buffer while their line is fetched.
 */
#include <stdlib.h>

#include "model.h"

enum { MAX_STORES = 16 };

struct line {
    uint64_t tag; /* number of the line, plus 1 */
    uint64_t ready, used;
    bool dirty;
};

struct cache {
    uint32_t sets, ways;
    struct line *lines;
};

static struct cache data, instructions;
static uint64_t bus_free, clock_of_use;
static uint64_t buffer[MAX_STORES]; /* when each line is there that a store waits for */
static uint32_t stored;

static void make(struct cache *cache, uint32_t bytes, uint32_t ways) {
    cache->ways = ways;
    cache->sets = bytes / LINE_BYTES / ways;
    cache->lines = calloc((size_t)cache->sets * ways, sizeof *cache->lines);
}

void start_memory(void) {
    make(&data, numbers.data_bytes, numbers.data_ways);
    make(&instructions, numbers.instruction_bytes, numbers.instruction_ways);
}

static bool is_flash(uint64_t address) { return address < numbers.ram_begin; }

/* Whether it is neither cached nor slow: coupled memory, and peripherals, which nothing measures.
 */
static bool is_coupled(uint64_t address) {
    return address - numbers.tcm_begin < numbers.tcm_bytes && address >= numbers.tcm_begin;
}

/* Return the line, if it is there; else NULL, and `victim` is the line it would replace. */
static struct line *find(struct cache *cache, uint64_t number, struct line **victim) {
    struct line *set = &cache->lines[number % cache->sets * cache->ways];
    struct line *oldest = set;
    for (uint32_t i = 0; i < cache->ways; i++) {
        if (set[i].tag == number + 1) {
            set[i].used = ++clock_of_use;
            return &set[i];
        }
        oldest = set[i].used < oldest->used ? &set[i] : oldest;
    }
    *victim = oldest;
    return NULL;
}

/* Fetch a line over the bus in place of another; return when its first word is there. */
static uint64_t bring(struct line *victim, uint64_t number, uint64_t now) {
    bool flash = is_flash(number * LINE_BYTES);
    uint64_t start = now > bus_free ? now : bus_free;
    bool writes_back = victim->tag != 0 && victim->dirty;
    *victim = (struct line){
        .tag = number + 1,
        .ready = start + (flash ? numbers.flash_line : numbers.ram_line),
        .used = ++clock_of_use,
    };
    bus_free = victim->ready + (writes_back ? numbers.ram_line : 0);
    return start + (flash ? numbers.flash_first : numbers.ram_first);
}

uint64_t load_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part) {
    struct line *victim = NULL;
    uint64_t last = (address + bytes - 1) / LINE_BYTES, done = now;
    for (uint64_t number = address / LINE_BYTES; number <= last; number++) {
        if (is_coupled(number * LINE_BYTES)) {
            continue;
        }
        struct line *line = find(&data, number, &victim);
        uint64_t at = line != NULL ? line->ready : bring(victim, number, now);
        if (at > done) {
            done = at;
            *part = is_flash(number * LINE_BYTES) ? DRAM : CACHE;
        }
    }
    return done;
}

uint64_t store_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part) {
    struct line *victim = NULL;
    (void)bytes; /* an aligned store is within a line */
    uint64_t number = address / LINE_BYTES;
    if (is_coupled(address)) {
        return now;
    }
    struct line *line = find(&data, number, &victim);
    if (line != NULL) {
        line->dirty = true;
        return now;
    }
    uint64_t done = buffer[stored] > now ? buffer[stored] : now;
    *part = CACHE;
    bring(victim, number, done);
    victim->dirty = true;
    buffer[stored] = victim->ready;
    stored = stored + 1 < numbers.stores ? stored + 1 : 0;
    return done;
}

uint64_t fetch_at(uint64_t now, uint64_t address) {
    struct line *victim = NULL;
    uint64_t number = address / LINE_BYTES;
    struct line *line = find(&instructions, number, &victim);
    if (line != NULL) {
        return line->ready > now ? line->ready : now;
    }
    return bring(victim, number, now);
}
