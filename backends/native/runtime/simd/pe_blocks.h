/* Weights stored as integers in blocks of 32 that share an f16 scale (compiler/ir/blocks.py).
 *
 * A tensor is [outer, blocks, 32, inner]: `inner` elements lie after the axis of the blocks. 8-bit
 * codes are signed bytes. With 4 bits, a byte has codes i and i + 16 of its block, each plus 8.
 */
#ifndef PE_BLOCKS_H
#define PE_BLOCKS_H

#include <stdint.h>

#include "pe_vec.h"
#include "pe_worker.h"

enum { PE_BLOCK = 32, PE_BLOCK_COLUMNS = 64 };

/* Scales of up to PE_BLOCK_COLUMNS neighbors. */
PE_INLINE void pe_widen_scales(float *to, const uint16_t *scales, int n) {
    for (int i = 0; i < n; i += 4) {
        pe_store_part4(to + i, pe_load_part_hf4(scales + i, n - i), n - i);
    }
}

PE_INLINE void pe_decode_block8(float *restrict y, const int8_t *restrict codes,
                                const float *restrict scale, ptrdiff_t inner, int n) {
    for (int k = 0; k < PE_BLOCK; k++) {
        for (int i = 0; i < n; i++) {
            y[k * inner + i] = (float)codes[k * inner + i] * scale[i];
        }
    }
}

PE_INLINE void pe_decode_block4(float *restrict y, const uint8_t *restrict codes,
                                const float *restrict scale, ptrdiff_t inner, int n) {
    for (int k = 0; k < PE_BLOCK / 2; k++) {
        for (int i = 0; i < n; i++) {
            const int pair = codes[k * inner + i];
            y[k * inner + i] = (float)((pair & 15) - 8) * scale[i];
            y[(k + PE_BLOCK / 2) * inner + i] = (float)((pair >> 4) - 8) * scale[i];
        }
    }
}

/* Decodes all blocks; threads share the blocks and the elements after the axis. */
#define PE_DECODE_BLOCKS(BITS, CODE)                                                               \
    PE_INLINE void pe_decode_blocks##BITS(const pe_worker *w, const CODE *codes,                   \
                                          const uint16_t *scales, float *y,                        \
                                          const ptrdiff_t blocks, const ptrdiff_t inner) {         \
        const ptrdiff_t parts = (inner + PE_BLOCK_COLUMNS - 1) / PE_BLOCK_COLUMNS;                 \
        const pe_range share = pe_split(w, blocks * parts, 1);                                     \
        for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {                             \
            const ptrdiff_t block = unit / parts, column = unit % parts * PE_BLOCK_COLUMNS;        \
            const ptrdiff_t left = inner - column;                                                 \
            const int n = left < PE_BLOCK_COLUMNS ? (int)left : PE_BLOCK_COLUMNS;                  \
            float scale[PE_BLOCK_COLUMNS];                                                         \
            pe_widen_scales(scale, scales + block * inner + column, n);                            \
            pe_decode_block##BITS(y + block * PE_BLOCK * inner + column,                           \
                                  codes + block * (PE_BLOCK * BITS / 8) * inner + column, scale,   \
                                  inner, n);                                                       \
        }                                                                                          \
    }
PE_DECODE_BLOCKS(8, int8_t)
PE_DECODE_BLOCKS(4, uint8_t)

/* Decodes blocks whose numbers are contiguous (inner = 1). */
#define PE_DECODE_ROWS(BITS, CODE)                                                                 \
    PE_INLINE void pe_decode_rows##BITS(const pe_worker *w, const CODE *codes,                     \
                                        const uint16_t *scales, float *y,                          \
                                        const ptrdiff_t blocks) {                                  \
        const pe_range share = pe_split(w, blocks, 8);                                             \
        for (ptrdiff_t block = share.begin; block < share.end; block++) {                          \
            const float scale = pe_load_part_hf4(scales + block, 1)[0];                            \
            pe_decode_row##BITS(y + block * PE_BLOCK, codes + block * (PE_BLOCK * BITS / 8),       \
                                scale);                                                            \
        }                                                                                          \
    }

PE_INLINE void pe_decode_row8(float *restrict y, const int8_t *restrict codes, float scale) {
    for (int i = 0; i < PE_BLOCK; i++) {
        y[i] = (float)codes[i] * scale;
    }
}

PE_INLINE void pe_decode_row4(float *restrict y, const uint8_t *restrict codes, float scale) {
    for (int i = 0; i < PE_BLOCK / 2; i++) {
        y[i] = (float)((codes[i] & 15) - 8) * scale;
        y[i + PE_BLOCK / 2] = (float)((codes[i] >> 4) - 8) * scale;
    }
}
PE_DECODE_ROWS(8, int8_t)
PE_DECODE_ROWS(4, uint8_t)

#endif
