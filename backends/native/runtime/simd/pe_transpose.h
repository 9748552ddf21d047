/* Transposition of f32 matrices through registers.
 *
 * Blocks of 8x8 (4x4 with 4 lanes) are read by rows, shuffled, and written by columns: three to
 * four times as fast as element by element. Borders are copied element by element.
 */
#ifndef PE_TRANSPOSE_H
#define PE_TRANSPOSE_H

#include <stddef.h>

#include "pe_vec.h"

#define PE_SHUFFLE __builtin_shufflevector

PE_INLINE void pe_transpose_block4(float *to, ptrdiff_t to_pitch, const float *from,
                                   ptrdiff_t from_pitch) {
    pe_vf4 row[4], pair[4];
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        row[i] = pe_load4(from + i * from_pitch);
    }
    PE_UNROLL
    for (int i = 0; i < 2; i++) {
        pair[2 * i] = PE_SHUFFLE(row[2 * i], row[2 * i + 1], 0, 4, 2, 6);
        pair[2 * i + 1] = PE_SHUFFLE(row[2 * i], row[2 * i + 1], 1, 5, 3, 7);
    }
    PE_UNROLL
    for (int i = 0; i < 2; i++) {
        pe_store4(to + i * to_pitch, PE_SHUFFLE(pair[i], pair[i + 2], 0, 1, 4, 5));
        pe_store4(to + (i + 2) * to_pitch, PE_SHUFFLE(pair[i], pair[i + 2], 2, 3, 6, 7));
    }
}

/* Writes the columns of eight rows, in ascending order. */
PE_INLINE void pe_store_columns8(float *to, ptrdiff_t to_pitch, pe_vf8 row[8]) {
    pe_vf8 pair[8];
    PE_UNROLL
    for (int i = 0; i < 8; i += 2) { /* exchange single elements between neighboring rows */
        pair[i] = PE_SHUFFLE(row[i], row[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        pair[i + 1] = PE_SHUFFLE(row[i], row[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    PE_UNROLL
    for (int i = 0; i < 8; i++) { /* then pairs */
        const int q = i / 4 * 4 + i % 2;
        row[i] = i % 4 < 2 ? PE_SHUFFLE(pair[q], pair[q + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                           : PE_SHUFFLE(pair[q], pair[q + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    PE_UNROLL
    for (int i = 0; i < 4; i++) { /* then halves */
        pe_store8(to + i * to_pitch, PE_SHUFFLE(row[i], row[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    }
    PE_UNROLL
    for (int i = 0; i < 4; i++) {
        pe_store8(to + (i + 4) * to_pitch,
                  PE_SHUFFLE(row[i], row[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

PE_INLINE void pe_transpose_block8(float *to, ptrdiff_t to_pitch, const float *from,
                                   ptrdiff_t from_pitch) {
    pe_vf8 row[8];
    PE_UNROLL
    for (int i = 0; i < 8; i++) {
        row[i] = pe_load8(from + i * from_pitch);
    }
    pe_store_columns8(to, to_pitch, row);
}

#if PE_NEON
/* Interleaves three rows, such as the channels of an image, to triples. Returns the number of
 * columns written, in whole vectors. */
PE_INLINE ptrdiff_t pe_interleave3(float *to, const float *from, ptrdiff_t pitch,
                                   ptrdiff_t columns) {
    ptrdiff_t j = 0;
    for (; j + 4 <= columns; j += 4) {
        const float *at = from + j;
        const float32x4x3_t rows = {
            {vld1q_f32(at), vld1q_f32(at + pitch), vld1q_f32(at + 2 * pitch)}};
        vst3q_f32(to + 3 * j, rows);
    }
    return j;
}
#endif

/* to[j][i] = from[i][j] for rows x columns of `from`; pitches in elements. */
PE_INLINE void pe_transpose(float *restrict to, ptrdiff_t to_pitch, const float *restrict from,
                            ptrdiff_t from_pitch, ptrdiff_t rows, ptrdiff_t columns, int block) {
    const ptrdiff_t whole_rows = rows / block * block, whole_columns = columns / block * block;
    for (ptrdiff_t i = 0; i < whole_rows; i += block) {
        for (ptrdiff_t j = 0; j < whole_columns; j += block) {
            float *target = to + j * to_pitch + i;
            const float *source = from + i * from_pitch + j;
            if (block == 8) {
                pe_transpose_block8(target, to_pitch, source, from_pitch);
            } else {
                pe_transpose_block4(target, to_pitch, source, from_pitch);
            }
        }
    }
    ptrdiff_t done = 0;
#if PE_NEON
    if (rows == 3 && to_pitch == 3) {
        done = pe_interleave3(to, from, from_pitch, columns);
    }
#endif
    for (ptrdiff_t i = 0; i < rows; i++) {
        for (ptrdiff_t j = i < whole_rows ? whole_columns : done; j < columns; j++) {
            to[j * to_pitch + i] = from[i * from_pitch + j];
        }
    }
}

/* to[j * rows + i] = from[i][j]: the `rows` of a tile (a constant, at most 16), step by step. */
PE_INLINE void pe_transpose_tile(float *restrict to, const float *restrict from,
                                 ptrdiff_t from_pitch, const int rows, ptrdiff_t columns) {
    /* Steps that the stores of 8 steps may write: unused lanes of one reach into later ones, which
     * overwrite them. */
    const ptrdiff_t touched = 7 + (7 + rows) / rows;
    ptrdiff_t j = 0;
    for (; j + touched <= columns; j += 8) {
        pe_vf8 row[8];
        PE_UNROLL
        for (int i = 0; i < 8; i++) {
            row[i] = pe_load8(from + (i < rows ? i : 0) * from_pitch + j);
        }
        pe_store_columns8(to + j * rows, rows, row);
        if (rows > 8) {
            PE_UNROLL
            for (int i = 0; i < 8; i++) {
                row[i] = pe_load8(from + (rows - 8 + i) * from_pitch + j);
            }
            pe_store_columns8(to + j * rows + rows - 8, rows, row);
        }
    }
    for (; j < columns; j++) {
        for (int i = 0; i < rows; i++) {
            to[j * rows + i] = from[i * from_pitch + j];
        }
    }
}

/* Transposes bytes with few rows, such as the channels of input images. */
PE_INLINE void pe_transpose_bytes(int8_t *restrict to, ptrdiff_t to_pitch,
                                  const int8_t *restrict from, ptrdiff_t from_pitch, ptrdiff_t rows,
                                  ptrdiff_t columns) {
    for (ptrdiff_t j = 0; j < columns; j++) {
        for (ptrdiff_t i = 0; i < rows; i++) {
            to[j * to_pitch + i] = from[i * from_pitch + j];
        }
    }
}

#endif
