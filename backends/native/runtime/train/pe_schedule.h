/* Learning-rate schedules: the factor on the base rate at each step, the first being step 1.
 *
 *     warm-up      step / warmup, for the first `warmup` steps; n counts the steps after it from 0,
 *                  and p = n / (total - warmup) runs towards 1 after the last
 *     constant     1
 *     linear       1 - p
 *     cosine       (1 + cos(pi p)) / 2 (arXiv 1608.03983, without restarts)
 *     polynomial   (1 - p) ^ factor
 *     exponential  factor ^ n
 *     step         factor ^ floor(n / period)
 *     multistep    factor ^ (how many milestones are at most n)
 *     restarts     a cosine over each period, the next one being `factor` times as long
 *     cyclic       up from `factor` over a period and down again, along straight lines
 *     one-cycle    a cosine up from 1 / 25 until p = factor, then down to 1 / 250000, which it
 *                  reaches at the last step (arXiv 1708.07120)
 *
 * No step of a run has the rate 0. After `total` the factor keeps its last value.
 */
#ifndef PE_SCHEDULE_H
#define PE_SCHEDULE_H

#include <float.h>
#include <math.h>

#include "pe_train.h"

#define PE_PI 3.14159265358979323846

/* From `high` where p = 0 to `low` where p = 1. */
static inline double pe_cosine(double high, double low, double p) {
    return low + (high - low) * 0.5 * (1.0 + cos(PE_PI * p));
}

static inline double pe_restarts_factor(const pe_schedule *schedule, int64_t past) {
    double length = (double)schedule->period, left = (double)past;
    if (schedule->factor == 1.0) {
        left = fmod(left, length);
    }
    while (left >= length) {
        left -= length;
        length *= schedule->factor;
    }
    return pe_cosine(1.0, 0.0, left / length);
}

static inline double pe_cyclic_factor(const pe_schedule *schedule, int64_t past) {
    const double place = fmod((double)past / (double)schedule->period, 2.0);
    return schedule->factor + (1.0 - schedule->factor) * (1.0 - fabs(place - 1.0));
}

static inline double pe_one_cycle_factor(const pe_schedule *schedule, int64_t past, int64_t span) {
    const double first = 1.0 / 25.0, last = first / 1e4;
    const double peak = schedule->factor * (double)span - 1.0, end = (double)span - 1.0;
    const double place = (double)past;
    return place <= peak ? pe_cosine(first, 1.0, peak > 0.0 ? place / peak : 1.0)
                         : pe_cosine(1.0, last, (place - peak) / (end - peak));
}

static inline int pe_milestones_passed(const pe_schedule *schedule, int64_t past) {
    int count = 0;
    while (count < PE_MOST_MILESTONES && schedule->milestones[count] > 0 &&
           schedule->milestones[count] <= past) {
        count++;
    }
    return count;
}

static inline double pe_schedule_factor(const pe_schedule *schedule, int64_t step) {
    if (step <= schedule->warmup) {
        return (double)step / (double)schedule->warmup;
    }
    const int64_t last = step < schedule->total ? step : schedule->total;
    const int64_t span = schedule->total - schedule->warmup;
    const int64_t past = span > 0 && last > schedule->warmup ? last - 1 - schedule->warmup : 0;
    const double progress = past > 0 ? (double)past / (double)span : 0.0;
    switch (schedule->kind) {
    case PE_LINEAR:
        return 1.0 - progress;
    case PE_COSINE:
        return 0.5 * (1.0 + cos(PE_PI * progress));
    case PE_POLYNOMIAL:
        return pow(1.0 - progress, schedule->factor);
    case PE_EXPONENTIAL:
        return pow(schedule->factor, (double)past);
    case PE_STEPS:
        return pow(schedule->factor, (double)(past / schedule->period));
    case PE_MILESTONES:
        return pow(schedule->factor, (double)pe_milestones_passed(schedule, past));
    case PE_RESTARTS:
        return pe_restarts_factor(schedule, past);
    case PE_CYCLIC:
        return pe_cyclic_factor(schedule, past);
    case PE_ONE_CYCLE:
        return pe_one_cycle_factor(schedule, past, span);
    default:
        return 1.0;
    }
}

/* The missing setting of a schedule, or NULL. */
static inline const char *pe_schedule_fault(const pe_schedule *schedule) {
    const double factor = schedule->factor;
    const pe_schedule_kind kind = schedule->kind;
    if ((unsigned)kind >= PE_SCHEDULES || schedule->warmup < 0 || schedule->total < 0) {
        return "there is no such schedule";
    }
    if (!(schedule->rate >= 0.0 && schedule->rate <= FLT_MAX)) {
        return "the rate must be a finite number of at least 0";
    }
    if (kind < PE_POLYNOMIAL) {
        return NULL;
    }
    if (!(factor > 0.0) || !isfinite(factor)) {
        return "this schedule needs a factor above 0";
    }
    if (kind == PE_RESTARTS && (factor < 1.0 || factor != floor(factor))) {
        return "restarts need a whole factor of at least 1";
    }
    if (kind > PE_RESTARTS && factor >= 1.0) {
        return "this schedule needs a factor below 1";
    }
    if ((kind == PE_STEPS || kind == PE_RESTARTS || kind == PE_CYCLIC) && schedule->period < 1) {
        return "this schedule needs a period";
    }
    return kind == PE_MILESTONES && schedule->milestones[0] < 1 ? "this schedule needs milestones"
                                                                : NULL;
}

#endif
