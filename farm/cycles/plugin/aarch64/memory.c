/* Caches with a stride prefetcher, a second level of pages, and DRAM of one bandwidth.
 *
 * A line has an arrival time, so a load waits for a line in flight, and misses overlap, up to the
 * core's number of miss buffers. Lines that are completely overwritten in sequence are not read
 * first (Arm calls it write streaming). The latency of a
 * level is that from a load to its value. Pages are 4 KiB; prefetches end with them.
 */
#include <stdlib.h>
#include <string.h>

#include "calendar.h"
#include "model.h"

enum {
    PAGE_BITS = 12,
    LINE_BITS = 6,
    STREAMS = 16,
    STREAMED_LINES = 3,
    HINTS = 256,
    MAX_MISSES = 64,
    MAX_WALKERS = 8,
    QUEUED_LINES = 16
};

struct line {
    uint64_t tag; /* number of the line or page, plus 1 */
    uint64_t ready, used;
    uint8_t part; /* cause of the wait for a line being fetched */
    bool dirty;
};

struct cache {
    uint32_t sets, ways;
    struct line *lines;
};

struct stream {
    uint64_t page, used;
    int64_t last, step;
    uint32_t hits;
};

static struct cache levels[MAX_LEVELS], instructions, pages, walks;
/* Channels that move one line at a time, for some cycles each; loads arrive out of order. */
static struct calendar movers[MAX_LEVELS], dram;
static uint64_t written_back; /* when DRAM accepts the last evicted line */
static uint64_t clock_of_use;
static uint64_t misses[MAX_MISSES];
static struct stream streams[STREAMS];
static uint64_t written_line, written_bytes, written_run;

static void make(struct cache *cache, uint32_t entries, uint32_t ways) {
    cache->ways = ways < entries ? ways : entries;
    cache->sets = entries / cache->ways;
    size_t bytes = (size_t)cache->sets * cache->ways * sizeof *cache->lines;
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    cache->lines = aligned_alloc(LINE_BYTES, bytes); /* a set of two ways is one line of the host */
    memset(cache->lines, 0, bytes);
}

void start_memory(void) {
    for (uint32_t i = 0; i < numbers.levels; i++) {
        make(&levels[i], numbers.level[i].bytes / LINE_BYTES, numbers.level[i].ways);
    }
    make(&instructions, numbers.instruction_bytes / LINE_BYTES, numbers.instruction_ways);
    make(&pages, numbers.pages, numbers.pages);
    make(&walks, 1024, 4);
}

/* Return the line, if it is there; else NULL, and `victim` is the line it would replace. */
static inline struct line *find(struct cache *cache, uint64_t number, struct line **victim) {
    /* Sets are nearly always a power of two, and a division takes longer than the search. */
    uint64_t set_of =
        (cache->sets & (cache->sets - 1)) == 0 ? number & (cache->sets - 1) : number % cache->sets;
    struct line *set = &cache->lines[set_of * cache->ways];
    struct line *oldest = set;
    for (uint32_t i = 0; i < cache->ways; i++) {
        if (set[i].tag == number + 1) {
            set[i].used = ++clock_of_use;
            return &set[i];
        }
        if (set[i].used < oldest->used) {
            oldest = &set[i];
        }
    }
    *victim = oldest;
    return NULL;
}

static void fill(struct line *line, uint64_t number, uint64_t ready, enum part part, bool dirty) {
    *line = (struct line){number + 1, ready, ++clock_of_use, (uint8_t)part, dirty};
}

/* Return when the first turn of a line from `now` on starts; a turn has `cycles`. */
static uint64_t occupy(struct calendar *mover, uint64_t now, uint32_t cycles) {
    uint64_t turn = first_free(mover, (now + cycles - 1) / cycles);
    take_turn(mover, turn);
    return turn * cycles;
}

/* Write a dirty line back that a level drops: into the next one, or into DRAM. */
static void write_back(uint32_t level, const struct line *dropped, uint64_t now) {
    if (dropped->tag == 0 || !dropped->dirty) {
        return;
    }
    struct line *victim = NULL;
    for (uint32_t i = level + 1; i < numbers.levels; i++) {
        struct line *line = find(&levels[i], dropped->tag - 1, &victim);
        if (line != NULL) {
            line->dirty = true;
            return;
        }
    }
    written_back = occupy(&dram, now, numbers.dram_line);
}

/* Return when a line missing in the levels before `level` arrives, and insert it into this one. */
static uint64_t bring(uint32_t level, uint64_t number, uint64_t now, bool unread, enum part *part) {
    if (level == numbers.levels) {
        *part = DRAM;
        if (unread) { /* waits while more lines are to be written than DRAM's queue has room for */
            uint64_t queue = (uint64_t)QUEUED_LINES * numbers.dram_line;
            return written_back > now + queue ? written_back - queue : now;
        }
        return occupy(&dram, now, numbers.dram_line) + numbers.dram_latency;
    }
    struct line *victim = NULL;
    struct line *line = find(&levels[level], number, &victim);
    uint32_t latency = numbers.level[level].latency;
    if (line != NULL) {
        bool waits = line->ready > now + latency;
        *part = waits ? (enum part)line->part : level == 0 ? CORE : CACHE;
        uint64_t start = occupy(&movers[level], now, numbers.level[level].transfer);
        return line->ready > start + latency ? line->ready : start + latency;
    }
    uint64_t done = bring(level + 1, number, now, unread, part);
    struct line dropped = *victim;
    fill(victim, number, done, *part, false);
    write_back(level, &dropped, now);
    return done;
}

/* Bring a line into the first level, after a miss buffer is free. */
static uint64_t miss(uint64_t number, uint64_t now, bool unread, enum part *part) {
    uint32_t slot = 0;
    for (uint32_t i = 1; i < numbers.misses; i++) {
        if (misses[i] < misses[slot]) {
            slot = i;
        }
    }
    now = misses[slot] > now ? misses[slot] : now;
    misses[slot] = bring(0, number, now, unread, part);
    return misses[slot];
}

/* Return the stream of a page, or the one it replaces; where it was last time comes first. */
static struct stream *stream_of(uint64_t page) {
    static struct stream *hints[HINTS];
    struct stream **hint = &hints[page % HINTS], *oldest = &streams[0];
    if (*hint != NULL && (*hint)->page == page) {
        return *hint;
    }
    for (struct stream *one = streams; one < streams + STREAMS; one++) {
        if (one->page == page) {
            return *hint = one;
        }
        oldest = one->used < oldest->used ? one : oldest;
    }
    return *hint = oldest;
}

/* Prefetch along a line's page once two steps of it were the same. */
static void prefetch(uint64_t number, uint64_t now) {
    uint64_t page = number >> (PAGE_BITS - LINE_BITS);
    struct stream *stream = stream_of(page);
    int64_t step = (int64_t)number - stream->last;
    if (stream->page != page) {
        *stream = (struct stream){page, ++clock_of_use, (int64_t)number, 0, 0};
        return;
    }
    stream->used = ++clock_of_use;
    if (step == 0) {
        return;
    }
    stream->hits = step == stream->step ? stream->hits + 1 : 0;
    stream->step = step;
    stream->last = (int64_t)number;
    if (stream->hits < 1) {
        return;
    }
    for (uint32_t i = 1; i <= numbers.ahead || i <= numbers.far_ahead; i++) {
        uint64_t next = number + (uint64_t)(step * (int64_t)i);
        uint32_t level = i <= numbers.ahead ? 0 : 1;
        struct line *victim = NULL;
        if (next >> (PAGE_BITS - LINE_BITS) != page) {
            return;
        }
        if (find(&levels[level], next, &victim) == NULL) {
            enum part part;
            bring(level, next, now, false, &part);
        }
    }
}

/* `find` of a page, whose cache is one set of many ways: where it was last time comes first. */
static struct line *find_page(uint64_t page, struct line **victim) {
    static struct line *hints[HINTS];
    struct line **hint = &hints[page % HINTS];
    if (*hint != NULL && (*hint)->tag == page + 1) {
        (*hint)->used = ++clock_of_use;
        return *hint;
    }
    struct line *found = find(&pages, page, victim);
    *hint = found != NULL ? found : *victim;
    return found;
}

/* Return when a page's entry has been read: a walk waits for a free walker. */
static uint64_t walk(uint64_t now) {
    static uint64_t free[MAX_WALKERS];
    uint32_t first = 0;
    for (uint32_t i = 1; i < numbers.walkers && i < MAX_WALKERS; i++) {
        first = free[i] < free[first] ? i : first;
    }
    free[first] = (now > free[first] ? now : free[first]) + numbers.page_walk;
    return free[first];
}

/* Return when the address of a page is known. */
static uint64_t translate_at(uint64_t now, uint64_t address) {
    static struct line *recent;
    uint64_t page = address >> PAGE_BITS;
    struct line *victim = NULL;
    if (recent != NULL && recent->tag == page + 1) {
        return now;
    }
    recent = find_page(page, &victim);
    if (recent != NULL) {
        return now;
    }
    struct line *walked = NULL;
    now += numbers.page_latency;
    if (find(&walks, page, &walked) == NULL) {
        now = walk(now);
        fill(walked, page, now, CORE, false);
    }
    fill(victim, page, now, CORE, false);
    recent = victim;
    return now;
}

static uint64_t touch(uint64_t now, uint64_t number, bool write, bool unread, enum part *part) {
    struct line *victim = NULL;
    struct line *line = find(&levels[0], number, &victim);
    uint32_t latency = numbers.level[0].latency;
    uint64_t done;
    *part = CORE;
    if (line != NULL) {
        done = now + latency;
        if (line->ready > done) {
            done = line->ready;
            *part = (enum part)line->part;
        }
    } else {
        done = miss(number, now, unread, part);
    }
    if (write && (line != NULL || (line = find(&levels[0], number, &victim)) != NULL)) {
        line->dirty = true;
    }
    if (!unread) {
        prefetch(number, now);
    }
    return done;
}

uint64_t load_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part) {
    now = translate_at(now, address);
    uint64_t first = address >> LINE_BITS, last = (address + bytes - 1) >> LINE_BITS;
    uint64_t done = 0;
    for (uint64_t number = first; number <= last; number++) {
        enum part of_line;
        uint64_t at = touch(now, number, false, false, &of_line);
        if (at >= done) {
            done = at;
            *part = of_line;
        }
    }
    return done;
}

/* Return whether stores have overwritten whole lines one after another up to this one. */
static bool streams_through(uint64_t address, uint32_t bytes) {
    uint64_t number = address >> LINE_BITS;
    if (number == written_line) {
        written_bytes += bytes;
    } else {
        bool goes_on = number == written_line + 1 && written_bytes >= LINE_BYTES;
        written_run = goes_on ? written_run + 1 : 0;
        written_line = number;
        written_bytes = bytes;
    }
    return written_run >= STREAMED_LINES;
}

uint64_t store_at(uint64_t now, uint64_t address, uint32_t bytes, enum part *part) {
    now = translate_at(now, address);
    bool unread = streams_through(address, bytes);
    uint64_t first = address >> LINE_BITS, last = (address + bytes - 1) >> LINE_BITS;
    uint64_t done = 0;
    for (uint64_t number = first; number <= last; number++) {
        uint64_t at = touch(now, number, true, unread, part);
        done = at > done ? at : done;
    }
    return done;
}

uint64_t fetch_at(uint64_t now, uint64_t address) {
    struct line *victim = NULL;
    uint64_t number = address >> LINE_BITS;
    struct line *line = find(&instructions, number, &victim);
    if (line != NULL) {
        return line->ready > now ? line->ready : now;
    }
    enum part part;
    uint64_t done = bring(1, number, now, false, &part);
    fill(victim, number, done, CORE, false);
    return done;
}
