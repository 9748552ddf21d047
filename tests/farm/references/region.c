/* A static aarch64 program without a libc whose marked regions have known instruction counts.
 *
 * Argument: one letter per action.
 *   l  marks a loop of 2001 instructions
 *   b  marks a loop of 11 instructions
 *   e  marks an empty region
 *   o  opens a region
 *   c  closes a region
 *   f  exits with status 3
 *   w  never ends
 *   s  reads from address 0
 */
static void leave(long status) {
    register long x0 __asm__("x0") = status;
    register long x8 __asm__("x8") = 94; /* exit_group */
    __asm__ volatile("svc #0" : : "r"(x0), "r"(x8));
    __builtin_unreachable();
}

/* 1 + 2 * turns instructions between the marks. */
#define LOOP(turns)                                                                                \
    __asm__ volatile("hint #100\n mov x9, #" #turns "\n 1: subs x9, x9, #1\n b.ne 1b\n hint #101"  \
                     :                                                                             \
                     :                                                                             \
                     : "x9", "cc")

__attribute__((used)) void run(const long *stack) {
    const char *letters = stack[0] > 1 ? (const char *)stack[2] : "";
    for (; *letters != 0; letters++) {
        if (*letters == 'l') {
            LOOP(1000);
        } else if (*letters == 'b') {
            LOOP(5);
        } else if (*letters == 'e') {
            __asm__ volatile("hint #100\n hint #101");
        } else if (*letters == 'o') {
            __asm__ volatile("hint #100");
        } else if (*letters == 'c') {
            __asm__ volatile("hint #101");
        } else if (*letters == 'f') {
            leave(3);
        } else if (*letters == 'w') {
            __asm__ volatile("1: b 1b");
        } else if (*letters == 's') {
            __asm__ volatile("mov x9, #0\n ldr x9, [x9]" : : : "x9", "memory");
        }
    }
    leave(0);
}

__asm__(".globl _start\n_start:\n mov x0, sp\n b run\n");
