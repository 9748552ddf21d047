/* Matrix multiply y = epilogue(A B) where A has few rows and B is stored in blocks of 32 rows that
 * share an f16 scale per column (pe_blocks.h): a token of a decoder.
 *
 *     y[i][j] = sum over blocks of  scale[block][j] * sum over its rows of  a[i][k] code[k][j]
 *
 * B is read once, in the order of memory, as in gemm_stream.inc.h: sums of all columns stay in the
 * first-level cache, and each pass adds PE_STEPS rows of bytes. Threads share the columns.
 *
 * Parameters: PE_FN, PE_VL, PE_M, PE_N, PE_K, PE_A_ROW, PE_FN(io), PE_FN(store) as in gemm.inc.h;
 * PE_BITS of a code; PE_STEPS, which divides a block's rows of bytes; PE_PITCH, of the rows of
 * sums, whole vectors.
 */

#if !defined(PE_BITS) || !defined(PE_K) || !defined(PE_N) || !defined(PE_STEPS) || !defined(PE_VL)
#error "gemm_blocks.inc.h needs PE_BITS, PE_K, PE_N, PE_STEPS and PE_VL"
#endif

#define PE_CODED_BYTES (PE_BLOCK * PE_BITS / 8)
#define PE_CODES (PE_STEPS * 8 / PE_BITS)

/* Adds one vector of columns of PE_STEPS rows of bytes to its sums. 4-bit codes are 8 too large,
 * which `offsets`, of each row of A, makes up for. */
PE_INLINE void PE_FN(vector)(float *sums, pe_vf a[PE_M][PE_CODES], pe_vf offsets[PE_M],
                             const uint8_t *bytes, const float *scales, const int lanes,
                             const int first) {
    pe_vf numbers[PE_CODES];
    PE_UNROLL
    for (int k = 0; k < PE_STEPS; k++) {
        const uint8_t *row = bytes + k * (ptrdiff_t)PE_N;
#if PE_BITS == 4
        const pe_vi pair = pe_load_part_ub(row, lanes);
        numbers[k] = pe_to_f(pair & 15);
        numbers[k + PE_STEPS] = pe_to_f(pair >> 4);
#else
        numbers[k] = pe_to_f(pe_load_part_sb((const int8_t *)row, lanes));
#endif
    }
    const pe_vf scale = pe_load(scales);
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        pe_vf sum[2] = {offsets[i], pe_zero()}; /* two, since each addition waits for the last */
        PE_UNROLL
        for (int k = 0; k < PE_CODES; k++) {
            sum[k % 2] += a[i][k] * numbers[k];
        }
        const pe_vf before = first ? pe_zero() : pe_load(sums + i * PE_PITCH);
        pe_store(sums + i * PE_PITCH, before + scale * (sum[0] + sum[1]));
    }
}

/* Fetches a line of the pass after the next, another row's for each vector: the prefetcher would
 * lose the streams where rows end. */
PE_INLINE void PE_FN(fetch)(const uint8_t *bytes, const ptrdiff_t column) {
    const ptrdiff_t row = column / PE_VL % PE_STEPS;
    const uint8_t *line = bytes + (2 * PE_STEPS + row) * (ptrdiff_t)PE_N + column - row * PE_VL;
    __builtin_prefetch(line);
    if (PE_STEPS * PE_VL > 64) {
        __builtin_prefetch(line + 64);
    }
}

/* Adds PE_STEPS rows of bytes to the sums of the columns; `a` is the first row's element. */
PE_INLINE void PE_FN(pass)(float *sums, const float *a, const uint8_t *bytes, const float *scales,
                           const pe_range columns, const int first) {
    pe_vf factors[PE_M][PE_CODES], offsets[PE_M];
    PE_UNROLL
    for (int i = 0; i < PE_M; i++) {
        offsets[i] = pe_zero();
        PE_UNROLL
        for (int k = 0; k < PE_CODES; k++) {
            const int half = k / PE_STEPS; /* of 4 bits, the high halves are 16 rows further */
            const int row = k - half * PE_STEPS + half * PE_CODED_BYTES;
            factors[i][k] = pe_splat(a[i * (ptrdiff_t)PE_A_ROW + row]);
            offsets[i] += factors[i][k] * (PE_BITS == 4 ? -8.0f : 0.0f);
        }
    }
    ptrdiff_t column = columns.begin;
    for (; column + PE_VL <= columns.end; column += PE_VL) {
        PE_FN(fetch)(bytes, column);
        PE_FN(vector)(sums + column, factors, offsets, bytes + column, scales + column, PE_VL,
                      first);
    }
#if PE_N % PE_VL
    if (column < columns.end) {
        const int lanes = PE_N % PE_VL;
        PE_FN(vector)(sums + column, factors, offsets, bytes + column, scales + column, lanes,
                      first);
    }
#endif
}

PE_INLINE void PE_FN(run)(const pe_worker *w, const PE_FN(io) * io, const float *a,
                          const uint8_t *bytes, const uint16_t *halves, float *sums) {
    const pe_range columns = pe_split(w, PE_N, 16); /* a line of sums belongs to one thread */
    float *scales = sums + PE_M * PE_PITCH;
    for (int block = 0; block < PE_K / PE_BLOCK; block++, halves += PE_N) {
        for (ptrdiff_t column = columns.begin; column < columns.end; column += PE_VL) {
            const int lanes = (int)(columns.end - column);
            pe_store(scales + column, pe_load_part_hf(halves + column, lanes));
        }
        for (int row = 0; row < PE_CODED_BYTES; row += PE_STEPS) {
            const float *first = a + block * PE_BLOCK + row;
            PE_FN(pass)(sums, first, bytes, scales, columns, block + row == 0);
            bytes += PE_STEPS * (ptrdiff_t)PE_N;
        }
    }
    for (int i = 0; i < PE_M; i++) {
        for (ptrdiff_t column = columns.begin; column < columns.end; column += PE_VL) {
            const int left = (int)(columns.end - column), lanes = left < PE_VL ? left : PE_VL;
            PE_FN(store)(io, pe_load(sums + i * PE_PITCH + column), i, (int)column, lanes);
        }
    }
}

#undef PE_BITS
#undef PE_CODED_BYTES
#undef PE_CODES
#undef PE_PITCH
#undef PE_STEPS
#include "undef.inc.h"
