/* The order in which training takes the rows of its data, as in backends/row_order.py: 0, 1,
 * 2, ..., or reshuffled in each epoch by the seed.
 *
 * The shuffle is a Feistel network over the smallest even number of bits that holds the rows,
 * repeated until the result is a row. It needs no memory, and any place is computed directly.
 */
#ifndef PE_ROW_ORDER_H
#define PE_ROW_ORDER_H

#include "pe_random.h"

#define PE_ORDER_ROUNDS 6

/* Half of the smallest even number of bits that holds `rows` rows; at least 1. */
static inline unsigned pe_order_half(int64_t rows) {
    unsigned half = 1;
    while ((uint64_t)(rows - 1) >> 2 * half) {
        half++;
    }
    return half;
}

/* The row at a place below `rows` of a shuffled epoch; at most 2^62 rows. */
static inline int64_t pe_shuffled_row(int64_t rows, uint32_t seed, int64_t epoch, int64_t place) {
    const unsigned half = pe_order_half(rows);
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    const uint32_t key = pe_random_key((int32_t)seed, (uint32_t)epoch);
    uint64_t number = (uint64_t)place;
    do {
        uint32_t left = (uint32_t)(number >> half), right = (uint32_t)number & mask;
        for (uint32_t round = 0; round < PE_ORDER_ROUNDS; round++) {
            const uint32_t mixed = pe_mix(pe_mix(right) + pe_random_key((int32_t)key, round));
            const uint32_t next = left ^ (mixed & mask);
            left = right;
            right = next;
        }
        number = (uint64_t)left << half | right;
    } while (number >= (uint64_t)rows);
    return (int64_t)number;
}

#endif
