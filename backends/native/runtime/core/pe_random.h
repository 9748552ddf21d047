/* Counter-based random numbers: number i of a stream under a seed, equal to
 * compiler/ops/random.py bit for bit. Plain C on unsigned numbers, which compilers turn into
 * vectors. */
#ifndef PE_RANDOM_H
#define PE_RANDOM_H

#include <stdint.h>

static inline uint32_t pe_mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x21F0AAADU;
    x ^= x >> 15;
    x *= 0xD35A2D97U;
    return x ^ x >> 15;
}

/* The part that all numbers of a stream share. */
static inline uint32_t pe_random_key(int32_t seed, uint32_t stream) {
    return pe_mix((uint32_t)seed ^ stream * 0x9E3779B9U);
}

/* Number i, in [0, 1), with 24 random bits. */
static inline float pe_uniform(uint32_t key, uint32_t i) {
    return (float)(int32_t)(pe_mix(pe_mix(i) + key) >> 8) * 0x1p-24f;
}

#endif
