/* One kernel of a test: its launches, and the bytes of each pointer. */
#ifndef SANITIZED_H
#define SANITIZED_H

/* Barriers are numbered, so that one can be skipped. */
void counted_barrier(int number);
#define pe_barrier() counted_barrier(__COUNTER__)

#include "pe_gpu_cpu.h"

enum { SANITIZED_POINTERS = 20 };

typedef struct sanitized_case {
    const char *name;
    const pe_gpu_launch *launches;
    int launch_count, pointers;
    size_t bytes[SANITIZED_POINTERS];
} sanitized_case;

extern const sanitized_case sanitized_cases[];
extern const int sanitized_count;

#endif
