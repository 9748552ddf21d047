/* Mark the begin and the end of a step for the cycle model (farm/cycles); they do nothing else. */
#ifndef MARK_H
#define MARK_H

static inline void mark_begin(void) { __asm__ volatile("hint.w #100" : : : "memory"); }
static inline void mark_end(void) { __asm__ volatile("hint.w #101" : : : "memory"); }

#endif
