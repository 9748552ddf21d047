/* Matrix multiply y = epilogue(A Bᵀ) where A has few rows and B's rows are stored in blocks of 32
 * numbers that share an f16 scale (pe_blocks.h): the tied head of a decoder.
 *
 *     y[i][j] = sum over blocks of  scale[j][block] * sum over its numbers of  a[i][k] code[j][k]
 *
 * B is read once, in the order of memory: PE_NV rows at a time, along the inner dimension. Threads
 * share the rows of B, in blocks of PE_VL.
 *
 * Parameters: PE_FN, PE_VL, PE_NV (divides PE_VL), PE_M, PE_N, PE_K, PE_A_ROW, PE_FN(io),
 * PE_FN(store) as in gemm.inc.h; PE_BITS of a code.
 */

#if !defined(PE_BITS) || !defined(PE_K) || !defined(PE_N) || !defined(PE_VL)
#error "gemm_blocks_dot.inc.h needs PE_BITS, PE_K, PE_N and PE_VL"
#endif

#define PE_CODED_BYTES (PE_BLOCK * PE_BITS / 8)
#define PE_VECTORS (PE_BLOCK / PE_VL)
#define PE_SCALES (PE_K / PE_BLOCK)
#define PE_SCALES_PITCH (PE_SCALES + PE_VL)
#define PE_ROW_BYTES (PE_SCALES * PE_CODED_BYTES)

/* The codes of a block; 4-bit ones are 8 too large. */
PE_INLINE void PE_FN(numbers)(pe_vf numbers[PE_VECTORS], const uint8_t *bytes) {
    PE_UNROLL
    for (int v = 0; v < PE_CODED_BYTES / PE_VL; v++) {
#if PE_BITS == 4
        const pe_vi pair = pe_load_part_ub(bytes + v * PE_VL, PE_VL);
        numbers[v] = pe_to_f(pair & 15);
        numbers[v + PE_VECTORS / 2] = pe_to_f(pair >> 4);
#else
        numbers[v] = pe_to_f(pe_load_part_sb((const int8_t *)bytes + v * PE_VL, PE_VL));
#endif
    }
}

/* What the codes' offset adds to the products of a block of a row of A. */
PE_INLINE pe_vf PE_FN(offset)(const float *a) {
    pe_vf sum = pe_zero();
#if PE_BITS == 4
    PE_UNROLL
    for (int v = 0; v < PE_VECTORS; v++) {
        sum += pe_load(a + v * PE_VL);
    }
#endif
    (void)a;
    return sum * -8.0f;
}

/* Adds the products of a block to the sums of each row of A with `columns` rows of B. */
PE_INLINE void PE_FN(dot_block)(pe_vf sums[PE_M][PE_NV], const float *a, const uint8_t *bytes,
                                const float *scales, const int columns) {
    pe_vf numbers[PE_NV][PE_VECTORS];
    PE_UNROLL
    for (int j = 0; j < columns; j++) {
        PE_FN(numbers)(numbers[j], bytes + j * (ptrdiff_t)PE_ROW_BYTES);
    }
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        const float *row = a + i * (ptrdiff_t)PE_A_ROW;
        const pe_vf offset = PE_FN(offset)(row);
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            pe_vf part = offset;
            PE_UNROLL
            for (int v = 0; v < PE_VECTORS; v++) {
                part += pe_load(row + v * PE_VL) * numbers[j][v];
            }
            sums[i][j] += pe_splat(scales[j * PE_SCALES_PITCH]) * part;
        }
    }
}

/* to[i * PE_VL + j] of all rows of A with `columns` rows of B. */
PE_INLINE void PE_FN(dot)(float *to, const float *a, const uint8_t *bytes, const uint16_t *halves,
                          const int columns) {
    float scales[PE_NV * PE_SCALES_PITCH];
    for (int j = 0; j < columns; j++) {
        for (int i = 0; i < PE_SCALES; i += PE_VL) {
            const pe_vf part = pe_load_part_hf(halves + j * PE_SCALES + i, PE_SCALES - i);
            pe_store(scales + j * PE_SCALES_PITCH + i, part);
        }
    }
    pe_vf sums[PE_M][PE_NV];
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            sums[i][j] = pe_zero();
        }
    }
    /* The rows after the next ones, in the order of memory: by themselves, PE_NV rows took 1.6
     * times as long as one, and with this 0.75 times (8 bits, Zen 3). */
    const uint8_t *ahead = bytes + 2 * PE_NV * (ptrdiff_t)PE_ROW_BYTES;
    for (int block = 0; block < PE_SCALES; block++, ahead += PE_NV * PE_CODED_BYTES) {
        __builtin_prefetch(ahead);
        if (PE_NV * PE_CODED_BYTES > 64) {
            __builtin_prefetch(ahead + 64);
        }
        PE_FN(dot_block)
        (sums, a + block * PE_BLOCK, bytes + block * PE_CODED_BYTES, scales + block, columns);
    }
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        PE_UNROLL
        for (int j = 0; j < columns; j++) {
            to[i * PE_VL + j] = pe_sum(sums[i][j]);
        }
    }
}

PE_INLINE void PE_FN(run)(const pe_worker *w, const PE_FN(io) * io, const float *a,
                          const uint8_t *bytes, const uint16_t *halves) {
    const pe_range rows = pe_split(w, PE_N, PE_VL);
    for (ptrdiff_t first = rows.begin; first < rows.end; first += PE_VL) {
        float sums[PE_M * PE_VL] = {0};
        const ptrdiff_t left = rows.end - first;
        const int lanes = left < PE_VL ? (int)left : PE_VL;
        int j = 0;
        for (; j + PE_NV <= lanes; j += PE_NV) {
            const ptrdiff_t row = first + j;
            PE_FN(dot)(sums + j, a, bytes + row * PE_ROW_BYTES, halves + row * PE_SCALES, PE_NV);
        }
        for (; j < lanes; j++) {
            const ptrdiff_t row = first + j;
            PE_FN(dot)(sums + j, a, bytes + row * PE_ROW_BYTES, halves + row * PE_SCALES, 1);
        }
        for (int i = 0; i < PE_M; i++) {
            PE_FN(store)(io, pe_load(sums + i * PE_VL), i, (int)first, lanes);
        }
    }
}

#undef PE_BITS
#undef PE_CODED_BYTES
#undef PE_ROW_BYTES
#undef PE_SCALES
#undef PE_SCALES_PITCH
#undef PE_VECTORS
#include "undef.inc.h"
