/* Marked kernels with documented cycle counts, without a libc. Each letter of the argument runs
 * one kernel. */
#include <stddef.h>
#include <stdint.h>

enum {
    ROUNDS = 1000,
    COPIED = 4 << 20,
    CHAINED = 8 << 20,
    SMALL = 256 << 10,
    LINE = 64,
    HOPS = 4000
};

static uint8_t from[COPIED], to[COPIED], chain[CHAINED];

#define LOOP(body)                                                                                 \
    __asm__ volatile("hint #100\n mov x9, %0\n1:\n" body "subs x9, x9, #1\n b.ne 1b\n hint #101"   \
                     :                                                                             \
                     : "i"(ROUNDS)                                                                 \
                     : "x9", "x10", "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6",      \
                       "v7")

static void accumulate(void) { /* 4 with one accumulator */
    LOOP("fmla v0.4s, v1.4s, v2.4s\n fmla v0.4s, v1.4s, v2.4s\n"
         "fmla v0.4s, v1.4s, v2.4s\n fmla v0.4s, v1.4s, v2.4s\n");
}

static void multiply_in_turn(void) { /* 2, each a factor of the next */
    LOOP("fmla v0.4s, v0.4s, v2.4s\n fmla v0.4s, v0.4s, v2.4s\n");
}

static void independent(void) { /* 8 accumulators */
    LOOP("fmla v0.4s, v16.4s, v17.4s\n fmla v1.4s, v16.4s, v17.4s\n"
         "fmla v2.4s, v16.4s, v17.4s\n fmla v3.4s, v16.4s, v17.4s\n"
         "fmla v4.4s, v16.4s, v17.4s\n fmla v5.4s, v16.4s, v17.4s\n"
         "fmla v6.4s, v16.4s, v17.4s\n fmla v7.4s, v16.4s, v17.4s\n");
}

static void loads(void) { /* 4 loads of Q registers from L1 */
    __asm__ volatile("mov x10, %0" : : "r"(from) : "x10");
    LOOP("ldr q0, [x10]\n ldr q1, [x10, #16]\n ldr q2, [x10, #32]\n ldr q3, [x10, #48]\n");
}

static void unpredictable(void) { /* branches on a random bit */
    __asm__ volatile("hint #100\n mov x9, %0\n mov x10, #12345\n1:\n"
                     "eor x10, x10, x10, lsl #13\n eor x10, x10, x10, lsr #7\n"
                     "eor x10, x10, x10, lsl #17\n"
                     "tbz x10, #20, 2f\n nop\n2: subs x9, x9, #1\n b.ne 1b\n hint #101"
                     :
                     : "i"(ROUNDS)
                     : "x9", "x10", "cc");
}

static void copy(void) {
    uint8_t *x = from, *y = to;
    size_t lines = COPIED / LINE;
    __asm__ volatile("hint #100\n1: ldp q0, q1, [%0], #32\n ldp q2, q3, [%0], #32\n"
                     "stp q0, q1, [%1], #32\n stp q2, q3, [%1], #32\n"
                     "subs %2, %2, #1\n b.ne 1b\n hint #101"
                     : "+r"(x), "+r"(y), "+r"(lines)
                     :
                     : "cc", "memory", "v0", "v1", "v2", "v3");
}

static void triad(void) { /* x = y + a z, in f64 */
    uint8_t *x = to, *y = from, *z = chain;
    size_t lines = COPIED / LINE;
    __asm__ volatile("hint #100\n1: ldp q0, q1, [%1], #32\n ldp q2, q3, [%1], #32\n"
                     "ldp q4, q5, [%2], #32\n ldp q6, q7, [%2], #32\n"
                     "fmla v0.2d, v4.2d, v16.2d\n fmla v1.2d, v5.2d, v16.2d\n"
                     "fmla v2.2d, v6.2d, v16.2d\n fmla v3.2d, v7.2d, v16.2d\n"
                     "stp q0, q1, [%0], #32\n stp q2, q3, [%0], #32\n"
                     "subs %3, %3, #1\n b.ne 1b\n hint #101"
                     : "+r"(x), "+r"(y), "+r"(z), "+r"(lines)
                     :
                     : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7");
}

static void fill(void) {
    uint8_t *x = to;
    size_t lines = COPIED / LINE;
    __asm__ volatile("hint #100\n1: stp q0, q0, [%0], #32\n stp q0, q0, [%0], #32\n"
                     "subs %1, %1, #1\n b.ne 1b\n hint #101"
                     : "+r"(x), "+r"(lines)
                     :
                     : "cc", "memory");
}

/* Link the first `bytes` of `chain` into a cycle of lines that no prefetcher can follow. */
static void link_lines(size_t bytes) {
    size_t lines = bytes / LINE, at = 0; /* a power of two: the cycle visits all */
    for (size_t i = 0; i < lines; i++) {
        size_t next = (at * 5 + 12345) % lines;
        *(uint8_t **)&chain[at * LINE] = &chain[next * LINE];
        at = next;
    }
}

static void chase(size_t bytes) {
    link_lines(bytes);
    uint8_t *p = chain;
    size_t hops = HOPS;
    __asm__ volatile("hint #100\n1: ldr %0, [%0]\n subs %1, %1, #1\n b.ne 1b\n hint #101"
                     : "+r"(p), "+r"(hops)
                     :
                     : "cc", "memory");
}

static void chase_two(void) { /* the next pair waits for both, as tinymembench's do */
    link_lines(CHAINED);
    uint8_t *p = chain, *q = &chain[CHAINED / 2];
    size_t hops = HOPS;
    __asm__ volatile("hint #100\n1: ldr %0, [%0]\n ldr %1, [%1]\n"
                     "and x9, %0, xzr\n and x10, %1, xzr\n add %0, %0, x10\n add %1, %1, x9\n"
                     "subs %2, %2, #1\n b.ne 1b\n hint #101"
                     : "+r"(p), "+r"(q), "+r"(hops)
                     :
                     : "x9", "x10", "cc", "memory");
}

static void run_kernel(char letter) {
    switch (letter) {
    case 'a':
        accumulate();
        break;
    case 'm':
        multiply_in_turn();
        break;
    case 'i':
        independent();
        break;
    case 'l':
        loads();
        break;
    case 'u':
        unpredictable();
        break;
    case 'c':
        copy();
        break;
    case 't':
        triad();
        break;
    case 'f':
        fill();
        break;
    case 's':
        chase(SMALL);
        break;
    case 'd':
        chase_two();
        break;
    default:
        chase(CHAINED);
        break;
    }
}

__attribute__((used)) void run(const long *stack) {
    const char *letters = stack[0] > 1 ? (const char *)stack[2] : "";
    for (; *letters != '\0'; letters++) {
        run_kernel(*letters);
    }
    register long x0 __asm__("x0") = 0;
    register long x8 __asm__("x8") = 94; /* exit_group */
    __asm__ volatile("svc #0" : : "r"(x0), "r"(x8));
    __builtin_unreachable();
}

__asm__(".globl _start\n_start:\n mov x0, sp\n b run\n");
