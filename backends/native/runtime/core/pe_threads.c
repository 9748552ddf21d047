/* Threads of POSIX. They sleep by a futex on Linux, by a condition variable elsewhere. */
#include "pe_threads.h"

#if !defined(PE_NO_THREADS) && !defined(__wasi__)

#include <limits.h>
#include <sched.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>

void pe_sleep_while(atomic_int *value, int old) {
    syscall(SYS_futex, value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

void pe_wake_all(atomic_int *value) {
    syscall(SYS_futex, value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void pe_sleep_while(atomic_int *value, int old) {
    pthread_mutex_lock(&lock);
    while (atomic_load(value) == old) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void pe_wake_all(atomic_int *value) {
    (void)value;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

#endif

int pe_thread_start(pe_thread *thread, pe_thread_main *main, void *argument) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) {
        return error;
    }
    pthread_attr_setstacksize(&attributes, PE_STACK_BYTES); /* musl's default is 128 KiB */
    error = pthread_create(thread, &attributes, main, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

void pe_thread_join(pe_thread *thread) { pthread_join(*thread, NULL); }

void pe_thread_yield(void) { sched_yield(); }

long pe_usable_cpus(void) {
#if defined(__linux__) && defined(CPU_COUNT)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
#endif
    return sysconf(_SC_NPROCESSORS_ONLN);
}

#endif
