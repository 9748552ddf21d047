/* A team of threads that run one job together (SPMD). Thread 0 is the caller; the others sleep
 * between jobs. Nothing here allocates; with PE_NO_THREADS the team is its caller alone.
 */
#ifndef PE_POOL_H
#define PE_POOL_H

#include <stdatomic.h>

#include "pe_threads.h"
#include "pe_worker.h"

typedef void pe_job(pe_worker *w, void *argument);

/* A counter that threads wait on; alone in its cache line, because they spin on it. */
typedef struct pe_signal {
    _Alignas(PE_ALIGN) atomic_int value;
    atomic_int sleepers;
} pe_signal;

typedef struct pe_team {
    _Alignas(PE_ALIGN) atomic_int arrived; /* threads that reached the current barrier */
    pe_signal barrier;                     /* counts barriers passed */
    pe_signal start;                       /* counts jobs given out */
    pe_job *job;                           /* NULL: the threads end */
    void *argument;
    int count;
    int spins; /* how often a waiting thread looks before it yields: 0 when oversubscribed */
    pe_worker workers[PE_MAX_THREADS];
#ifndef PE_NO_THREADS
    pe_thread threads[PE_MAX_THREADS];
#endif
} pe_team;

/* Starts count - 1 threads, at most PE_MAX_THREADS - 1. Returns 0, or an errno value with no thread
 * left running. */
int pe_team_start(pe_team *team, int count);

/* Runs job(worker, argument) on every thread and returns when all have ended. */
void pe_team_run(pe_team *team, pe_job *job, void *argument);

/* Ends and joins the threads. */
void pe_team_stop(pe_team *team);

#endif
