/* Times every kernel of a program: included by program.c where PE_PROFILE is defined.
 *
 * Barriers stand round each kernel, so that thread 0's clock sees the slowest thread; a profiled
 * step is therefore a little slower than the sum of what it is made of.
 */
#ifndef PE_PROFILE_H
#define PE_PROFILE_H

#include <stdio.h>
#include <time.h>

#include "pe.h"

static struct {
    long long least, total;
    long calls;
} pe_profile[PE_KERNELS];

static long long pe_profile_start;

static long long pe_profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pe_profile_begin(pe_worker *w) {
    pe_barrier(w);
    if (w->index == 0) {
        pe_profile_start = pe_profile_now();
    }
}

static void pe_profile_end(pe_worker *w, int kernel) {
    pe_barrier(w);
    if (w->index == 0) {
        const long long ns = pe_profile_now() - pe_profile_start;
        const long calls = pe_profile[kernel].calls++;
        pe_profile[kernel].total += ns;
        if (calls == 0 || ns < pe_profile[kernel].least) {
            pe_profile[kernel].least = ns;
        }
    }
}

/* One JSON line for each kernel that has run. */
static void pe_profile_report(void) {
    for (int i = 0; i < PE_KERNELS; i++) {
        if (pe_profile[i].calls) {
            printf("{\"kernel\": %d, \"calls\": %ld, \"least_ns\": %lld, \"total_ns\": %lld}\n", i,
                   pe_profile[i].calls, pe_profile[i].least, pe_profile[i].total);
        }
    }
}

#endif
