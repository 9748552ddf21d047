/* Learning-rate schedules: the factor on the base rate at each step, the first being step 1.
 *
 *     warm-up    step / warmup, for the first `warmup` steps
 *     constant   1
 *     linear     1 - p, where p runs from 0 after the warm-up towards 1 after the last step
 *     cosine     (1 + cos(pi p)) / 2 (arXiv 1608.03983, without restarts)
 *
 * No step of a run has the rate 0. Beyond `total` the factor stays what it is at the end.
 */
#ifndef PE_SCHEDULE_H
#define PE_SCHEDULE_H

#include <math.h>

#include "pe.h"

static inline double pe_schedule_factor(const pe_schedule *schedule, int64_t step) {
    if (step <= schedule->warmup) {
        return (double)step / (double)schedule->warmup;
    }
    const int64_t last = step < schedule->total ? step : schedule->total;
    const int64_t span = schedule->total - schedule->warmup;
    const double progress = span > 0 && last > schedule->warmup
                                ? (double)(last - 1 - schedule->warmup) / (double)span
                                : 0.0;
    switch (schedule->kind) {
    case PE_LINEAR:
        return 1.0 - progress;
    case PE_COSINE:
        return 0.5 * (1.0 + cos(3.14159265358979323846 * progress));
    default:
        return 1.0;
    }
}

#endif
