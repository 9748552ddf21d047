/* The worker: a kernel's view of the thread that runs it.
 *
 * A step is SPMD: every thread of the team runs the whole step, each kernel takes its own share of
 * the work by `index` and `count`, and the step puts `pe_barrier` after each kernel. A kernel with
 * phases of its own calls `pe_barrier` between them; all threads must pass the same barriers.
 */
#ifndef PE_WORKER_H
#define PE_WORKER_H

#include <stddef.h>
#include <stdint.h>

#include "pe_limits.h"

struct pe_team;

typedef struct pe_worker {
    int index; /* this thread, 0 .. count - 1; thread 0 is the caller of pe_train_step */
    int count; /* threads in the team */
    struct pe_team *team;
} pe_worker;

/* Waits for all threads of the team: spins a bounded time, then sleeps. */
void pe_barrier_wait(struct pe_team *team);

static inline void pe_barrier(pe_worker *w) {
    if (w->count > 1) {
        pe_barrier_wait(w->team);
    }
}

/* Between these two calls, results below 2^-126 are zero on x86. A moment whose gradients are zero
 * decays to such numbers and stays there, and an Intel core takes 150 cycles for each vector of
 * them; no other processor here is slow. Operands are read as they are: f16 is decoded by
 * subnormals. */
static inline unsigned pe_flush_begin(void) {
#if defined(__SSE__)
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8000U);
    return before;
#else
    return 0;
#endif
}

static inline void pe_flush_end(unsigned before) {
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(before);
#else
    (void)before;
#endif
}

/* A number of a kernel that many shapes share: a size, an offset, a constant; or a table. */
typedef union pe_number {
    int32_t i;
    float f;
    const int32_t *t;
} pe_number;

/* Half-open interval of work. */
typedef struct pe_range {
    ptrdiff_t begin, end;
} pe_range;

/* This thread's contiguous share of `total` items; every border but the last is a multiple of
 * `grain`. The split depends on `count` alone, so that results are the same in every run of as many
 * threads. */
static inline pe_range pe_split(const pe_worker *w, ptrdiff_t total, ptrdiff_t grain) {
    const ptrdiff_t blocks = (total + grain - 1) / grain;
    const ptrdiff_t begin = blocks * w->index / w->count * grain;
    const ptrdiff_t end = blocks * (w->index + 1) / w->count * grain;
    return (pe_range){begin < total ? begin : total, end < total ? end : total};
}

#endif
