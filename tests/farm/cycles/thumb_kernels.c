/* Marked kernels with documented cycle counts, as a firmware; each runs twice, the first time with
 * empty caches. */
#include <stdint.h>

#include "semihost.h"

enum { ROUNDS = 1000, WORDS = 8192 };

static const uint32_t in_flash[WORDS] = {1};
static uint32_t coupled[1024];

#define TWICE(x) x x
#define FOUR(x) TWICE(TWICE(x))
#define SIXTEEN(x) FOUR(FOUR(x))

#define LOOP(body)                                                                                 \
    __asm__ volatile("hint.w #100\n mov r7, %0\n1:\n" body "subs r7, r7, #1\n bne 1b\n"            \
                     "hint.w #101"                                                                 \
                     :                                                                             \
                     : "i"(ROUNDS)                                                                 \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "cc", "memory", "s0", "s1", \
                       "s2")

static void accumulate(void) { LOOP(SIXTEEN("smlad r0, r1, r2, r0\n")); }
static void multiply_in_turn(void) { LOOP(SIXTEEN("smlad r0, r0, r2, r3\n")); }
static void independent(void) { LOOP(FOUR(TWICE("add.w r0, r1, r2\n add.w r3, r4, r5\n"))); }
static void shifted(void) {
    LOOP(FOUR(TWICE("add.w r0, r1, r2, lsl #4\n add.w r3, r4, r5, lsl #4\n")));
}
static void beside(void) { LOOP(SIXTEEN("smlad r0, r1, r2, r0\n add.w r3, r4, r5\n")); }
static void fused(void) { LOOP(SIXTEEN("vfma.f32 s0, s1, s2\n")); }

static void chase(void) {
    coupled[0] = (uint32_t)(uintptr_t)coupled;
    __asm__ volatile("hint.w #100\n mov r7, %0\n mov r0, %1\n1:\n" SIXTEEN(
                         "ldr.w r0, [r0]\n") "subs r7, r7, #1\n bne 1b\n hint.w #101"
                     :
                     : "i"(ROUNDS), "r"(coupled)
                     : "r0", "r7", "cc", "memory");
}

/* A word of each line of a table that the cache does not hold. */
static void read_flash(void) {
    __asm__ volatile("hint.w #100\n mov r7, %0\n mov r0, %1\n1:\n"
                     "ldr r2, [r0], #32\n subs r7, r7, #1\n bne 1b\n hint.w #101"
                     :
                     : "i"(ROUNDS), "r"(in_flash)
                     : "r0", "r2", "r7", "cc", "memory");
}

/* Skips an instruction by a bit of a sequence that nothing predicts. */
static void unpredictable(void) {
    __asm__ volatile("hint.w #100\n mov r7, %0\n movw r0, #12345\n1:\n"
                     "eor.w r0, r0, r0, lsl #13\n eor.w r0, r0, r0, lsr #17\n"
                     "eor.w r0, r0, r0, lsl #5\n lsls r1, r0, #11\n bmi 2f\n nop\n"
                     "2: subs r7, r7, #1\n bne 1b\n hint.w #101"
                     :
                     : "i"(ROUNDS)
                     : "r0", "r1", "r7", "cc");
}

void train(void) {
    for (int run = 0; run < 2; run++) {
        accumulate();
        multiply_in_turn();
        independent();
        shifted();
        beside();
        fused();
        chase();
        read_flash();
        unpredictable();
    }
    semihost_exit(0);
}
