/* Constants that programs and their callers share, and requirements on the compiler. */
#ifndef PE_LIMITS_H
#define PE_LIMITS_H

#if !defined(__GNUC__) && !defined(__clang__)
#error "PockEngine's C needs GCC, Clang or a compiler with their attributes; MSVC's cl has none"
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "PockEngine's programs and files have numbers in little-endian order; this target has not"
#endif

/* 64 bytes: a cache line on every supported CPU; partial sums of different threads are kept apart
 * by it, and vectors of every supported width are aligned to it. */
#define PE_ALIGN 64

/* Upper limit of a worker's `count`; the generator sizes per-thread scratch by it. */
#ifndef PE_MAX_THREADS
#define PE_MAX_THREADS 64
#endif

/* Threads that a caller may ask for; a larger number is an error. */
#define PE_MOST_THREADS 4096

#endif
