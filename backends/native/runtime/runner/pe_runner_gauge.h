/* Kernel files that hold one integer: a temperature, a battery's charge. */
#ifndef PE_RUNNER_GAUGE_H
#define PE_RUNNER_GAUGE_H

#include "pe_safetensors.h"

/* The kind of such a file, and its path: FOLDER/ITEM.../NAME. */
typedef struct pe_quantity {
    const char *kind, *option; /* "temperature", and the option that names its file */
    const char *unit;
    int64_t scale;       /* units of the file per unit: 1000 for thousandths */
    int64_t least, most; /* the valid range, in units */
    const char *folder, *item, *name;
} pe_quantity;

/* A file, with the thresholds at which a training pauses and continues, in units. */
typedef struct pe_gauge {
    const pe_quantity *quantity;
    bool above; /* whether a training pauses above the threshold */
    int64_t pause, go_on;
    char path[PE_ST_PATH_BYTES];
} pe_gauge;

/* Selects the file `given`, or if that is NULL the first readable one by name; reads it once. */
pe_status pe_gauge_open(pe_gauge *gauge, const char *given, double *value, char *message);

/* Reads the current value, in units. */
pe_status pe_gauge_read(const pe_gauge *gauge, double *value, char *message);

#endif
