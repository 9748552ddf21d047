/* A 3x3 convolution of stride 1, or its gradient with respect to the input, by Winograd's method.
 *
 * Result tiles of r x r pixels see windows of (r + 2) x (r + 2). Windows and filters are
 * transformed to (r + 2)^2 points (winograd_points.inc.h), where the convolution is one matrix
 * multiply per point: tiles x channels times channels x columns. Windows are stored in planes, one
 * for each point; filters in panels of columns, point by point. The products of a block of tiles
 * and one panel stay in the cache until they are transformed back to pixels and passed to the
 * epilogue.
 *
 * The input's gradient is the same computation on dy, with flipped and transposed filters. Threads
 * share the blocks, and first transform the filters together; or the panels, each with its own
 * filters, and first transform the windows together. Prepared filters (winograd_prepare.inc.h)
 * replace the weights, all panels of them.
 *
 * Parameters, besides those of winograd_points.inc.h, winograd_filters.inc.h and gemm_tile.inc.h:
 *   PE_IMAGES               batch
 *   PE_M, PE_OTHER_M        tiles in a block, and in the last one
 *   PE_PREPARED             defined if `weights` are prepared filters
 *   PE_WINDOW_PLANE, PE_PRODUCT_PLANE   floats from one point to the next
 *   PE_SPLIT, PE_THREADS    as in gemm.inc.h: ROWS shares blocks, COLUMNS panels
 *   PE_SHARED_FLOATS, PE_OWN_FLOATS   scratch of all threads, and of each
 */

#if !defined(PE_N) || !defined(PE_SPLIT) || !defined(PE_VL)
#error "winograd.inc.h needs PE_N, PE_SPLIT and PE_VL"
#endif

#define PE_A_ROW PE_WINDOW_PITCH
#define PE_A_STEP 1
#define PE_B_PITCH PE_NR
#define PE_B_TRANSPOSED 0
#define PE_OUTPUT_ROW(i) (i)
#define PE_PARTIAL 1 /* sums are stored in the planes, not by the epilogue */
#define PE_PARTIAL_PITCH PE_NR
#define PE_SEGMENTED 0
#include "team.inc.h"

#undef PE_AHEAD /* products are not results */
#include "gemm_tile.inc.h"
#include "winograd_filters.inc.h"

#define PE_ALL_TILES (PE_IMAGES * PE_TILES_H * PE_TILES_W)
#define PE_BLOCKS ((PE_ALL_TILES + PE_M - 1) / PE_M)
/* A vector of columns of one tile's products, back to pixels. `y`, `x` is the tile's first one. */
PE_INLINE void PE_FN(store_pixels)(const PE_FN(io) * io, const float *products, const int image,
                                   const int y, const int x, const int column, const int lanes) {
    pe_vf half[PE_TILE][PE_POINTS];
    PE_UNROLL
    for (int j = 0; j < PE_POINTS; j++) {
        pe_vf points[PE_POINTS], outputs[PE_TILE];
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            points[i] = pe_load(products + (i * PE_POINTS + j) * (ptrdiff_t)PE_PRODUCT_PLANE);
        }
        PE_FN(points_to_outputs)(outputs, points);
        PE_UNROLL
        for (int i = 0; i < PE_TILE; i++) {
            half[i][j] = outputs[i];
        }
    }
    PE_UNROLL
    for (int i = 0; i < PE_TILE; i++) {
        pe_vf outputs[PE_TILE];
        PE_FN(points_to_outputs)(outputs, half[i]);
        const ptrdiff_t row = (image * (ptrdiff_t)PE_OUT_H + y + i) * PE_OUT_W + x;
        PE_UNROLL
        for (int j = 0; j < PE_TILE; j++) {
            if (y + i < PE_OUT_H && x + j < PE_OUT_W) {
                PE_FN(store)(io, outputs[j], row + j, column, lanes);
            }
        }
    }
}

PE_INLINE void PE_FN(store_tiles)(const PE_FN(io) * io, const float *products,
                                  const ptrdiff_t first, const int count, const int panel) {
    enum { of_image = PE_TILES_H * PE_TILES_W };
    const int begin = panel * PE_NR, end = begin + PE_NR < PE_N ? begin + PE_NR : PE_N;
    for (ptrdiff_t tile = first; tile < first + count; tile++, products += PE_NR) {
        const int image = (int)(tile / of_image), place = (int)(tile % of_image);
        const int y = place / PE_TILES_W * PE_TILE, x = place % PE_TILES_W * PE_TILE;
        int column = begin;
        for (; column + PE_VL <= end; column += PE_VL) {
            PE_FN(store_pixels)(io, products + column - begin, image, y, x, column, PE_VL);
        }
#if PE_N % PE_VL
        if (column < end) {
            PE_FN(store_pixels)(io, products + column - begin, image, y, x, column, PE_N % PE_VL);
        }
#endif
    }
}

/* One block of tiles times one panel. `windows` is the block's first, `filters` the panel's. */
PE_INLINE void PE_FN(multiply_panel)(const PE_FN(io) * io, const float *windows,
                                     const float *filters, float *products, const ptrdiff_t block,
                                     const int panel) {
    const int count = block == PE_BLOCKS - 1 ? PE_OTHER_M : PE_M;
    PE_FN(block_args) t = {.io = io, .row_end = count, .depth = PE_SOURCE_C, .first = 1};
    for (int point = 0; point < PE_PLANES; point++) {
        t.a = windows + point * (ptrdiff_t)PE_WINDOW_PLANE;
        t.b = filters + point * (ptrdiff_t)PE_FILTER_PLANE;
        t.partial = products + point * (ptrdiff_t)PE_PRODUCT_PLANE;
#if PE_TAIL_COLUMNS
        if (panel == PE_PANELS - 1) {
            PE_FN(panel)(&t, 0, PE_TAIL_VECTORS, PE_VL);
            continue;
        }
#endif
        PE_FN(panel)(&t, 0, PE_NV, PE_VL);
    }
    PE_FN(store_tiles)(io, products, block * PE_M, count, panel);
}

#if PE_SPLIT == PE_SPLIT_COLUMNS

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source,
                          const float *weights, float *scratch) {
    const pe_range tiles = pe_split(w, PE_ALL_TILES, 1), panels = PE_FN(share)(w, PE_PANELS, 1);
    PE_FN(transform_windows)(scratch + tiles.begin * PE_WINDOW_PITCH, PE_WINDOW_PLANE, source,
                             tiles.begin, tiles.end);
    float *own = scratch + PE_SHARED_FLOATS +
                 (w->index < PE_THREADS ? w->index : 0) * (ptrdiff_t)PE_OWN_FLOATS;
    pe_barrier(w);
    for (int panel = (int)panels.begin; panel < panels.end; panel++) {
#ifdef PE_PREPARED
        const float *filters = weights + panel * PE_PANEL_FLOATS;
        float *products = own;
#else
        const float *filters = own;
        float *products = own + PE_PANEL_FLOATS;
        for (int k = 0; k < PE_SOURCE_C; k += PE_FILTER_STEPS) {
            PE_FN(transform_filters)(own, weights, panel, k);
        }
#endif
        for (ptrdiff_t block = 0; block < PE_BLOCKS; block++) {
            PE_FN(multiply_panel)(io, scratch + block * (PE_M * (ptrdiff_t)PE_WINDOW_PITCH),
                                  filters, products, block, panel);
        }
    }
}

#else

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const float *source,
                          const float *weights, float *scratch) {
#ifdef PE_PREPARED
    const float *filters = weights;
#else
    const float *filters = scratch;
    PE_FN(transform_all)(w, scratch, weights);
#endif
    const pe_range blocks = PE_FN(share)(w, PE_BLOCKS, 1);
    float *windows = scratch + PE_SHARED_FLOATS +
                     (w->index < PE_THREADS ? w->index : 0) * (ptrdiff_t)PE_OWN_FLOATS;
#ifndef PE_PREPARED
    pe_barrier(w);
#endif
    for (ptrdiff_t block = blocks.begin; block < blocks.end; block++) {
        const ptrdiff_t end = block == PE_BLOCKS - 1 ? PE_ALL_TILES : (block + 1) * PE_M;
        PE_FN(transform_windows)(windows, PE_WINDOW_PLANE, source, block * PE_M, end);
        for (int panel = 0; panel < PE_PANELS; panel++) {
            PE_FN(multiply_panel)(io, windows, filters + panel * PE_PANEL_FLOATS,
                                  windows + PE_PLANES * (ptrdiff_t)PE_WINDOW_PLANE, block, panel);
        }
    }
}

#endif

#undef PE_ALL_TILES
#undef PE_BLOCKS
#undef PE_FILTER_STEPS
#undef PE_PLANES
#undef PE_POINTS
#include "undef.inc.h"
