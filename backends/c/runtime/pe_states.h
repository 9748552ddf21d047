/* Optimiser states in 8 bits, in blocks of 256 that share a scale (compiler/ir/state_blocks.py).
 *
 * A number is the map's at its code, times the block's scale, its largest magnitude.
 */
#ifndef PE_STATES_H
#define PE_STATES_H

#include <stdint.h>
#include <string.h>

#include "pe_state_maps.h"
#include "pe_vec.h"

enum {
    PE_STATE_SHIFT = 17,              /* six bits of the mantissa stay */
    PE_STATE_FIRST = (127 - 24) * 64, /* of 2^-24, below the first border of either map */
    PE_STATE_GUESSES = 127 * 64 + 1 - PE_STATE_FIRST /* up to 1 */
};

/* What finds codes: the borders between neighbours of a map, and for numbers of the same sign,
 * exponent and upper bits of the mantissa a code at or below theirs. */
typedef struct pe_state_map {
    float borders[PE_STATE_BLOCK];
    uint8_t above[PE_STATE_GUESSES], below[PE_STATE_GUESSES];
} pe_state_map;

PE_INLINE float pe_state_guessed(const int guess) {
    const int32_t bits = (PE_STATE_FIRST + guess) << PE_STATE_SHIFT;
    float number;
    memcpy(&number, &bits, sizeof number);
    return guess ? number : 0.0f;
}

PE_INLINE void pe_open_state_map(pe_state_map *to, const float *map) {
    for (int i = 0; i < PE_STATE_BLOCK - 1; i++) {
        to->borders[i] = (map[i] + map[i + 1]) * 0.5f;
    }
    to->borders[PE_STATE_BLOCK - 1] = 2.0f; /* above all numbers */
    int low = 0, high = 0;
    for (int guess = PE_STATE_GUESSES - 1; guess >= 0; guess--) {
        const float end = -pe_state_guessed(guess + 1);
        while (to->borders[low] < end) {
            low++;
        }
        to->below[guess] = (uint8_t)low;
    }
    for (int guess = 0; guess < PE_STATE_GUESSES; guess++) {
        while (to->borders[high] < pe_state_guessed(guess)) {
            high++;
        }
        to->above[guess] = (uint8_t)high;
    }
}

PE_INLINE void pe_decode_states(float *restrict to, const uint8_t *restrict codes,
                                const float scale, const float *map, const int count) {
    for (int i = 0; i < count; i++) {
        to[i] = map[codes[i]] * scale;
    }
}

/* The largest magnitude; as integers, so that it is found in vectors, and NaN is the largest. */
PE_INLINE float pe_largest_state(const float *numbers, const int count) {
    int32_t most = 0;
    for (int i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

/* How many borders lie below: a number at one has the lower code. What shares a guess has two
 * borders at most. */
PE_INLINE int pe_state_code(const pe_state_map *map, const float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int guess = ((bits & INT32_MAX) >> PE_STATE_SHIFT) - PE_STATE_FIRST;
    guess = guess < 0 ? 0 : guess;
    guess = guess < PE_STATE_GUESSES ? guess : PE_STATE_GUESSES - 1;
    int code = bits < 0 ? map->below[guess] : map->above[guess];
    code += map->borders[code] < x;
    code += map->borders[code] < x;
    return code;
}

/* `least` is the code of a number above 0 at least: without signs it never becomes 0. Changes
 * `numbers`. */
PE_INLINE void pe_encode_states(uint8_t *restrict codes, float *restrict scale,
                                float *restrict numbers, const pe_state_map *map, const int least,
                                const int count) {
    const float largest = pe_largest_state(numbers, count);
    const float by = largest == 0.0f ? 1.0f : largest;
    *scale = largest;
    for (int i = 0; i < count; i++) {
        numbers[i] = numbers[i] / by;
    }
    for (int i = 0; i < count; i++) {
        const int code = pe_state_code(map, numbers[i]);
        codes[i] = (uint8_t)(code < least && numbers[i] > 0.0f ? least : code);
    }
}

#endif
