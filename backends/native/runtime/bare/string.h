/* The subset of string.h that the runtime and kernels use, for compilers without a C library. The
 * four functions on memory are those that every compiler asks of a freestanding program. */
#ifndef PE_BARE_STRING_H
#define PE_BARE_STRING_H

#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

/* -ffreestanding takes their meaning from the compiler; small copies are loads and stores again. */
#define memcpy __builtin_memcpy
#define memmove __builtin_memmove
#define memset __builtin_memset
#define memcmp __builtin_memcmp

static inline int strncmp(const char *a, const char *b, size_t most) {
    for (; most > 1 && *a && *a == *b; most--) {
        a++, b++;
    }
    return most ? (unsigned char)*a - (unsigned char)*b : 0;
}

static inline int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }

#endif
