/* Gradient of a 3x3 convolution of stride 1 with respect to its weights, by Winograd's method.
 *
 * Tiles of r x r pixels of dy and their windows of x are transformed to (r + 2)^2 points, where the
 * sum over tiles is one matrix multiply per point: channels x tiles times tiles x columns. At the
 * end the sums of a block of channels and a panel of columns are transformed back to the 3 x 3
 * taps. Tiles are processed in blocks; if there are several, all sums stay in scratch.
 *
 * Threads share the tiles, each with its own sums, which are added at the end; or the panels, and
 * transform each block of tiles together.
 *
 * Parameters, besides those of winograd_points.inc.h and gemm_tile.inc.h:
 *   PE_IMAGES               batch
 *   PE_M, PE_OTHER_M        channels in a block, and in the last one
 *   PE_BLOCK                tiles in a block
 *   PE_GRADIENT_PITCH       floats from one tile's columns to the next's, in transformed dy
 *   PE_WINDOW_PLANE, PE_GRADIENT_PLANE, PE_PRODUCT_PLANE   floats from one point to the next
 *   PE_SPLIT, PE_THREADS    as in gemm.inc.h: INNER shares tiles, COLUMNS panels
 *   PE_SHARED_FLOATS, PE_OWN_FLOATS   scratch of all threads, and of each: 0 if the sums of all
 *                           panels wait in the shared one
 */

#if !defined(PE_N) || !defined(PE_OWN_FLOATS) || !defined(PE_SPLIT) || !defined(PE_TILE) ||        \
    !defined(PE_VL)
#error "winograd_dw.inc.h needs PE_N, PE_OWN_FLOATS, PE_SPLIT, PE_TILE and PE_VL"
#endif

#define PE_A_ROW 1
#define PE_A_STEP PE_WINDOW_PITCH
#define PE_B_PITCH PE_GRADIENT_PITCH
#define PE_B_TRANSPOSED 0
#define PE_OUTPUT_ROW(i) (i)
#define PE_PARTIAL 1 /* sums are stored in the planes, not by the epilogue */
#define PE_PARTIAL_PITCH PE_NR
#define PE_SEGMENTED 0
#include "team.inc.h"

#undef PE_AHEAD /* products are not results */
#include "gemm_tile.inc.h"
#include "winograd_points.inc.h"

#define PE_ALL_TILES (PE_IMAGES * PE_TILES_H * PE_TILES_W)
#define PE_CHANNEL_BLOCKS ((PE_SOURCE_C + PE_M - 1) / PE_M)
#define PE_SUMS (PE_PLANES * (ptrdiff_t)PE_PRODUCT_PLANE) /* of a block of channels and a panel */

/* r neighbors of dy, to the points. */
PE_INLINE void PE_FN(gradient_to_points)(pe_vf *p, const pe_vf *y) {
#if PE_TILE == 2
    p[0] = y[0];
    p[1] = 0.5f * (y[0] + y[1]);
    p[2] = 0.5f * (y[0] - y[1]);
    p[3] = y[1];
#else
    const pe_vf even = (-1.0f / 6.0f) * (y[0] + y[2]), odd = (1.0f / 6.0f) * (y[1] + y[3]);
    const pe_vf even2 = (1.0f / 24.0f) * y[0] + (1.0f / 6.0f) * y[2];
    const pe_vf odd2 = (1.0f / 12.0f) * y[1] + (1.0f / 3.0f) * y[3];
    p[0] = 0.25f * y[0];
    p[1] = even - odd;
    p[2] = even + odd;
    p[3] = even2 + odd2;
    p[4] = even2 - odd2;
    p[5] = y[3];
#endif
}

/* Sums at the points, to the 3 taps. */
PE_INLINE void PE_FN(points_to_taps)(pe_vf *f, const pe_vf *p) {
#if PE_TILE == 2
    f[0] = p[0] + p[1] + p[2];
    f[1] = p[1] - p[2];
    f[2] = p[1] + p[2] - p[3];
#else
    const pe_vf sum = p[1] + p[2], sum2 = p[3] + p[4];
    f[0] = p[0] + sum + sum2;
    f[1] = p[1] - p[2] + 2.0f * (p[3] - p[4]);
    f[2] = sum + 4.0f * sum2 + p[5];
#endif
}

/* One vector of columns of a tile of dy, to a row of each of the planes. */
PE_INLINE void PE_FN(gradient_vector)(float *to, const float *const *pixels, const int column,
                                      const int lanes) {
    pe_vf half[PE_TILE][PE_POINTS];
    PE_UNROLL
    for (int i = 0; i < PE_TILE; i++) {
        pe_vf line[PE_TILE];
        PE_UNROLL
        for (int j = 0; j < PE_TILE; j++) {
            line[j] = pe_load_part(pixels[i * PE_TILE + j] + column, lanes);
        }
        PE_FN(gradient_to_points)(half[i], line);
    }
    PE_UNROLL
    for (int j = 0; j < PE_POINTS; j++) {
        pe_vf line[PE_TILE], points[PE_POINTS];
        PE_UNROLL
        for (int i = 0; i < PE_TILE; i++) {
            line[i] = half[i][j];
        }
        PE_FN(gradient_to_points)(points, line);
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            pe_store(to + (i * PE_POINTS + j) * (ptrdiff_t)PE_GRADIENT_PLANE + column, points[i]);
        }
    }
}

/* Tiles `begin` to `end` of dy: row t of each plane gets the columns of tile begin + t. */
PE_INLINE void PE_FN(transform_gradients)(float *to, const float *dy, const ptrdiff_t begin,
                                          const ptrdiff_t end) {
    enum { whole = PE_N / PE_VL * PE_VL, of_image = PE_TILES_H * PE_TILES_W };
    for (ptrdiff_t tile = begin; tile < end; tile++, to += PE_GRADIENT_PITCH) {
        const int image = (int)(tile / of_image), place = (int)(tile % of_image);
        const float *pixels[PE_TILE * PE_TILE];
        const float *from = dy + image * ((ptrdiff_t)PE_OUT_H * PE_OUT_W * PE_N);
        PE_FN(find_pixels)(pixels, from, PE_OUT_H, PE_OUT_W, PE_N, place / PE_TILES_W * PE_TILE,
                           place % PE_TILES_W * PE_TILE, PE_TILE);
        for (int column = 0; column < whole; column += PE_VL) {
            PE_FN(gradient_vector)(to, pixels, column, PE_VL);
        }
#if PE_N % PE_VL
        PE_FN(gradient_vector)(to, pixels, whole, PE_N % PE_VL);
#endif
    }
}

/* Adds `count` tiles to the sums of a block of channels and a panel, or starts them. */
PE_INLINE void PE_FN(add_tiles)(float *sums, const float *windows, const float *gradients,
                                const int count, const int block, const int panel,
                                const int first) {
    PE_FN(block_args) t = {.depth = count, .first = first};
    t.row_end = block == PE_CHANNEL_BLOCKS - 1 ? PE_OTHER_M : PE_M;
    for (int point = 0; point < PE_PLANES; point++) {
        t.a = windows + point * (ptrdiff_t)PE_WINDOW_PLANE + block * PE_M;
        t.b = gradients + point * (ptrdiff_t)PE_GRADIENT_PLANE + panel * PE_NR;
        t.partial = sums + point * (ptrdiff_t)PE_PRODUCT_PLANE;
#if PE_TAIL_COLUMNS
        if (panel == PE_PANELS - 1) {
            PE_FN(panel)(&t, 0, PE_TAIL_VECTORS, PE_VL);
            continue;
        }
#endif
        PE_FN(panel)(&t, 0, PE_NV, PE_VL);
    }
}

/* A vector of a channel's sums, of `parts` threads, to the taps. */
PE_INLINE void PE_FN(store_taps)(const PE_FN(io) * io, const float *sums, const int parts,
                                 const int channel, const int column, const int lanes) {
    pe_vf half[3][PE_POINTS];
    PE_UNROLL
    for (int j = 0; j < PE_POINTS; j++) {
        pe_vf points[PE_POINTS], taps[3];
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            const float *sum = sums + (i * PE_POINTS + j) * (ptrdiff_t)PE_PRODUCT_PLANE;
            points[i] = pe_load(sum);
            for (int part = 1; part < parts; part++) {
                points[i] += pe_load(sum + part * (ptrdiff_t)PE_OWN_FLOATS);
            }
        }
        PE_FN(points_to_taps)(taps, points);
        PE_UNROLL
        for (int i = 0; i < 3; i++) {
            half[i][j] = taps[i];
        }
    }
    PE_UNROLL
    for (int i = 0; i < 3; i++) {
        pe_vf taps[3];
        PE_FN(points_to_taps)(taps, half[i]);
        PE_UNROLL
        for (int j = 0; j < 3; j++) {
            const ptrdiff_t row = (i * 3 + j) * (ptrdiff_t)PE_SOURCE_C + channel;
            PE_FN(store)(io, taps[j], row, column, lanes);
        }
    }
}

/* Channels `begin` to `end` of a block and a panel. */
PE_INLINE void PE_FN(finish)(const PE_FN(io) * io, const float *sums, const int parts,
                             const int block, const int panel, const int begin, const int end) {
    const int first = panel * PE_NR, rest = PE_N - first;
    const int columns = rest < PE_NR ? rest : PE_NR;
    for (int i = begin; i < end; i++) {
        const float *row = sums + i * (ptrdiff_t)PE_NR;
        int column = 0;
        for (; column + PE_VL <= columns; column += PE_VL) {
            PE_FN(store_taps)(io, row + column, parts, block * PE_M + i, first + column, PE_VL);
        }
#if PE_N % PE_VL
        if (column < columns) {
            PE_FN(store_taps)(io, row + column, parts, block * PE_M + i, first + column,
                              PE_N % PE_VL);
        }
#endif
    }
}

#if PE_SPLIT == PE_SPLIT_COLUMNS

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *windows) {
    float *gradients = windows + PE_PLANES * (ptrdiff_t)PE_WINDOW_PLANE;
#if PE_OWN_FLOATS
    float *const own = windows + PE_SHARED_FLOATS +
                       (w->index < PE_THREADS ? w->index : 0) * (ptrdiff_t)PE_OWN_FLOATS;
#else
    float *const waiting = gradients + PE_PLANES * (ptrdiff_t)PE_GRADIENT_PLANE;
#endif
    const pe_range panels = PE_FN(share)(w, PE_PANELS, 1);
    for (int tile = 0; tile < PE_ALL_TILES; tile += PE_BLOCK) {
        const int rest = PE_ALL_TILES - tile, count = rest < PE_BLOCK ? rest : PE_BLOCK;
        const pe_range mine = pe_split(w, count, 1);
        if (tile > 0) {
            pe_barrier(w); /* all threads have finished reading the previous block */
        }
        PE_FN(transform_windows)(windows + mine.begin * PE_WINDOW_PITCH, PE_WINDOW_PLANE, x,
                                 tile + mine.begin, tile + mine.end);
        PE_FN(transform_gradients)(gradients + mine.begin * PE_GRADIENT_PITCH, dy,
                                   tile + mine.begin, tile + mine.end);
        pe_barrier(w);
        for (int panel = (int)panels.begin; panel < panels.end; panel++) {
            for (int block = 0; block < PE_CHANNEL_BLOCKS; block++) {
                const int channels = block == PE_CHANNEL_BLOCKS - 1 ? PE_OTHER_M : PE_M;
#if PE_OWN_FLOATS
                float *const sums = own;
#else
                float *const sums = waiting + (panel * PE_CHANNEL_BLOCKS + block) * PE_SUMS;
#endif
                PE_FN(add_tiles)(sums, windows, gradients, count, block, panel, tile == 0);
                if (count == rest) {
                    PE_FN(finish)(io, sums, 1, block, panel, 0, channels);
                }
            }
        }
    }
}

#else

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *x, const float *dy,
                          float *scratch) {
    enum { units = PE_PANELS * PE_CHANNEL_BLOCKS };
    const pe_range mine = PE_FN(share)(w, PE_ALL_TILES, 1);
    float *sums = scratch + (w->index < PE_THREADS ? w->index : 0) * (ptrdiff_t)PE_OWN_FLOATS;
    float *windows = sums + units * PE_SUMS;
    float *gradients = windows + PE_PLANES * (ptrdiff_t)PE_WINDOW_PLANE;
    if (mine.begin == mine.end && w->index < PE_THREADS) {
        memset(sums, 0, units * (size_t)PE_SUMS * sizeof *sums);
    }
    for (ptrdiff_t tile = mine.begin; tile < mine.end; tile += PE_BLOCK) {
        const ptrdiff_t end = mine.end - tile < PE_BLOCK ? mine.end : tile + PE_BLOCK;
        PE_FN(transform_windows)(windows, PE_WINDOW_PLANE, x, tile, end);
        PE_FN(transform_gradients)(gradients, dy, tile, end);
        for (int unit = 0; unit < units; unit++) {
            PE_FN(add_tiles)(sums + unit * PE_SUMS, windows, gradients, (int)(end - tile),
                             unit % PE_CHANNEL_BLOCKS, unit / PE_CHANNEL_BLOCKS,
                             tile == mine.begin);
        }
    }
    pe_barrier(w);
    const int parts = w->count < PE_THREADS ? w->count : PE_THREADS;
    for (int unit = 0; unit < units; unit++) {
        const int block = unit % PE_CHANNEL_BLOCKS;
        const pe_range rows = pe_split(w, block == PE_CHANNEL_BLOCKS - 1 ? PE_OTHER_M : PE_M, 1);
        PE_FN(finish)(io, scratch + unit * PE_SUMS, parts, block, unit / PE_CHANNEL_BLOCKS,
                      (int)rows.begin, (int)rows.end);
    }
}

#endif

#undef PE_ALL_TILES
#undef PE_CHANNEL_BLOCKS
#undef PE_PLANES
#undef PE_POINTS
#undef PE_SUMS
#include "undef.inc.h"
