/* Tiles of bf16 pairs (pe_bf16.h): a tile of 16 x 16 pairs by another gives 16 x 16 sums in f32.
 *
 * Intel's AMX multiplies two tiles with one instruction, after the process has requested the tile
 * registers from Linux. Without AMX, vector code multiplies the same tiles. A tile is 256
 * contiguous words: for A 16 rows of 16 step pairs, for B 16 step pairs of 16 columns. Rows,
 * columns and steps past the end of a matrix are zero.
 */
#ifndef PE_AMX_H
#define PE_AMX_H

#include "pe_bf16.h"
#include "pe_pool.h"
#include "pe_transpose.h"

#define PE_TILE_WORDS 256

/* Two groups of 16 lines in tiles; the second begins `next` words after the first. */
typedef struct pe_lines {
    const float *tiles;
    ptrdiff_t next;
} pe_lines;

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__linux__) &&                        \
    !defined(__SANITIZE_ADDRESS__)
#include <immintrin.h>
#include <sys/syscall.h>
#define PE_AMX_NATIVE 1

long syscall(long number, ...);

/* GCC does not know that tile instructions read memory: stores before this are not moved past it.
 */
#define PE_TILES_READ() __asm__ volatile("" ::: "memory")

/* Requests the tile registers for the process, and configures eight full tiles on this thread. */
PE_INLINE int pe_amx_begin(void) {
    enum { PE_REQUEST = 0x1023, PE_TILE_DATA = 18 }; /* arch_prctl's ARCH_REQ_XCOMP_PERM */
    if (syscall(SYS_arch_prctl, PE_REQUEST, PE_TILE_DATA)) {
        return 0; /* an old kernel, or a signal stack that is too small for the registers */
    }
    struct {
        uint8_t palette, start_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&shapes) : "memory"); /* the stores are not dead */
    _tile_loadconfig(&shapes);
    return 1;
}

PE_INLINE void pe_amx_end(const int tiles) {
    if (tiles) {
        _tile_release();
    }
}

PE_INLINE void pe_amx_multiply(float *sums, const pe_lines a, const pe_lines b, const int depth,
                               const int fresh) {
    PE_TILES_READ();
    if (fresh) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, 128);
        _tile_loadd(1, sums + 16, 128);
        _tile_loadd(2, sums + 512, 128);
        _tile_loadd(3, sums + 528, 128);
    }
    for (ptrdiff_t at = 0; at < depth * (ptrdiff_t)PE_TILE_WORDS; at += PE_TILE_WORDS) {
        _tile_loadd(4, a.tiles + at, 64);
        _tile_loadd(6, b.tiles + at, 64);
        _tile_loadd(7, b.tiles + b.next + at, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a.tiles + a.next + at, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 128);
    _tile_stored(1, sums + 16, 128);
    _tile_stored(2, sums + 512, 128);
    _tile_stored(3, sums + 528, 128);
}
#else
#define PE_AMX_NATIVE 0
PE_INLINE int pe_amx_begin(void) { return 0; }
PE_INLINE void pe_amx_end(const int tiles) { (void)tiles; }
PE_INLINE void pe_amx_multiply(float *sums, const pe_lines a, const pe_lines b, const int depth,
                               const int fresh) {
    (void)sums, (void)a, (void)b, (void)depth, (void)fresh;
}
#endif

/* Four rows of A by 32 columns of B. */
PE_INLINE void pe_tiles_by_vectors(float *sums, const float *a, const pe_lines b, const int depth,
                                   const int fresh) {
    pe_vf16 c[4][2];
    PE_UNROLL
    for (int i = 0; i < 8; i++) {
        c[i / 2][i % 2] = fresh ? pe_zero16() : pe_load16(sums + i / 2 * 32 + i % 2 * 16);
    }
    const float *left = b.tiles, *right = b.tiles + b.next;
    for (int k = 0; k < depth; k++, a += PE_TILE_WORDS) {
        for (int pair = 0; pair < 16; pair++, left += 16, right += 16) {
            const pe_vf16 first = pe_load16(left), second = pe_load16(right);
            PE_UNROLL
            for (int i = 0; i < 4; i++) {
                c[i][0] = pe_dot_pairs16(c[i][0], first, a[i * 16 + pair]);
                c[i][1] = pe_dot_pairs16(c[i][1], second, a[i * 16 + pair]);
            }
        }
    }
    PE_UNROLL
    for (int i = 0; i < 8; i++) {
        pe_store16(sums + i / 2 * 32 + i % 2 * 16, c[i / 2][i % 2]);
    }
}

/* sums[32][32] = the products of two groups of rows and two of columns over `depth` tiles; added to
 * what is there unless `fresh`. */
PE_INLINE void pe_multiply_tiles(const int tiles, float *sums, const pe_lines a, const pe_lines b,
                                 const int depth, const int fresh) {
    if (tiles) {
        pe_amx_multiply(sums, a, b, depth, fresh);
        return;
    }
    for (int row = 0; row < 32; row += 4) {
        const float *rows = a.tiles + row / 16 * a.next + row % 16 * 16;
        pe_tiles_by_vectors(sums + row * 32, rows, b, depth, fresh);
    }
}

/* Packs 16 lines of up to 32 contiguous steps as step pairs, line by line. */
PE_INLINE void pe_pack_lines(float *tile, const float *from, const ptrdiff_t pitch, const int lines,
                             const int steps) {
    for (int i = 0; i < 16; i++) {
        const float *line = from + i * pitch;
        const int first = i < lines ? (steps < 16 ? steps : 16) : 0;
        const int second = i < lines && steps > 16 ? steps - 16 : 0;
        const pe_vf16 low = first == 16 ? pe_load16(line) : pe_load_part16(line, first);
        const pe_vf16 high =
            second == 16 ? pe_load16(line + 16) : pe_load_part16(line + (second ? 16 : 0), second);
        pe_store_i16((int32_t *)tile + i * 16, pe_neighbor_pairs(low, high));
    }
}

/* Packs up to 32 steps of 16 lines, where the lines of a step are contiguous, as the lines of each
 * step pair. */
PE_INLINE void pe_pack_steps(float *tile, const float *from, const ptrdiff_t pitch, const int lines,
                             const int steps) {
    for (int i = 0; i < 16; i++) {
        const float *first = from + 2 * i * pitch;
        const int low = 2 * i < steps ? lines : 0, high = 2 * i + 1 < steps ? lines : 0;
        const pe_vf16 even = low == 16 ? pe_load16(first) : pe_load_part16(first, low);
        const pe_vf16 odd = high == 16 ? pe_load16(first + pitch)
                                       : pe_load_part16(first + (high ? pitch : 0), high);
        pe_store_i16((int32_t *)tile + i * 16, pe_step_pairs(even, odd));
    }
}

/* Packs one tile of up to 16 lines and 32 steps. `by_lines`: the steps of a line are contiguous in
 * memory, else the lines of a step are. `turned`: rows of the tile are step pairs, as in the tiles
 * of B. */
PE_INLINE void pe_pack_tile(float *tile, const float *from, const ptrdiff_t pitch,
                            const int by_lines, const int turned, const int lines,
                            const int steps) {
    _Alignas(64) float straight[PE_TILE_WORDS];
    float *to = by_lines == turned ? straight : tile;
    if (by_lines) {
        pe_pack_lines(to, from, pitch, lines, steps);
    } else {
        pe_pack_steps(to, from, pitch, lines, steps);
    }
    if (by_lines == turned) {
        pe_transpose(tile, 16, straight, 16, 16, 16, 8);
    }
}

/* Packs all steps of `count` groups of 16 lines, out of `lines` lines, in source order. */
PE_INLINE void pe_pack_tiles(const ptrdiff_t count, float *tiles, const float *from,
                             const ptrdiff_t pitch, const int by_lines, const int turned,
                             const ptrdiff_t lines, const ptrdiff_t steps) {
    const ptrdiff_t depth = (steps + 31) / 32;
    for (ptrdiff_t n = 0; n < count * depth; n++) {
        const ptrdiff_t i = by_lines ? n / depth : n % count;
        const ptrdiff_t k = (by_lines ? n % depth : n / count) * 32;
        const ptrdiff_t left = lines - 16 * i, rest = steps - k;
        const ptrdiff_t first = left > 0 ? 16 * i : 0;
        pe_pack_tile(tiles + (i * depth + k / 32) * PE_TILE_WORDS,
                     from + (by_lines ? first * pitch + k : k * pitch + first), pitch, by_lines,
                     turned,
                     (int)(left > 16  ? 16
                           : left > 0 ? left
                                      : 0),
                     (int)(rest < 32 ? rest : 32));
    }
}

/* Packs 32 steps of two groups of columns that are bf16 already; the second tile begins `next`
 * words further. `by_lines`: the steps of a column are contiguous in memory, else the columns of a
 * step are. */
PE_INLINE void pe_pack_bf16(float *tile, const ptrdiff_t next, const uint16_t *from,
                            const ptrdiff_t pitch, const int by_lines) {
    typedef short halves __attribute__((vector_size(64)));
    if (by_lines) {
        _Alignas(64) float straight[PE_TILE_WORDS];
        for (int group = 0; group < 2; group++) {
            for (int i = 0; i < 16; i++) {
                memcpy(straight + 16 * i, from + (16 * group + i) * pitch, 64);
            }
            pe_transpose(tile + group * next, 16, straight, 16, 16, 16, 8);
        }
        return;
    }
    for (int i = 0; i < 16; i++) {
        halves even, odd;
        memcpy(&even, from + 2 * i * pitch, sizeof even);
        memcpy(&odd, from + (2 * i + 1) * pitch, sizeof odd);
        const halves left =
            PE_SHUFFLE(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9,
                       41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
        const halves right =
            PE_SHUFFLE(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
        memcpy(tile + 16 * i, &left, sizeof left);
        memcpy(tile + next + 16 * i, &right, sizeof right);
    }
}

#endif
