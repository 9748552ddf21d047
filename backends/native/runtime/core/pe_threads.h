/* What the team needs of a system: threads, and sleeping until another thread changes a number. */
#ifndef PE_THREADS_H
#define PE_THREADS_H

#include <stdatomic.h>
#include <stddef.h>

/* WebAssembly has threads if the module is compiled with atomics. */
#if !__STDC_HOSTED__ || (defined(__wasi__) && !defined(__wasm_atomics__))
#ifndef PE_NO_THREADS
#define PE_NO_THREADS
#endif
#endif

#ifndef PE_NO_THREADS

/* As pthread's start routine; returns NULL. */
typedef void *pe_thread_main(void *argument);

#define PE_STACK_BYTES ((size_t)1 << 20)

#ifdef __wasi__
/* The thread reads it: it must not move before pe_thread_join. */
typedef struct pe_thread {
    char *stack;  /* one past its end: it grows downwards */
    char *locals; /* thread-local variables, and below the stack: all of the thread's memory */
    atomic_int ended;
    pe_thread_main *main;
    void *argument;
} pe_thread;
#else
#include <pthread.h>
typedef pthread_t pe_thread;
#endif

/* Starts main(argument) on a stack of PE_STACK_BYTES. Returns 0 or an errno value. */
int pe_thread_start(pe_thread *thread, pe_thread_main *main, void *argument);

void pe_thread_join(pe_thread *thread);

/* Sleeps while *value is `old`, until pe_wake_all(value); may return early. */
void pe_sleep_while(atomic_int *value, int old);

void pe_wake_all(atomic_int *value);

/* Gives the core to another thread that is ready. */
void pe_thread_yield(void);

/* Cores that this process may use. */
long pe_usable_cpus(void);

#endif
#endif
