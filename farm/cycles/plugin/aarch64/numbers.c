/* The numbers by name, and lines `queue entries`, `level bytes ways latency transfer` and
 * `class name latency forward slots busy pipes also`. */
#include <stdio.h>
#include <string.h>

#include "model.h"

struct numbers numbers;

const struct field fields[] = {
    {"width", &numbers.width},
    {"window", &numbers.window},
    {"retire", &numbers.retire},
    {"mispredict", &numbers.mispredict},
    {"taken", &numbers.taken},
    {"misses", &numbers.misses},
    {"stores", &numbers.stores},
    {"ahead", &numbers.ahead},
    {"far_ahead", &numbers.far_ahead},
    {"dram_latency", &numbers.dram_latency},
    {"dram_line", &numbers.dram_line},
    {"pages", &numbers.pages},
    {"page_latency", &numbers.page_latency},
    {"page_walk", &numbers.page_walk},
    {"walkers", &numbers.walkers},
    {"instruction_bytes", &numbers.instruction_bytes},
    {"instruction_ways", &numbers.instruction_ways},
    {NULL, NULL},
};

static bool read_class(const char *line) {
    char name[64];
    struct cost cost;
    if (sscanf(line, "class %63s %u %u %u %u %u %u", name, &cost.latency, &cost.forward,
               &cost.slots, &cost.busy, &cost.pipes, &cost.also) != 7) {
        return false;
    }
    for (int i = 0; i < CLASS_COUNT; i++) {
        if (strcmp(name, class_names[i]) == 0) {
            numbers.cost[i] = cost;
            return true;
        }
    }
    return false;
}

static bool read_level(const char *line) {
    struct level level;
    if (numbers.levels == MAX_LEVELS || sscanf(line, "level %u %u %u %u", &level.bytes, &level.ways,
                                               &level.latency, &level.transfer) != 4) {
        return false;
    }
    numbers.level[numbers.levels++] = level;
    return true;
}

static bool read_queue(const char *line) {
    uint32_t *entries = &numbers.entries[numbers.pipes];
    return numbers.pipes++ < MAX_PIPES && sscanf(line, "queue %u", entries) == 1 && *entries >= 1 &&
           *entries <= MAX_ENTRIES;
}

bool read_row(const char *line) {
    return strncmp(line, "class ", 6) == 0   ? read_class(line)
           : strncmp(line, "level ", 6) == 0 ? read_level(line)
           : strncmp(line, "queue ", 6) == 0 ? read_queue(line)
                                             : false;
}
