/* SysTick as a clock of 64 bits. QEMU with -icount shift=0 takes a nanosecond for each instruction,
 * so that ticks count instructions, CLOCK_INSTRUCTIONS at a time. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

#define CLOCK_INSTRUCTIONS 40 /* at the 25 MHz of Arm's MPS2 boards */

void clock_start(void);

/* The handler of its interrupt. */
void clock_wrapped(void);

uint64_t clock_ticks(void);

#endif
