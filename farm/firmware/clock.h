/* SysTick as a clock of 64 bits. QEMU with -icount shift=0 takes a nanosecond for each instruction,
 * so that ticks count instructions, CLOCK_INSTRUCTIONS at a time; link.py says how many. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

void clock_start(void);

/* The handler of its interrupt. */
void clock_wrapped(void);

uint64_t clock_ticks(void);

#endif
