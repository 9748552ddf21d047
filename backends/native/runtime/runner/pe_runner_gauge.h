/* Kernel files that hold one integer: a temperature, a battery's charge. */
#ifndef PE_RUNNER_GAUGE_H
#define PE_RUNNER_GAUGE_H

#include "pe_safetensors.h"

/* Meaning of such a file, and its path: FOLDER/ITEM.../NAME. */
typedef struct pe_quantity {
    const char *kind, *option; /* "temperature", and the option that names its file */
    const char *unit;
    int64_t scale;       /* the file counts in thousandths: 1000 */
    int64_t least, most; /* the valid range, in units */
    const char *folder, *item, *name;
} pe_quantity;

/* A file, with the numbers beyond which a training pauses and goes on, in units. */
typedef struct pe_gauge {
    const pe_quantity *quantity;
    bool above; /* whether beyond is above */
    int64_t pause, go_on;
    char path[PE_ST_PATH_BYTES];
} pe_gauge;

/* Takes the file `given`, or where that is NULL the first one, by name, that can be read; reads it
 * once. */
pe_status pe_gauge_open(pe_gauge *gauge, const char *given, double *value, char *message);

/* Reads what the file says now, in units. */
pe_status pe_gauge_read(const pe_gauge *gauge, double *value, char *message);

#endif
