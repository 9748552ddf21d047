/* The numbers by name, and `class name latency late busy pipes also grouping`. */
#include <stdio.h>
#include <string.h>

#include "model.h"

struct numbers numbers;

const struct field fields[] = {
    {"width", &numbers.width},
    {"mispredict", &numbers.mispredict},
    {"taken", &numbers.taken},
    {"data_bytes", &numbers.data_bytes},
    {"data_ways", &numbers.data_ways},
    {"instruction_bytes", &numbers.instruction_bytes},
    {"instruction_ways", &numbers.instruction_ways},
    {"tcm_begin", &numbers.tcm_begin},
    {"tcm_bytes", &numbers.tcm_bytes},
    {"ram_begin", &numbers.ram_begin},
    {"flash_first", &numbers.flash_first},
    {"flash_line", &numbers.flash_line},
    {"ram_first", &numbers.ram_first},
    {"ram_line", &numbers.ram_line},
    {"stores", &numbers.stores},
    {NULL, NULL},
};

bool read_row(const char *line) {
    char name[64];
    struct cost cost;
    if (sscanf(line, "class %63s %u %u %u %u %u %u", name, &cost.latency, &cost.late, &cost.busy,
               &cost.pipes, &cost.also, &cost.grouping) != 7) {
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
