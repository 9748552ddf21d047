/* A B that is stored in 16 bits, or in blocks of 8 or 4 (pe_blocks.h): each panel is decoded into
 * scratch before its use, so the whole B never exists. gemm_tile.inc.h includes this file.
 *
 * What is stored is a matrix S: B, or with PE_B_TRANSPOSED its transpose. Parameters, besides those
 * of gemm_tile.inc.h:
 *   PE_S_PITCH     columns of S
 *   PE_B_BITS      of a code: 16, 8 or 4
 *   PE_CODES(io)   where the codes are
 *   PE_LOAD_B(p, n)  of 16 bits: loads neighboring numbers
 *   PE_SCALES(io)  of blocks: where the scales are
 *   PE_B_ALONG     of blocks, 1: they lie along S's rows, whose numbers they contain; 0: along its
 *                  columns
 */

#if !defined(PE_CODES) || !defined(PE_B_BITS) || !defined(PE_S_PITCH) ||                           \
    !defined(PE_B_TRANSPOSED) || !defined(PE_B_DECODED)
#error "gemm_decode_panel.inc.h needs PE_CODES, PE_B_BITS, PE_S_PITCH, and gemm_tile.inc.h's"
#endif
#ifndef PE_SCALES
#define PE_SCALES(io) ((void)(io), (const uint16_t *)NULL)
#define PE_B_ALONG 0
#endif

#include "pe_blocks.h"

/* Codes of a block of 4 bits in the low halves of its bytes. */
#define PE_LOW_CODES (PE_BLOCK / 2)

/* Where the code of S[row][column] is, and the first scale of the row. */
PE_INLINE const uint8_t *PE_FN(code)(const PE_FN(io) * io, const ptrdiff_t row,
                                     const ptrdiff_t column) {
    const uint8_t *codes = (const uint8_t *)PE_CODES(io);
    if (PE_B_BITS >= 8) {
        return codes + (row * PE_S_PITCH + column) * (PE_B_BITS / 8);
    }
    if (PE_B_ALONG) {
        const ptrdiff_t block = row * (PE_S_PITCH / PE_BLOCK) + column / PE_BLOCK;
        return codes + block * PE_LOW_CODES + column % PE_LOW_CODES;
    }
    const ptrdiff_t bytes = row / PE_BLOCK * PE_LOW_CODES + row % PE_LOW_CODES;
    return codes + bytes * PE_S_PITCH + column;
}

PE_INLINE const uint16_t *PE_FN(row_scales)(const PE_FN(io) * io, const ptrdiff_t row) {
    const uint16_t *scales = PE_SCALES(io);
    return PE_B_ALONG ? scales + row * (PE_S_PITCH / PE_BLOCK)
                      : scales + row / PE_BLOCK * PE_S_PITCH;
}

/* Bits below a 4-bit code in its byte, which depend on its place in the block. */
PE_INLINE int PE_FN(shift)(const ptrdiff_t place) {
    return place % PE_BLOCK < PE_LOW_CODES ? 0 : 4;
}

/* What neighboring codes stand for. */
PE_INLINE pe_vf PE_FN(decoded)(const uint8_t *code, const int shift, const pe_vf scale,
                               const int lanes) {
    (void)shift, (void)scale;
#if PE_B_BITS == 16
    return PE_LOAD_B((const uint16_t *)code, lanes);
#elif PE_B_BITS == 8
    return pe_to_f(pe_load_part_sb((const int8_t *)code, lanes)) * scale;
#else
    return pe_to_f(((pe_load_part_ub(code, lanes) >> shift) & 15) - 8) * scale;
#endif
}

/* Scales of up to PE_BLOCK neighbors of a row of S; if the blocks lie along the row, the first
 * belongs to all of them. */
PE_INLINE void PE_FN(part_scales)(const PE_FN(io) * io, float *scales, const ptrdiff_t row,
                                  const ptrdiff_t column, const int count) {
    (void)count;
#if PE_B_BITS < 16
    const uint16_t *halves = PE_FN(row_scales)(io, row);
    pe_widen_scales(scales, halves + (PE_B_ALONG ? column / PE_BLOCK : column),
                    PE_B_ALONG ? 1 : count);
#else
    (void)io, (void)scales, (void)row, (void)column;
#endif
}

/* Decodes up to PE_BLOCK neighbors of a row of S. */
PE_INLINE void PE_FN(decode_part)(const PE_FN(io) * io, float *to, const ptrdiff_t row,
                                  const ptrdiff_t column, const float *scales, const int count) {
    PE_UNROLL
    for (int i = 0; i < PE_BLOCK; i += PE_VL) {
        const int lanes = count - i < PE_VL ? count - i : PE_VL;
        if (lanes <= 0) {
            break;
        }
        const int shift = PE_FN(shift)(PE_B_ALONG ? column + i : row);
        const pe_vf scale = PE_B_ALONG ? pe_splat(scales[0]) : pe_load(scales + i);
        const uint8_t *code = PE_FN(code)(io, row, column + i);
        pe_store(to + i, PE_FN(decoded)(code, shift, scale, lanes));
    }
}

#if PE_B_DECODED && PE_B_TRANSPOSED

/* Decodes `columns` rows of S from `first` on, PE_BLOCK steps at a time, and transposes them. */
PE_INLINE void PE_FN(decode_panel)(const PE_FN(block_args) * t, const ptrdiff_t first,
                                   const int columns) {
    float rows[PE_NR * PE_BLOCK], scales[PE_NR > PE_BLOCK ? PE_NR : PE_BLOCK] = {0};
    uint16_t halves[PE_NR];
    for (int k = 0; k < t->depth; k += PE_BLOCK) {
        const ptrdiff_t step = t->step + k;
        const int count = t->depth - k < PE_BLOCK ? t->depth - k : PE_BLOCK;
        if (PE_B_ALONG) {
            for (int j = 0; j < columns; j++) {
                halves[j] = PE_FN(row_scales)(t->io, first + j)[step / PE_BLOCK];
            }
            pe_widen_scales(scales, halves, columns);
        }
        for (int j = 0; j < columns; j++) {
            if (!PE_B_ALONG && (j == 0 || (first + j) % PE_BLOCK == 0)) {
                PE_FN(part_scales)(t->io, scales, first + j, step, count);
            }
            PE_FN(decode_part)(t->io, rows + j * PE_BLOCK, first + j, step,
                               PE_B_ALONG ? scales + j : scales, count);
        }
        pe_transpose(t->panel + k * PE_NR, PE_NR, rows, PE_BLOCK, columns, count,
                     PE_VL >= 8 ? 8 : 4);
    }
}

#elif PE_B_DECODED

/* Decodes `columns` columns of S from `first` on, row by row, PE_BLOCK rows at a time. */
PE_INLINE void PE_FN(decode_panel)(const PE_FN(block_args) * t, const ptrdiff_t first,
                                   const int columns) {
    const int vectors = (columns + PE_VL - 1) / PE_VL;
    for (int k = 0; k < t->depth; k += PE_BLOCK) {
        const ptrdiff_t step = t->step + k;
        const int count = t->depth - k < PE_BLOCK ? t->depth - k : PE_BLOCK;
        for (int j = 0; j < vectors; j++) {
            const ptrdiff_t column = first + j * PE_VL;
            const int lanes = columns - j * PE_VL < PE_VL ? columns - j * PE_VL : PE_VL;
            float scales[PE_BLOCK] = {0};
            if (PE_B_ALONG) {
                uint16_t halves[PE_BLOCK];
                for (int i = 0; i < count; i++) {
                    halves[i] = PE_FN(row_scales)(t->io, step + i)[column / PE_BLOCK];
                }
                pe_widen_scales(scales, halves, count);
            } else if (PE_B_BITS < 16) {
                pe_store(scales, pe_load_part_hf(PE_FN(row_scales)(t->io, step) + column, lanes));
            }
            float *to = t->panel + k * PE_NR + j * PE_VL;
            for (int i = 0; i < count; i++) {
                const int shift = PE_FN(shift)(PE_B_ALONG ? column : step + i);
                const pe_vf scale = PE_B_ALONG ? pe_splat(scales[i]) : pe_load(scales);
                const uint8_t *code = PE_FN(code)(t->io, step + i, column);
                pe_store(to + i * PE_NR, PE_FN(decoded)(code, shift, scale, lanes));
            }
        }
    }
}

#endif
