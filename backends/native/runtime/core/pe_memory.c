#include "pe_memory.h"

#if defined(__wasi__) /* one linear memory, without pages */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

unsigned char *pe_map(pe_mapping *mapping, size_t bytes) {
    const size_t whole = (bytes / PE_ALIGN + 1) * PE_ALIGN;
    unsigned char *place = whole <= bytes ? NULL : aligned_alloc(PE_ALIGN, whole);
    *mapping = place ? (pe_mapping){place, whole} : (pe_mapping){NULL, 0};
    if (place) {
        memset(place, 0, whole);
    } else {
        errno = ENOMEM;
    }
    return place;
}

const unsigned char *pe_map_file(pe_mapping *mapping, int file, uint64_t offset, size_t bytes) {
    (void)mapping, (void)file, (void)offset, (void)bytes;
    errno = ENOSYS; /* files are read instead */
    return NULL;
}

bool pe_map_writable(const pe_mapping *mapping) { return (void)mapping, true; }

void pe_unmap(pe_mapping *mapping) {
    free(mapping->address);
    *mapping = (pe_mapping){NULL, 0};
}

int pe_map_error(void) { return errno; }

#elif __STDC_HOSTED__

#include <errno.h>
#include <sys/mman.h>

/* Memory of this size or more starts at a multiple of it and is offered huge pages. */
#define PE_HUGE_PAGE ((size_t)2 << 20)

/* Largest size whose mapping, with its alignment, a size_t can count. */
#define PE_LARGEST (SIZE_MAX / 2 - PE_HUGE_PAGE)

/* Sets the mapping; returns its address, or NULL. */
static unsigned char *take(pe_mapping *mapping, void *address, size_t bytes) {
    const bool failed = address == MAP_FAILED;
    *mapping = failed ? (pe_mapping){NULL, 0} : (pe_mapping){address, bytes};
    return mapping->address;
}

unsigned char *pe_map(pe_mapping *mapping, size_t bytes) {
    const size_t alignment = bytes < PE_HUGE_PAGE ? PE_ALIGN : PE_HUGE_PAGE;
    if (bytes > PE_LARGEST) {
        errno = ENOMEM;
        return take(mapping, MAP_FAILED, 0);
    }
    const size_t whole = bytes + alignment;
    unsigned char *place =
        take(mapping, mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
             whole);
    if (place) {
        place += (alignment - (uintptr_t)place % alignment) % alignment;
#ifdef MADV_HUGEPAGE
        if (alignment == PE_HUGE_PAGE) {
            (void)madvise(place, bytes, MADV_HUGEPAGE);
        }
#endif
    }
    return place;
}

const unsigned char *pe_map_file(pe_mapping *mapping, int file, uint64_t offset, size_t bytes) {
    if (offset > PE_LARGEST || bytes > PE_LARGEST - offset) {
        errno = ENOMEM;
        return take(mapping, MAP_FAILED, 0);
    }
    const size_t whole = (size_t)offset + bytes; /* from the start of a page */
    const unsigned char *begin =
        take(mapping, mmap(NULL, whole, PROT_READ, MAP_PRIVATE, file, 0), whole);
    return begin ? begin + offset : NULL;
}

bool pe_map_writable(const pe_mapping *mapping) {
    return mprotect(mapping->address, mapping->bytes, PROT_READ | PROT_WRITE) == 0;
}

void pe_unmap(pe_mapping *mapping) {
    if (mapping->address) {
        munmap(mapping->address, mapping->bytes);
    }
    *mapping = (pe_mapping){NULL, 0};
}

int pe_map_error(void) { return errno; }

#else

unsigned char *pe_map(pe_mapping *mapping, size_t bytes) {
    (void)mapping, (void)bytes;
    return NULL;
}

const unsigned char *pe_map_file(pe_mapping *mapping, int file, uint64_t offset, size_t bytes) {
    (void)mapping, (void)file, (void)offset, (void)bytes;
    return NULL;
}

bool pe_map_writable(const pe_mapping *mapping) {
    (void)mapping;
    return false;
}

void pe_unmap(pe_mapping *mapping) { (void)mapping; }

int pe_map_error(void) { return 0; }

#endif
