/* A wrapper of OpenCL's library: calls are forwarded to the library at the path REAL.
 *
 * It counts operations, reports them at the end, and simulates a fault selected by a macro:
 * DEVICES of 0; MEMORY and MOST, bytes of a device and of a buffer; ITEMS of a group; TEXT that is
 * built instead of a program's; FAULT, the number of the call of clFinish that fails.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_NOT_FOUND = -1, EVENT_FAILED = -14, MOST_OF_BUFFER = 0x1010, MEMORY_BYTES = 0x101F };

static struct {
    int there, here, launches, waits, made, released;
} counts;

static void *real(const char *name) {
    static void *library;
    library = library ? library : dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "there %d, here %d, launches %d, waits %d, made %d, released %d\n",
            counts.there, counts.here, counts.launches, counts.waits, counts.made, counts.released);
}

/* A function that forwards its call and counts it. */
#define FORWARD(result, name, arguments, names, count)                                             \
    result name arguments;                                                                         \
    result name arguments {                                                                        \
        result(*other) arguments = (result(*) arguments)real(#name);                               \
        (void)(count);                                                                             \
        return other names;                                                                        \
    }

typedef const void *each;
typedef void *made;
typedef unsigned n;
typedef uint64_t bits;

FORWARD(int, clGetPlatformIDs, (n room, void **found, n *count), (room, found, count), 0)
FORWARD(made, clCreateContext, (each p, n count, each d, void *f, void *u, int *error),
        (p, count, d, f, u, error), counts.made++)
FORWARD(int, clReleaseContext, (void *c), (c), counts.released++)
FORWARD(made, clCreateCommandQueue, (void *c, void *d, bits p, int *error), (c, d, p, error),
        counts.made++)
FORWARD(int, clReleaseCommandQueue, (void *q), (q), counts.released++)
FORWARD(int, clBuildProgram, (void *p, n count, each d, const char *o, void *f, void *u),
        (p, count, d, o, f, u), 0)
FORWARD(int, clGetProgramBuildInfo, (void *p, void *d, n what, size_t room, void *to, size_t *size),
        (p, d, what, room, to, size), 0)
FORWARD(int, clReleaseProgram, (void *p), (p), counts.released++)
FORWARD(made, clCreateKernel, (void *p, const char *name, int *error), (p, name, error),
        counts.made++)
FORWARD(int, clSetKernelArg, (void *k, n at, size_t size, each value), (k, at, size, value), 0)
FORWARD(int, clReleaseKernel, (void *k), (k), counts.released++)
FORWARD(made, clCreateBuffer, (void *c, bits flags, size_t size, void *host, int *error),
        (c, flags, size, host, error), counts.made++)
FORWARD(int, clReleaseMemObject, (void *m), (m), counts.released++)
FORWARD(int, clEnqueueWriteBuffer,
        (void *q, void *m, n waits, size_t at, size_t size, each from, n count, each w, void *e),
        (q, m, waits, at, size, from, count, w, e), (counts.there++, counts.waits += waits != 0))
FORWARD(int, clEnqueueReadBuffer,
        (void *q, void *m, n waits, size_t at, size_t size, void *to, n count, each w, void *e),
        (q, m, waits, at, size, to, count, w, e), (counts.here++, counts.waits += waits != 0))
FORWARD(int, clEnqueueNDRangeKernel,
        (void *q, void *k, n d, each from, each items, each group, n count, each w, void *e),
        (q, k, d, from, items, group, count, w, e), counts.launches++)

int clGetDeviceIDs(void *platform, bits kinds, n room, void **found, n *count);
int clGetDeviceInfo(void *device, n what, size_t room, void *to, size_t *size);
int clGetKernelWorkGroupInfo(void *k, void *d, n what, size_t room, void *to, size_t *size);
void *clCreateProgramWithSource(void *c, n count, const char **texts, each sizes, int *error);
int clFinish(void *q);

int clGetDeviceIDs(void *platform, bits kinds, n room, void **found, n *count) {
#ifdef DEVICES
    return DEVICE_NOT_FOUND;
#endif
    int (*other)(void *, bits, n, void **, n *) = real("clGetDeviceIDs");
    return other(platform, kinds, room, found, count);
}

int clGetDeviceInfo(void *device, n what, size_t room, void *to, size_t *size) {
    int (*other)(void *, n, size_t, void *, size_t *) = real("clGetDeviceInfo");
    const int error = other(device, what, room, to, size);
#ifdef MEMORY
    const uint64_t bytes = what == MEMORY_BYTES ? MEMORY : MOST;
    if (what == MEMORY_BYTES || what == MOST_OF_BUFFER) {
        memcpy(to, &bytes, sizeof bytes);
    }
#endif
    return error;
}

int clGetKernelWorkGroupInfo(void *k, void *d, n what, size_t room, void *to, size_t *size) {
    int (*other)(void *, void *, n, size_t, void *, size_t *) = real("clGetKernelWorkGroupInfo");
    const int error = other(k, d, what, room, to, size);
#ifdef ITEMS
    *(size_t *)to = ITEMS;
#endif
    return error;
}

void *clCreateProgramWithSource(void *c, n count, const char **texts, each sizes, int *error) {
    void *(*other)(void *, n, const char **, each, int *) = real("clCreateProgramWithSource");
#ifdef TEXT
    const char *text = TEXT;
    texts = &text;
#endif
    counts.made++;
    return other(c, count, texts, sizes, error);
}

int clFinish(void *q) {
    int (*other)(void *) = real("clFinish");
    const int error = other(q);
    counts.waits++;
#ifdef FAULT
    return counts.waits == FAULT ? EVENT_FAILED : error;
#endif
    return error;
}
