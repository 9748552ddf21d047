/* Marks around exactly one step: no-ops, between which an emulator's plugin counts instructions.
 * On aarch64 they are `hint #100` and `hint #101`. */
#ifndef PE_MARK_H
#define PE_MARK_H

#if defined(__aarch64__)
#define PE_MARK_BEGIN() __asm__ volatile("hint #100" ::: "memory")
#define PE_MARK_END() __asm__ volatile("hint #101" ::: "memory")
#elif defined(__hexagon__) /* packets that no compiler emits; they have no effect */
#define PE_MARK_BEGIN() __asm__ volatile("{ r28 = and(r28, r28) }" ::: "memory")
#define PE_MARK_END() __asm__ volatile("{ r28 = or(r28, r28) }" ::: "memory")
#else
#define PE_MARK_BEGIN() __asm__ volatile("" ::: "memory")
#define PE_MARK_END() __asm__ volatile("" ::: "memory")
#endif

#endif
