/* Rests of a training: to compute only part of the time, while the device is hot, and while its
 * battery is low. Rests do not change the steps.
 */
#ifndef PE_RUNNER_DUTY_H
#define PE_RUNNER_DUTY_H

#include "pe_options.h"
#include "pe_runner_gauge.h"
#include "pe_system.h"

typedef struct pe_duty {
    int64_t percent; /* share of time to compute */
    pe_gauge gauges[2];
    int gauge_count;
    int64_t begun_ns;                      /* start of the current step; 0 before the first */
    const volatile sig_atomic_t *signaled; /* ends every rest */
} pe_duty;

/* Opens the files that the options name, and prints their values. */
pe_status pe_duty_begin(pe_duty *duty, const pe_options *options, char *message);

/* Rests after the step `after` as long as needed; prints a pause once. */
pe_status pe_duty_rest(pe_duty *duty, int64_t after, char *message);

#endif
