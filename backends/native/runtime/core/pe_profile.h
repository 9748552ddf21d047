/* Times every kernel of a program: included by program.c where PE_PROFILE is defined. A GPU's
 * runtime passes the times of launches to pe_profile_keep.
 *
 * A barrier before and after each kernel makes thread 0's clock include the slowest thread. A
 * profiled step is therefore a little slower than the sum of its kernels.
 *
 * With PE_PROFILE_MARKS, no clock is read: each kernel begins a marked region of its own
 * (pe_mark.h), which an emulator's plugin counts and models. The start of a step is a region too;
 * its end belongs to the last kernel's.
 */
#ifndef PE_PROFILE_H
#define PE_PROFILE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pe_worker.h"

#ifdef PE_PROFILE_MARKS
#include "pe_mark.h"

static inline void pe_profile_begin(pe_worker *w) {
    if (w->index == 0) {
        PE_MARK_END();
        PE_MARK_BEGIN();
    }
}

static inline void pe_profile_end(pe_worker *w, int kernel) { (void)w, (void)kernel; }

static void pe_profile_report(void) {}

#else

/* The first call is dropped if there are more: its pages and caches are cold. */
#define PE_PROFILE_SAMPLES 64

static struct {
    long long ns[PE_PROFILE_SAMPLES];
    long calls;
} pe_profile[PE_KERNELS];

static long long pe_profile_start;

static inline long long pe_profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void pe_profile_begin(pe_worker *w) {
    pe_barrier(w);
    if (w->index == 0) {
        pe_profile_start = pe_profile_now();
    }
}

static void pe_profile_keep(int kernel, long long ns) {
    const long calls = pe_profile[kernel].calls++;
    const long sample = calls ? calls - 1 : 0;
    if (sample < PE_PROFILE_SAMPLES) {
        pe_profile[kernel].ns[sample] = ns;
    }
}

static inline void pe_profile_end(pe_worker *w, int kernel) {
    pe_barrier(w);
    if (w->index == 0) {
        pe_profile_keep(kernel, pe_profile_now() - pe_profile_start);
    }
}

static int pe_profile_compare(const void *a, const void *b) {
    const long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

/* One JSON line for each kernel that has run. */
static void pe_profile_report(void) {
    for (int i = 0; i < PE_KERNELS; i++) {
        const long calls = pe_profile[i].calls, kept = calls > 1 ? calls - 1 : calls;
        const long samples = kept < PE_PROFILE_SAMPLES ? kept : PE_PROFILE_SAMPLES;
        long long *ns = pe_profile[i].ns;
        if (samples) {
            qsort(ns, (size_t)samples, sizeof *ns, pe_profile_compare);
            printf("{\"kernel\": %d, \"samples\": %ld, \"least_ns\": %lld, \"median_ns\": %lld, "
                   "\"most_ns\": %lld}\n",
                   i, samples, ns[0], ns[samples / 2], ns[samples - 1]);
        }
    }
}

#endif /* PE_PROFILE_MARKS */
#endif
