/* The machine: its driver, its GPU, contexts, modules and memory. */
#define _GNU_SOURCE
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_ALLOCATIONS = 64, DEPTH = 16, PAGE = 4096, ALIGN = 256, TOTAL_MEMORY_MB = 4096 };

typedef struct allocation {
    unsigned char *pages;
    size_t page_bytes;
    uint64_t begin;
    size_t bytes;
} allocation;

#ifndef FAKE_SM
#define FAKE_SM 87
#endif

settings fake_settings = {FAKE_SM, 12060, 1, OK, (uint64_t)TOTAL_MEMORY_MB << 20};
counts fake_counts;

static allocation allocations[MOST_ALLOCATIONS];
static bool initialized;
static int context; /* its address is the only one */
static int retained;
static _Thread_local int depth;

SHOWN void fake_cuda_set(settings now);
SHOWN counts fake_cuda_counts(void);

void fake_cuda_set(settings now) {
    fake_settings = now;
    fake_counts = (counts){.live = fake_counts.live};
}

counts fake_cuda_counts(void) { return fake_counts; }

int fake_ready(void) {
    return !initialized          ? NOT_INITIALIZED
           : !depth || !retained ? INVALID_CONTEXT
           : fake_capturing()    ? CAPTURE_UNSUPPORTED
                                 : OK;
}

SHOWN int cuInit(unsigned flags) {
    initialized = fake_settings.devices > 0;
    return flags ? INVALID_VALUE : initialized ? OK : NO_DEVICE;
}

SHOWN int cuDriverGetVersion(int *version) {
    *version = fake_settings.version;
    return OK;
}

SHOWN int cuGetErrorName(int error, const char **name) {
    *name = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                     : "CUDA_ERROR_OF_A_FAKE";
    return OK;
}

SHOWN int cuGetErrorString(int error, const char **text) {
    *text = error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : error == NO_DEVICE     ? "no CUDA-capable device is detected"
                                     : "the fake driver refuses";
    return OK;
}

SHOWN int cuDeviceGetCount(int *count) {
    *count = fake_settings.devices;
    return initialized ? OK : NOT_INITIALIZED;
}

SHOWN int cuDeviceGet(int *device, int number) {
    *device = 0;
    return number < fake_settings.devices ? OK : INVALID_VALUE;
}

SHOWN int cuDeviceGetName(char *name, int bytes, int device) {
    snprintf(name, (size_t)bytes, "an emulated sm_%d", fake_settings.sm);
    return device ? INVALID_VALUE : OK;
}

SHOWN int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? fake_settings.sm / 10 : fake_settings.sm % 10;
    return device || (attribute != 75 && attribute != 76) ? INVALID_VALUE : OK;
}

SHOWN int cuDevicePrimaryCtxRetain(void **made, int device) {
    *made = &context;
    retained++;
    fake_counts.live++;
    return device ? INVALID_VALUE : OK;
}

SHOWN int cuDevicePrimaryCtxRelease_v2(int device) {
    fake_counts.live--;
    return device || retained-- < 1 ? INVALID_CONTEXT : OK;
}

SHOWN int cuCtxPushCurrent_v2(void *pushed) {
    if (pushed != &context || depth == DEPTH) {
        return INVALID_CONTEXT;
    }
    depth++;
    return OK;
}

SHOWN int cuCtxPopCurrent_v2(void **popped) {
    if (!depth) {
        return INVALID_CONTEXT;
    }
    *popped = &context;
    depth--;
    return OK;
}

SHOWN int cuModuleLoadData(void **made, const void *image) {
    module *m = NULL;
    const int error = fake_ready() ? fake_ready() : fake_read_cubin(image, fake_settings.sm, &m);
    fake_counts.live += error == OK;
    *made = m;
    return error;
}

SHOWN int cuModuleUnload(void *made) {
    fake_counts.live--;
    free(made);
    return fake_ready();
}

SHOWN int cuModuleGetFunction(void **found, void *loaded, const char *name) {
    module *m = loaded;
    for (int i = 0; i < m->count; i++) {
        if (strcmp(m->functions[i].name, name) == 0) {
            *found = &m->functions[i];
            return fake_ready();
        }
    }
    return NOT_FOUND;
}

SHOWN int cuFuncGetAttribute(int *value, int attribute, void *found) {
    *value = ((const function *)found)->most_items;
    return attribute ? INVALID_VALUE : fake_ready();
}

static uint64_t taken(void) {
    uint64_t bytes = 0;
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        bytes += allocations[i].bytes;
    }
    return bytes;
}

SHOWN int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = fake_settings.memory;
    *free_bytes = fake_settings.memory - taken();
    return fake_ready();
}

/* An inaccessible page follows the allocation, which is filled with NaN. */
SHOWN int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    allocation *free_one = NULL;
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        free_one = allocations[i].bytes ? free_one : &allocations[i];
    }
    if (fake_ready() || !free_one || !bytes) {
        return fake_ready() ? fake_ready() : INVALID_VALUE;
    }
    if (bytes > fake_settings.memory - taken()) {
        return OUT_OF_MEMORY;
    }
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    unsigned char *pages = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        return OUT_OF_MEMORY;
    }
    memset(pages, 0xFF, whole);
    mprotect(pages, whole + PAGE, PROT_NONE);
    const uint64_t begin = (uintptr_t)(pages + whole - (bytes + ALIGN - 1) / ALIGN * ALIGN);
    *free_one = (allocation){pages, whole, begin, bytes};
    *address = begin;
    fake_counts.live++;
    return OK;
}

SHOWN int cuMemFree_v2(uint64_t address) {
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        if (allocations[i].bytes && allocations[i].begin == address) {
            munmap(allocations[i].pages, allocations[i].page_bytes + PAGE);
            allocations[i] = (allocation){0};
            fake_counts.live--;
            return fake_ready();
        }
    }
    return INVALID_VALUE;
}

bool fake_is_there(uint64_t address, size_t bytes) {
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        const allocation *a = &allocations[i];
        if (a->bytes && address >= a->begin && address + bytes <= a->begin + a->bytes) {
            return true;
        }
    }
    return false;
}

void fake_open_memory(bool open) {
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        if (allocations[i].bytes) {
            mprotect(allocations[i].pages, allocations[i].page_bytes,
                     open ? PROT_READ | PROT_WRITE : PROT_NONE);
        }
    }
}
