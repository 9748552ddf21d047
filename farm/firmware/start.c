/* How a Cortex-M begins: its table of vectors, the floating-point unit, variables in memory. */
#include <stdint.h>

#include "clock.h"
#include "semihost.h"

extern uint32_t stack_top[], data_begin[], data_end[], data_in_flash[], bss_begin[], bss_end[];

void train(void);

#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88)
#define FLOATING_POINT (0xFu << 20)

__attribute__((used)) void _start(void) {
    COPROCESSORS |= FLOATING_POINT;
    __asm__ volatile("dsb\n\tisb");
    const uint32_t *from = data_in_flash;
    for (uint32_t *to = data_begin; to < data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = bss_begin; to < bss_end; to++) {
        *to = 0;
    }
    clock_start();
    train();
}

static void fault(void) {
    semihost_print("the processor stopped at a fault\n");
    semihost_exit(2);
}

/* Of the processor itself; the board's devices stay silent. */
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {(void *)stack_top,
                                                                             (void *)_start,
                                                                             (void *)fault,
                                                                             (void *)fault,
                                                                             (void *)fault,
                                                                             (void *)fault,
                                                                             (void *)fault,
                                                                             0,
                                                                             0,
                                                                             0,
                                                                             0,
                                                                             (void *)fault,
                                                                             (void *)fault,
                                                                             0,
                                                                             (void *)fault,
                                                                             (void *)clock_wrapped};
