/* SysTick as a clock of 64 bits. QEMU with -icount shift=0 takes a nanosecond for each instruction,
 * so that ticks of a clock of CLOCK_MHZ, which link.py gives, count instructions: 1000 / CLOCK_MHZ
 * each. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

void clock_start(void);

/* The handler of its interrupt. */
void clock_wrapped(void);

uint64_t clock_ticks(void);

/* Converts ticks to instructions. */
static inline uint64_t clock_instructions(uint64_t ticks) { return ticks * 1000 / CLOCK_MHZ; }

#endif
