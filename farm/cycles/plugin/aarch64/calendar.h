/* Turns of a pipe or a channel: which are taken, out of the last 16384. */
#ifndef POCKENGINE_CYCLES_CALENDAR_H
#define POCKENGINE_CYCLES_CALENDAR_H

#include <stdint.h>

enum { TURN_BITS = 6, CALENDAR_WORDS = 256 };

/* 64 turns: their number divided by 64, and a bit for each that is taken. */
struct turns {
    uint64_t number, taken;
};

struct calendar {
    struct turns words[CALENDAR_WORDS];
};

/* Return the first turn from `turn` on that is not taken. */
static inline uint64_t first_free(const struct calendar *calendar, uint64_t turn) {
    for (;;) {
        uint64_t number = turn >> TURN_BITS;
        const struct turns *word = &calendar->words[number % CALENDAR_WORDS];
        uint64_t taken = word->number == number ? word->taken : 0;
        uint64_t free = ~taken >> (turn & ((1 << TURN_BITS) - 1));
        if (free != 0) {
            return turn + (uint64_t)__builtin_ctzll(free);
        }
        turn = (number + 1) << TURN_BITS;
    }
}

static inline void take_turn(struct calendar *calendar, uint64_t turn) {
    uint64_t number = turn >> TURN_BITS, bit = 1ULL << (turn & ((1 << TURN_BITS) - 1));
    struct turns *word = &calendar->words[number % CALENDAR_WORDS];
    word->taken = (word->number == number ? word->taken : 0) | bit;
    word->number = number;
}

#endif
