/* 8-bit optimizer states, in blocks of 256 that share a scale (compiler/ir/state_blocks.py).
 *
 * A number is map[code] times the block's scale, which is the block's largest magnitude.
 */
#ifndef PE_STATES_H
#define PE_STATES_H

#include <stdint.h>
#include <string.h>

#include "pe_state_maps.h"
#include "pe_vec.h"

enum { PE_STATE_DECADES = 7 };

/* Distance from a border, in cells, within which rounding may change the code; rounding moves a
 * number by less than 1e-4. */
#define PE_STATE_NEAR 2.5e-4f

PE_INLINE void pe_decode_states(float *restrict to, const uint8_t *restrict codes,
                                const float scale, const float *map, const int count) {
    for (int i = 0; i < count; i++) {
        to[i] = map[codes[i]] * scale;
    }
}

/* The largest magnitude, compared as integers: this vectorizes, and NaN is the largest. */
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

/* The border between a code and the next one: the mean of their values. */
PE_INLINE float pe_state_border(const float *map, const int code) {
    return (map[code] + map[code + 1]) * 0.5f;
}

/* The code of a number: the number of borders below it. A number at a border gets the lower
 * code. */
PE_INLINE int pe_state_code(const float *map, const float x) {
    int code = 0;
    for (int step = PE_STATE_BLOCK / 2; step; step /= 2) {
        code += pe_state_border(map, code + step - 1) < x ? step : 0;
    }
    return code;
}

/* The borders below each decade and below 1, as bits. Relative to the code of 0, the first code of
 * a decade is a power of two, minus one if unsigned. */
PE_INLINE void pe_state_starts(int32_t *starts, const float *map, const int with_signs) {
    for (int decade = 0; decade <= PE_STATE_DECADES; decade++) {
        const int first = with_signs ? PE_STATE_BLOCK / 2 - 1 + (1 << decade) : (2 << decade) - 1;
        const float start = pe_state_border(map, first - 1);
        memcpy(starts + decade, &start, sizeof start);
    }
}

/* The number of starts below a magnitude, and in `cells` the number of signed-map cells per unit in
 * its decade: 10/9 of 10^6 in the first, then a fifth of the previous; 0 beyond the last start. */
PE_INLINE int32_t pe_state_decade(const int32_t *starts, const int32_t bits, float *cells) {
    const int four = bits > starts[3];
    const int two = bits > (four ? starts[5] : starts[1]);
    const int32_t upper = two ? starts[6] : starts[4], lower = two ? starts[2] : starts[0];
    const int one = bits > (four ? upper : lower), whole = bits > starts[7];
    const float most = four ? 5e6f / 0.9f * 0.0016f : 5e6f / 0.9f;
    *cells = whole ? 0.0f : most * (two ? 0.04f : 1.0f) * (one ? 0.2f : 1.0f);
    return four * 4 + two * 2 + one + whole;
}

/* Computes codes in vectors: a decade is divided into equal cells. `near` marks numbers so close to
 * a border that rounding may have changed the code; returns whether there are any. */
PE_INLINE int pe_guess_states(uint8_t *restrict codes, uint8_t *restrict near,
                              const float *restrict numbers, const float *map, const int with_signs,
                              const int count) {
    const int32_t zero = with_signs ? PE_STATE_BLOCK / 2 - 1 : 0;
    int32_t starts[PE_STATE_DECADES + 1];
    pe_state_starts(starts, map, with_signs);
    int any = 0;
    for (int i = 0; i < count; i++) {
        int32_t bits;
        float magnitude, cells;
        memcpy(&bits, numbers + i, sizeof bits);
        const int32_t below = bits < 0, size = bits & INT32_MAX;
        memcpy(&magnitude, &size, sizeof size);
        /* A number at a border gets the lower code, which for negative numbers is farther from
         * 0. */
        const int32_t passed = pe_state_decade(starts, size + below, &cells);
        const int32_t first = with_signs ? (1 << passed) >> 1 : (1 << passed) - 1;
        const float before = (float)(first + !with_signs) * (1.0f / 9.0f);
        const float from = magnitude * cells * (with_signs ? 1.0f : 2.0f) - before;
        const float place = from > 0.5f ? from : 0.5f; /* half a cell for 0, 1 and NaN */
        const int32_t cell = (int32_t)place;
        const float rest = place - (float)cell;
        const int32_t last = with_signs ? 2 * first - (first > 0) : 2 * first;
        const int32_t away = first + cell < last ? first + cell : last;
        const int32_t least = size > 0;
        const int32_t under = with_signs ? zero - (away < zero ? away : zero) : 0;
        const int32_t over = with_signs ? zero + away : away > least ? away : least;
        const int32_t unsure = (rest < PE_STATE_NEAR) | (rest > 1.0f - PE_STATE_NEAR);
        codes[i] = (uint8_t)(below ? under : over);
        near[i] = (uint8_t)unsure;
        any |= unsure;
    }
    return any;
}

/* Encodes a block. If unsigned, a positive number never becomes 0. Modifies `numbers`. */
PE_INLINE void pe_encode_states(uint8_t *restrict codes, float *restrict scale,
                                float *restrict numbers, const float *map, const int with_signs,
                                const int count) {
    const float largest = pe_largest_state(numbers, count);
    const float by = largest == 0.0f ? 1.0f : largest;
    *scale = largest;
    for (int i = 0; i < count; i++) {
        numbers[i] = numbers[i] / by;
    }
    uint8_t near[PE_STATE_BLOCK];
    if (!pe_guess_states(codes, near, numbers, map, with_signs, count)) {
        return;
    }
    for (int i = 0; i < count; i++) {
        if (near[i]) {
            const int code = pe_state_code(map, numbers[i]);
            codes[i] = (uint8_t)(code == 0 && !with_signs && numbers[i] > 0.0f ? 1 : code);
        }
    }
}

#endif
