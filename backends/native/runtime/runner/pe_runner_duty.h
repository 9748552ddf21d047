/* When a training rests: so that it computes only a part of the time, while the device is hot, and
 * while its battery is low. Steps are the same with and without it.
 */
#ifndef PE_RUNNER_DUTY_H
#define PE_RUNNER_DUTY_H

#include "pe_options.h"
#include "pe_runner_gauge.h"
#include "pe_system.h"

typedef struct pe_duty {
    int64_t percent; /* of the time that may compute */
    pe_gauge gauges[2];
    int gauge_count;
    int64_t begun_ns;                       /* when the step under way began; 0 before the first */
    const volatile sig_atomic_t *signalled; /* ends every rest */
} pe_duty;

/* Opens the files that the options watch, and prints what they say. */
pe_status pe_duty_begin(pe_duty *duty, const pe_options *options, char *message);

/* Rests after the step `after` as long as it takes; a pause is printed once. */
pe_status pe_duty_rest(pe_duty *duty, int64_t after, char *message);

#endif
