/* Constants that programs and their callers share. */
#ifndef PE_LIMITS_H
#define PE_LIMITS_H

/* 64 bytes: a cache line on every supported CPU; partial sums of different threads are kept apart
 * by it, and vectors of every supported width are aligned to it. */
#define PE_ALIGN 64

/* Upper limit of a worker's `count`; the generator sizes per-thread scratch by it. */
#ifndef PE_MAX_THREADS
#define PE_MAX_THREADS 64
#endif

/* Threads that a caller may ask for; a larger number is no count of threads. */
#define PE_MOST_THREADS 4096

#endif
