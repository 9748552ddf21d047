/* The dialect of GPU kernels on a CPU: a checker, not built for speed.
 *
 * An item is a fiber. The groups of a launch run one after another in one thread; items run in a
 * selectable order, each up to its next barrier. Undefined behavior of a GPU is found: a barrier
 * that only some items of a group reach, or a warp's product without some of its items (the process
 * aborts with the name of the kernel), a read of uninitialized local memory (NaN), a write past its
 * end (aborts), a missing barrier (results depend on the order). A sanitizer finds more
 * (pe_gpu_watch.h).
 */
#ifndef PE_GPU_CPU_H
#define PE_GPU_CPU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int64_t pe_i64;
typedef uint64_t pe_u64;
typedef uint32_t pe_u32;
typedef uint16_t pe_u16;
typedef uint8_t pe_u8;
typedef int8_t pe_i8;
typedef _Float16 pe_half;

#define PE_KERNEL static
#define PE_FUNCTION static inline __attribute__((unused))
#define PE_READ(type, name) const type *name
#define PE_WRITE(type, name) type *name
#define PE_SHARED(type, name, count) type *const name = pe_gpu_shared(sizeof(type) * (count))
#define PE_LOCAL
#define PE_GLOBAL
#define PE_PRIVATE
#define PE_TABLE static const
#define PE_UNROLL
#define PE_MATH(name) name##f
#define PE_NAN NAN
#define PE_INFINITY INFINITY

/* An item's fragment of a tile of 16 x 16 bf16 numbers. */
typedef struct pe_fragment {
    _Alignas(16) pe_u32 part[4];
} pe_fragment;

#define pe_load_half(p, i) ((float)(p)[i])
#define pe_store_half(p, i, v) ((p)[i] = (_Float16)(v))
#define pe_rounded_half(v) ((float)(_Float16)(v))

PE_FUNCTION pe_u32 pe_bits(float x) {
    pe_u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

PE_FUNCTION float pe_from_bits(pe_u32 bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One launch: the function's name for messages, a caller that unpacks its pointers. */
typedef struct pe_gpu_launch {
    const char *name;
    void (*call)(void *const *pointers);
    int groups, items;
} pe_gpu_launch;

/* Runs a launch to its end; threads take turns, as with one queue of a device. */
void pe_gpu_run(const pe_gpu_launch *launch, void *const *pointers);

/* Items and groups run forward (0), backward (1), or shuffled by any other number. */
__attribute__((visibility("default"))) void pe_gpu_set_order(unsigned order);

/* Functions that kernels call. */
int pe_item(void);
int pe_group(void);
void pe_gpu_wait(int line);
void *pe_gpu_shared(size_t bytes);
#ifndef pe_barrier /* counted by a test */
#define pe_barrier() pe_gpu_wait(__LINE__)
#endif

#include "pe_gpu_common.h"

PE_FUNCTION pe_u32 pe_pair_bf16(float low, float high) {
    return pe_to_bf16(low) | (pe_u32)pe_to_bf16(high) << 16;
}

/* All items of a warp call it: sums (16 x 8) += a (16 x 16) times b (16 x 8), with the
 * fragments of PTX's mma.m16n8k16. Products and their sum are exact and rounded once. */
void pe_gpu_multiply(float *sums, const pe_u32 *a, const pe_u32 *b, int line);
#define pe_mma_bf16(sums, a, b) pe_gpu_multiply(sums, a, b, __LINE__)

#endif
