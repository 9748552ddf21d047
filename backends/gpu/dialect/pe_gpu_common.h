/* Functions for all kernels, in the names of a prelude. Only a kernel may ask for its item, so it
 * passes the number on. */

PE_FUNCTION float pe_maximum(float a, float b) { return a > b || a != a ? a : b; }

PE_FUNCTION float pe_minimum(float a, float b) { return a < b || a != a ? a : b; }

PE_FUNCTION float pe_clamp(float x, float low, float high) {
    return low != low || high != high ? low + high : x < low ? low : x > high ? high : x;
}

PE_FUNCTION float pe_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }

PE_FUNCTION int pe_float_bits(float x) { return (int)pe_bits(x); }

PE_FUNCTION float pe_bits_float(int x) { return pe_from_bits((pe_u32)x); }

/* Rounds towards zero and saturates; NaN gives 0. */
PE_FUNCTION int pe_saturated(float x) {
    return x != x               ? 0
           : x >= 2147483648.0f ? 2147483647
           : x < -2147483648.0f ? -2147483647 - 1
                                : (int)x;
}

PE_FUNCTION pe_i64 pe_saturated_i64(float x) {
    const pe_i64 most = 9223372036854775807;
    return x != x                        ? 0
           : x >= 9223372036854775808.0f ? most
           : x < -9223372036854775808.0f ? -most - 1
                                         : (pe_i64)x;
}

PE_FUNCTION float pe_from_bf16(pe_u16 x) { return pe_from_bits((pe_u32)x << 16); }

/* Rounds to nearest, ties to even; NaN stays NaN. */
PE_FUNCTION pe_u16 pe_to_bf16(float x) {
    const pe_u32 bits = pe_bits(x);
    return x != x ? (pe_u16)(bits >> 16 | 64)
                  : (pe_u16)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* Division towards zero and its remainder, without traps: a / 0 is -1 with remainder a. */
PE_FUNCTION pe_i64 pe_quotient_64(pe_i64 a, pe_i64 b) {
    return b == 0 ? -1 : b == -1 ? (pe_i64)(0 - (pe_u64)a) : a / b;
}

PE_FUNCTION pe_i64 pe_remainder_64(pe_i64 a, pe_i64 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }

PE_FUNCTION int pe_quotient_32(int a, int b) { return (int)pe_quotient_64(a, b); }

PE_FUNCTION int pe_remainder_32(int a, int b) { return (int)pe_remainder_64(a, b); }

/* Shifts; a count outside the width shifts out all bits. */
PE_FUNCTION int pe_left_32(int a, int b) { return b >= 0 && b < 32 ? (int)((pe_u32)a << b) : 0; }

PE_FUNCTION pe_i64 pe_left_64(pe_i64 a, pe_i64 b) {
    return b >= 0 && b < 64 ? (pe_i64)((pe_u64)a << b) : 0;
}

PE_FUNCTION int pe_right_32(int a, int b) { return a >> (b >= 0 && b < 32 ? b : 31); }

PE_FUNCTION pe_i64 pe_right_64(pe_i64 a, pe_i64 b) { return a >> (b >= 0 && b < 64 ? b : 63); }

/* Random numbers, bit for bit those of compiler/ops/random.py. */
PE_FUNCTION pe_u32 pe_mix(pe_u32 x) {
    x ^= x >> 16;
    x *= 0x21F0AAADu;
    x ^= x >> 15;
    x *= 0xD35A2D97u;
    return x ^ x >> 15;
}

PE_FUNCTION float pe_uniform(int seed, pe_u32 stream, int i) {
    const pe_u32 key = pe_mix((pe_u32)seed ^ stream * 0x9E3779B9u);
    return (float)(int)(pe_mix(pe_mix((pe_u32)i) + key) >> 8) * (1.0f / 16777216.0f);
}

/* An index from data, clamped to an axis. */
PE_FUNCTION int pe_inside(pe_i64 index, int size) {
    return index < 0 ? 0 : index >= size ? size - 1 : (int)index;
}

/* All items of a group call these, with their number and an array of one float per item; `items` is
 * a power of two. The array may be reused after the next barrier. */
PE_FUNCTION float pe_group_sum(PE_LOCAL float *shared, int item, int items, float x) {
    shared[item] = x;
    pe_barrier();
    for (int step = items / 2; step > 0; step /= 2) {
        if (item < step) {
            shared[item] += shared[item + step];
        }
        pe_barrier();
    }
    return shared[0];
}

/* Online sum of exponentials relative to the running maximum: the sum is rescaled when the maximum
 * grows. Starts with -infinity and 0. */
PE_FUNCTION void pe_add_exponential(PE_PRIVATE float *most, PE_PRIVATE float *sum, float x) {
    if (x > *most) {
        *sum *= PE_MATH(exp)(*most - x);
        *most = x;
    }
    *sum += PE_MATH(exp)(x - (*most == -PE_INFINITY ? 0.0f : *most));
}

/* Merges a second pair of maximum and sum into the first. */
PE_FUNCTION void pe_join_exponentials(PE_PRIVATE float *most, PE_PRIVATE float *sum,
                                      float other_most, float other_sum) {
    const float greatest = pe_maximum(*most, other_most);
    const float from = greatest == -PE_INFINITY ? 0.0f : greatest;
    *sum = *sum * PE_MATH(exp)(*most - from) + other_sum * PE_MATH(exp)(other_most - from);
    *most = greatest;
}

/* Merges the pairs of all items of a group; the array has two floats per item. */
PE_FUNCTION void pe_group_exponentials(PE_LOCAL float *shared, int item, int items,
                                       PE_PRIVATE float *most, PE_PRIVATE float *sum) {
    shared[item] = *most;
    shared[items + item] = *sum;
    pe_barrier();
    for (int step = items / 2; step > 0; step /= 2) {
        if (item < step) {
            pe_join_exponentials(most, sum, shared[item + step], shared[items + item + step]);
            shared[item] = *most;
            shared[items + item] = *sum;
        }
        pe_barrier();
    }
    *most = shared[0];
    *sum = shared[items];
}
