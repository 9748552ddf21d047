#include "clock.h"

#define CONTROL (*(volatile uint32_t *)0xE000E010)
#define RELOAD (*(volatile uint32_t *)0xE000E014)
#define VALUE (*(volatile uint32_t *)0xE000E018)

enum { ENABLE = 1, INTERRUPT = 2, PROCESSOR = 4 };

#define LARGEST 0xFFFFFFu

static volatile uint32_t wraps;

void clock_wrapped(void) { wraps++; }

void clock_start(void) {
    RELOAD = LARGEST;
    VALUE = 0;
    CONTROL = ENABLE | INTERRUPT | PROCESSOR;
    while (VALUE == 0) { /* the first tick loads it */
    }
}

uint64_t clock_ticks(void) {
    uint32_t before, value;
    do {
        before = wraps;
        value = VALUE;
    } while (before != wraps);
    return (uint64_t)before * (LARGEST + 1u) + (LARGEST - value);
}
