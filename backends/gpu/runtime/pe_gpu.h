/* A program for a GPU as tables: its kernels, and for each entry the launches in order; and what a
 * session does by whatever driver.
 *
 * Kernels take places in the device's memories and nothing else, so launches are constant: a step
 * is set up once and repeated. The memories hold the params, the frozen ones, numbers that the
 * program has itself, and the arena, at the offsets that they have here.
 */
#ifndef PE_GPU_H
#define PE_GPU_H

#include "pe.h"

/* The memories that a pointer may point into. */
typedef enum pe_gpu_memory {
    PE_GPU_PARAMS,
    PE_GPU_FROZEN,
    PE_GPU_NUMBERS,
    PE_GPU_ARENA,
    PE_GPU_MEMORIES
} pe_gpu_memory;

/* Where a memory begins in an allocation of several: what every driver gives one too. */
#define PE_GPU_ALIGN 256

/* Most pointers that a kernel takes. */
#define PE_GPU_POINTERS 64

typedef struct pe_gpu_place {
    pe_gpu_memory memory;
    size_t offset;
} pe_gpu_place;

/* So many groups of so many items of one function, on the places from `first` on. */
typedef struct pe_gpu_launch {
    const char *function;
    int groups, items;
    int first, count;
} pe_gpu_launch;

/* The launches of an entry; `writes` says whether any of them writes a param. */
typedef struct pe_gpu_step {
    int first, count;
    bool writes;
} pe_gpu_step;

/* Code of one architecture, "sm_87", by a compiler of a version as drivers count them: 12060. Text
 * that a driver builds, which ends with a 0, is of no architecture, "", and of no compiler, 0. */
typedef struct pe_gpu_image {
    const char *architecture;
    int compiler;
    const unsigned char *code;
} pe_gpu_image;

typedef struct pe_gpu_code {
    const pe_gpu_image *image;
    const unsigned char *numbers;
    size_t numbers_bytes;
    const pe_gpu_place *places;
    const pe_gpu_launch *launches;
    const pe_gpu_step *steps; /* one for each entry */
    int launch_count;
    void (*timed)(int launch, long long ns); /* called for each launch; NULL if none is timed */
} pe_gpu_code;

/* A driver's functions for a session. Copies and steps are put in order onto a queue, and done once
 * `wait` returns; host memory is left alone until then. */
typedef struct pe_gpu_queue {
    pe_status (*copy_there)(pe_session *session, pe_gpu_memory memory, size_t offset,
                            const void *from, size_t bytes);
    pe_status (*copy_here)(pe_session *session, pe_gpu_memory memory, size_t offset, void *to,
                           size_t bytes);
    pe_status (*launch)(pe_session *session, int step);
    pe_status (*wait)(pe_session *session);
} pe_gpu_queue;

/* The code that a session's program runs. */
const pe_gpu_code *pe_gpu_code_of(const pe_session *session);

/* Steps are those of the entries, and where launches are timed each launch alone. */
int pe_gpu_step_count(const pe_session *session);
pe_gpu_step pe_gpu_step_of(const pe_session *session, int number);

/* Bytes of a memory. */
size_t pe_gpu_bytes(const pe_session *session, pe_gpu_memory memory);

/* Copies the program's numbers there, and waits. */
pe_status pe_gpu_prepare(pe_session *session, const pe_gpu_queue *queue);

/* Copies there what was written here since and the inputs, runs an entry, copies its outputs back,
 * and waits: once, and in an error too. */
pe_status pe_gpu_run(pe_session *session, const pe_entry *entry, const pe_gpu_queue *queue);

/* Copies the params back, and waits. */
pe_status pe_gpu_fetch(pe_session *session, const pe_gpu_queue *queue);

/* Fails for too little memory: says what was planned, what the device `has`, in words, and what
 * fits, for there is `room` for an arena. */
pe_status pe_gpu_fail_memory(pe_session *session, const char *has, size_t room);

#endif
