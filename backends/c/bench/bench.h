/* Measurements of single kernels. run_benches, for alone.py and peaks.py: the median of samples of
 * at least PE_SAMPLE_SECONDS, a barrier after each call as in a step. run_races, for tune.py:
 * kernels that do the same work take turns, or run once each between marks that an emulator counts.
 */
#ifndef PE_BENCH_H
#define PE_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pe_memory.h"
#include "pe_pool.h"
#include "pe_vec.h"

#include "pe_math.h"

#define PE_SAMPLES 15
#define PE_SAMPLE_SECONDS 4e-4
#define PE_MOST_BUFFERS 32
#define PE_FEWEST_ROUNDS 15
#define PE_MOST_ROUNDS 201
#define PE_ROUNDS_SECONDS 0.02

/* As in pe_mark.h: no-ops between which the emulator's plugin counts instructions. */
#if defined(__aarch64__)
#define PE_MARK_BEGIN() __asm__ volatile("hint #100" ::: "memory")
#define PE_MARK_END() __asm__ volatile("hint #101" ::: "memory")
#elif defined(__hexagon__)
#define PE_MARK_BEGIN() __asm__ volatile("{ r28 = and(r28, r28) }" ::: "memory")
#define PE_MARK_END() __asm__ volatile("{ r28 = or(r28, r28) }" ::: "memory")
#endif

/* One call and its buffers. Kind 'f' is filled with floats, '0' with zeros, which are valid
 * indices. No float is zero, as a moment whose gradient is zero becomes subnormal, and slow. */
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

static inline size_t bench_aligned(size_t bytes) {
    return (bytes + PE_ALIGN) / PE_ALIGN * PE_ALIGN; /* at least a byte more */
}

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

/* Sorts the samples: the median is the result, the first sample that of a quiet machine. */
static inline double bench_median(pe_team *team, bench_run *run) {
    pe_team_run(team, bench_job, run);
    qsort(run->samples, PE_SAMPLES, sizeof *run->samples, bench_compare);
    return run->samples[PE_SAMPLES / 2];
}

/* Zeros, in huge pages if there are many, as an arena's: a product that strides through small ones
 * takes longer. malloc does not work on QEMU's Hexagon. */
static inline void *bench_pages(pe_mapping *mapping, size_t bytes) {
    void *data = pe_map(mapping, bytes);
    if (!data) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return data;
}

/* Allocates and fills the buffers of a bench, one after another. */
static inline void bench_fill(const bench *what, pe_mapping *mapping, void **p) {
    size_t total = 0;
    for (int j = 0; what->kinds[j]; j++) {
        total += bench_aligned(what->bytes[j]);
    }
    unsigned char *next = bench_pages(mapping, total);
    for (int j = 0; what->kinds[j]; j++) {
        float *data = (float *)(void *)next;
        for (size_t k = 0; what->kinds[j] == 'f' && k < what->bytes[j] / sizeof *data; k++) {
            data[k] = (float)(k * 7 % 31) / 16.0f - 0.96875f;
        }
        p[j] = data;
        next += bench_aligned(what->bytes[j]);
    }
}

static inline int run_benches(const bench *benches, int count, int threads) {
    static pe_team team;
    pe_team_start(&team, threads);
    for (int i = 0; i < count; i++) {
        bench_run run = {.what = &benches[i], .repeats = 1};
        pe_mapping memory;
        bench_fill(run.what, &memory, run.p);
        const double once = bench_median(&team, &run);
        run.repeats = 1 + (int)(PE_SAMPLE_SECONDS / once);
        const double median = bench_median(&team, &run);
        printf("%.4e %.4e\n", median, run.samples[0]);
        pe_unmap(&memory);
    }
    pe_team_stop(&team);
    return 0;
}

/* Kernels that do the same work on the same buffers take turns, a call each, so that disturbances
 * of the machine affect all of them equally, and all have the same pages. */
typedef struct bench_race {
    const bench *benches;
    int count;
    int rounds;
    bench most; /* the maximum size of each buffer */
    void *p[PE_MOST_BUFFERS];
    double *seconds; /* PE_MOST_ROUNDS of each bench */
    pe_mapping memory, figures;
} bench_race;

static inline void bench_race_job(pe_worker *w, void *argument) {
    bench_race *race = argument;
    for (int round = 0; round < race->rounds; round++) {
        for (int i = 0; i < race->count; i++) {
            const double start = bench_now();
            race->benches[i].call(w, race->p);
            pe_barrier(w);
            if (w->index == 0) {
                race->seconds[i * PE_MOST_ROUNDS + round] = bench_now() - start;
            }
        }
    }
}

static inline void bench_run_race(pe_team *team, bench_race *race) {
    race->rounds = 2; /* the first one warms up */
    pe_team_run(team, bench_race_job, race);
    double fastest = race->seconds[1];
    for (int i = 1; i < race->count; i++) {
        const double other = race->seconds[i * PE_MOST_ROUNDS + 1];
        fastest = other < fastest ? other : fastest;
    }
    const double rounds = PE_ROUNDS_SECONDS / (fastest + 1e-9);
    race->rounds = rounds < PE_FEWEST_ROUNDS ? PE_FEWEST_ROUNDS
                   : rounds > PE_MOST_ROUNDS ? PE_MOST_ROUNDS
                                             : (int)rounds;
    pe_team_run(team, bench_race_job, race);
    for (int i = 0; i < race->count; i++) {
        double *seconds = race->seconds + i * PE_MOST_ROUNDS;
        qsort(seconds, (size_t)race->rounds, sizeof *seconds, bench_compare);
        printf("%.4e %.4e\n", seconds[race->rounds / 2], seconds[0]);
    }
}

static inline void bench_mark_job(pe_worker *w, void *argument) {
    bench_race *race = argument;
#ifdef PE_MARK_BEGIN
    for (int i = 0; i < race->count; i++) {
        PE_MARK_BEGIN();
        race->benches[i].call(w, race->p);
        PE_MARK_END();
    }
#else
    (void)w, (void)race;
    fprintf(stderr, "no instructions are counted on this processor\n");
    exit(1);
#endif
}

static inline void bench_fill_race(bench_race *race) {
    race->most = race->benches[0];
    for (int i = 1; i < race->count; i++) {
        for (int j = 0; race->most.kinds[j]; j++) {
            const size_t wanted = race->benches[i].bytes[j];
            race->most.bytes[j] = wanted > race->most.bytes[j] ? wanted : race->most.bytes[j];
        }
    }
    bench_fill(&race->most, &race->memory, race->p);
    const size_t bytes = (size_t)race->count * PE_MOST_ROUNDS * sizeof *race->seconds;
    race->seconds = bench_pages(&race->figures, bytes);
}

/* Runs races of `sizes[0]`, `sizes[1]`, ... benches by `THREADS` (prints median and best seconds of
 * each bench), or by `1 count` each bench once between marks. */
static inline int run_races(const bench *benches, const int *sizes, int count, int argc,
                            char **argv) {
    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "count"))) {
        return 2;
    }
    static pe_team team;
    pe_team_start(&team, atoi(argv[1]));
    for (int i = 0; i < count; benches += sizes[i++]) {
        bench_race race = {.benches = benches, .count = sizes[i]};
        bench_fill_race(&race);
        if (argc == 2) {
            bench_run_race(&team, &race);
        } else {
            pe_team_run(&team, bench_mark_job, &race);
        }
        pe_unmap(&race.memory);
        pe_unmap(&race.figures);
    }
    pe_team_stop(&team);
    return 0;
}

#endif
