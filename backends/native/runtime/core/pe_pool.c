/* The thread pool: a barrier with a phase counter, on which threads spin for a bounded time and
 * then sleep.
 *
 * A step passes hundreds of barriers a few microseconds apart, so spinning is the common case; the
 * bound keeps a preempted thread from burning the cores of the others.
 */
#include "pe_pool.h"

#ifdef PE_NO_THREADS

int pe_team_start(pe_team *team, int count) {
    (void)count;
    team->count = 1;
    team->workers[0] = (pe_worker){.index = 0, .count = 1, .team = team};
    return 0;
}

void pe_team_run(pe_team *team, pe_job *job, void *argument) { job(&team->workers[0], argument); }

void pe_team_stop(pe_team *team) { (void)team; }

void pe_barrier_wait(pe_team *team) { (void)team; }

#else

/* About 100 us on current CPUs: longer than the imbalance between threads in one kernel, much
 * shorter than a scheduler's time slice. */
#ifndef PE_SPINS
#define PE_SPINS 4000
#endif
#define PE_YIELDS 8

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

/* Returns when the signal's value is no longer `old`. */
static void wait_change(const pe_team *team, pe_signal *signal, int old) {
    for (int i = 0; i < team->spins; i++) {
        if (atomic_load_explicit(&signal->value, memory_order_acquire) != old) {
            return;
        }
        relax();
    }
    for (int i = 0; i < PE_YIELDS; i++) {
        if (atomic_load_explicit(&signal->value, memory_order_acquire) != old) {
            return;
        }
        pe_thread_yield();
    }
    atomic_fetch_add(&signal->sleepers, 1);
    while (atomic_load(&signal->value) == old) {
        pe_sleep_while(&signal->value, old);
    }
    atomic_fetch_sub(&signal->sleepers, 1);
}

/* Sequential consistency on both sides: either the sleeper sees the new value, or this thread sees
 * the sleeper. Unsigned arithmetic, since the counter wraps. */
static void advance(pe_signal *signal) {
    const unsigned next = (unsigned)atomic_load_explicit(&signal->value, memory_order_relaxed) + 1U;
    atomic_store(&signal->value, (int)next);
    if (atomic_load(&signal->sleepers) > 0) {
        pe_wake_all(&signal->value);
    }
}

void pe_barrier_wait(pe_team *team) {
    const int phase = atomic_load_explicit(&team->barrier.value, memory_order_relaxed);
    const int before = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    if (before == team->count - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        advance(&team->barrier);
    } else {
        wait_change(team, &team->barrier, phase);
    }
}

static void *thread_main(void *argument) {
    pe_worker *w = argument;
    pe_team *team = w->team;
    for (int seen = 0;; seen = (int)((unsigned)seen + 1U)) {
        wait_change(team, &team->start, seen);
        if (!team->job) {
            return NULL;
        }
        team->job(w, team->argument);
        pe_barrier(w);
    }
}

int pe_team_start(pe_team *team, int count) {
    count = count < 1 ? 1 : count > PE_MAX_THREADS ? PE_MAX_THREADS : count;
    atomic_init(&team->arrived, 0);
    atomic_init(&team->barrier.value, 0);
    atomic_init(&team->barrier.sleepers, 0);
    atomic_init(&team->start.value, 0);
    atomic_init(&team->start.sleepers, 0);
    team->spins = count > pe_usable_cpus() ? 0 : PE_SPINS;
    team->job = NULL;
    for (int i = 0; i < count; i++) {
        team->workers[i] = (pe_worker){.index = i, .count = count, .team = team};
    }
    team->count = 1;
    for (int i = 1; i < count; i++) {
        const int error = pe_thread_start(&team->threads[i], thread_main, &team->workers[i]);
        if (error) {
            pe_team_stop(team);
            return error;
        }
        team->count = i + 1;
    }
    return 0;
}

void pe_team_run(pe_team *team, pe_job *job, void *argument) {
    team->job = job;
    team->argument = argument;
    if (team->count > 1) {
        advance(&team->start);
    }
    job(&team->workers[0], argument);
    pe_barrier(&team->workers[0]); /* all threads have left the job on return */
}

void pe_team_stop(pe_team *team) {
    team->job = NULL;
    if (team->count > 1) {
        advance(&team->start);
    }
    for (int i = 1; i < team->count; i++) {
        pe_thread_join(&team->threads[i]);
    }
    team->count = 1;
}

#endif
