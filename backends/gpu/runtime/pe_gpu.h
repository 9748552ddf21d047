/* A program for a GPU as tables: its compiled kernels, and for each entry the launches in order.
 *
 * Kernels take pointers and nothing else, so launches are constant: a step is captured once and
 * replayed. The device's memory is one allocation, in which the params, the frozen ones, numbers
 * that the program holds itself, and the arena follow one another.
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

/* Where a memory begins in the allocation: what every driver gives an allocation too. */
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

/* Code of one architecture, "sm_87", by a compiler of a version as drivers count them: 12060. */
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
} pe_gpu_code;

#endif
