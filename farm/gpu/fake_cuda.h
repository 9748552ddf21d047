/* A libcuda.so.1 for tests, without a GPU: it reads real cubins and runs the same kernels
 * compiled with the CPU's prelude. It rejects what a driver rejects, for the calls that pe_cuda.c
 * makes, and is stricter about order: nothing on a stream happens before it is synchronized, and
 * at other times accesses to device memory fault.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHOWN __attribute__((visibility("default")))

/* Errors by CUDA's numbers. */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

enum { NAME_BYTES = 128, POINTERS = 64 };

/* The prelude's own: pe_gpu_cpu.h. */
typedef struct twin {
    const char *name;
    void (*call)(void *const *pointers);
    int groups, items;
} twin;

/* A kernel of a cubin: its properties, and the CPU twin that runs in its place. */
typedef struct function {
    char name[NAME_BYTES];
    int pointers, most_items;
    bool only_pointers;
    const twin *twin;
    void (*run)(const twin *twin, void *const *pointers);
} function;

typedef struct module {
    int count;
    function functions[];
} module;

/* State of the machine, set by tests. `fault` is the error of the next synchronization. */
typedef struct settings {
    int sm, version, devices, fault;
    uint64_t memory;
} settings;

/* Counts of operations, for tests. */
typedef struct counts {
    int captures, launches_in_captures, graph_launches, launches, bytes_there, bytes_here, live;
} counts;

extern settings fake_settings;
extern counts fake_counts;

/* Reads a cubin of an architecture; the kernels have their twins. An error, or OK. */
int fake_read_cubin(const unsigned char *image, int sm, module **made);

/* The twin of this name in the loaded libraries, and its runner. */
bool fake_find_twin(function *f);

/* Whether these bytes are device memory. */
bool fake_is_there(uint64_t address, size_t bytes);

/* Makes the device's memory accessible, or inaccessible again. */
void fake_open_memory(bool open);

/* Whether a call can be made now: after cuInit, in a context, and outside a capture. */
int fake_ready(void);
bool fake_capturing(void);

#endif
