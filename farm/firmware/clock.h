/* SysTick as a 64-bit clock. With -icount shift=0, QEMU takes one nanosecond per instruction, so
 * a tick of a clock of CLOCK_MHZ, which link.py defines, is 1000 / CLOCK_MHZ instructions. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

void clock_start(void);

/* Handler of the SysTick interrupt. */
void clock_wrapped(void);

uint64_t clock_ticks(void);

/* Converts ticks to instructions. */
static inline uint64_t clock_instructions(uint64_t ticks) { return ticks * 1000 / CLOCK_MHZ; }

#endif
