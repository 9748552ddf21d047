/* A GPU program as tables: its kernels, and for each entry the launches in order. Declares the part
 * of a session that all drivers share.
 *
 * A kernel's only arguments are addresses in the device's memories, so launches are constant: a
 * step is set up once and replayed. The memories hold params, frozen params, the program's own
 * constants, and the arena, at the same offsets as on the host.
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

/* Alignment of a memory within a shared allocation, in bytes; every driver aligns allocations to
 * it. */
#define PE_GPU_ALIGN 256

/* Maximum number of pointer arguments of a kernel. */
#define PE_GPU_POINTERS 64

typedef struct pe_gpu_place {
    pe_gpu_memory memory;
    size_t offset;
} pe_gpu_place;

/* A launch of `function`: `groups` work groups of `items` work items each. Its arguments are the
 * `count` places from index `first` on. */
typedef struct pe_gpu_launch {
    const char *function;
    int groups, items;
    int first, count;
} pe_gpu_launch;

/* The launches of an entry: `count` from index `first` on. `writes`: any of them writes a param. */
typedef struct pe_gpu_step {
    int first, count;
    bool writes;
} pe_gpu_step;

/* Compiled code: its architecture ("sm_87") and its compiler's version as drivers count them (12060
 * is CUDA 12.6). Source text that the driver builds is NUL-terminated, with architecture "" and
 * compiler 0. */
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

/* A driver's functions for a session. Copies and steps are enqueued in order and complete once
 * `wait` returns; the caller does not touch the host memory until then. copy_there copies to the
 * device, copy_here to the host. */
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

/* Steps: one for each entry, then, if launches are timed, one for each launch. */
int pe_gpu_step_count(const pe_session *session);
pe_gpu_step pe_gpu_step_of(const pe_session *session, int number);

/* Size of a memory in bytes. */
size_t pe_gpu_bytes(const pe_session *session, pe_gpu_memory memory);

/* Copies the program's constants to the device, and waits. */
pe_status pe_gpu_prepare(pe_session *session, const pe_gpu_queue *queue);

/* Copies the inputs and the params changed on the host to the device, runs an entry, copies its
 * outputs back, and waits once, also after an error. */
pe_status pe_gpu_run(pe_session *session, const pe_entry *entry, const pe_gpu_queue *queue);

/* Copies the params to the host, and waits. */
pe_status pe_gpu_fetch(pe_session *session, const pe_gpu_queue *queue);

/* Fails with a message about too little memory: the planned sizes, what the device `has` (as text),
 * and the `room` for an arena in bytes. */
pe_status pe_gpu_fail_memory(pe_session *session, const char *has, size_t room);

#endif
