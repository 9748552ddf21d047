/* Timing of single kernels, for alone.py and peaks.py: the median of samples of at least
 * PE_SAMPLE_SECONDS, a barrier after each call as in a step. */
#ifndef PE_BENCH_H
#define PE_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pe_pool.h"
#include "pe_vec.h"

#include "pe_math.h"

#define PE_SAMPLES 15
#define PE_SAMPLE_SECONDS 4e-4
#define PE_MOST_BUFFERS 32

/* One call and its buffers: of `kinds`, 'f' is filled with floats and '0' with zeros, so that
 * integers are indices that exist. */
typedef struct bench {
    void (*call)(pe_worker *w, void **p);
    const char *kinds;
    size_t bytes[PE_MOST_BUFFERS];
} bench;

typedef struct bench_run {
    const bench *what;
    void *p[PE_MOST_BUFFERS];
    int repeats;
    double samples[PE_SAMPLES];
} bench_run;

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void bench_job(pe_worker *w, void *argument) {
    bench_run *run = argument;
    for (int i = 0; i < PE_SAMPLES; i++) {
        const double start = bench_now();
        for (int r = 0; r < run->repeats; r++) {
            run->what->call(w, run->p);
            pe_barrier(w);
        }
        if (w->index == 0) {
            run->samples[i] = (bench_now() - start) / run->repeats;
        }
    }
}

static inline int bench_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the samples: the median is the figure, the first says what it is on a quiet machine. */
static inline double bench_median(pe_team *team, bench_run *run) {
    pe_team_run(team, bench_job, run);
    qsort(run->samples, PE_SAMPLES, sizeof *run->samples, bench_compare);
    return run->samples[PE_SAMPLES / 2];
}

static inline void *bench_buffer(char kind, size_t bytes) {
    const size_t size = (bytes / PE_ALIGN + 1) * PE_ALIGN;
    float *data = aligned_alloc(PE_ALIGN, size);
    if (!data) {
        fprintf(stderr, "no memory for a buffer of %zu bytes\n", size);
        exit(1);
    }
    memset(data, 0, size);
    for (size_t k = 0; kind == 'f' && k < bytes / sizeof(float); k++) {
        data[k] = (float)(k * 7 % 31) / 16.0f - 1.0f;
    }
    return data;
}

static inline int run_benches(const bench *benches, int count, int threads) {
    static pe_team team;
    pe_team_start(&team, threads);
    for (int i = 0; i < count; i++) {
        bench_run run = {.what = &benches[i], .repeats = 1};
        const int buffers = (int)strlen(benches[i].kinds);
        for (int j = 0; j < buffers; j++) {
            run.p[j] = bench_buffer(benches[i].kinds[j], benches[i].bytes[j]);
        }
        const double once = bench_median(&team, &run);
        run.repeats = 1 + (int)(PE_SAMPLE_SECONDS / once);
        const double median = bench_median(&team, &run);
        printf("%.4e %.4e\n", median, run.samples[0]);
        for (int j = 0; j < buffers; j++) {
            free(run.p[j]);
        }
    }
    pe_team_stop(&team);
    return 0;
}

#endif
