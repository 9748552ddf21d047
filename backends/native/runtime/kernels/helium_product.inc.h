/* Convolution of bytes by blocks of 16, and products with a matrix: four channels of the result at
 * a time, whose weights are packed once for all pixels.
 *
 * A line is the bytes of one row of the window. Packed weights follow the lines: for each block of
 * a line 16 bytes of each of the four channels, with zeros after the line. The sums of the weights
 * correct for zero points. A window with taps out of bounds is copied first, with zero points for
 * them. Threads share the groups of four channels; each has a part of the scratch.
 *
 * Parameters:
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are result pixels
 *   PE_A_ZERO, PE_THREAD_BYTES       zero point of the source; bytes of scratch of a thread
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_CHANNELS, PE_OUT_H, PE_OUT_W, PE_N   x and y
 *   PE_TAPS_H, PE_TAPS_W, PE_STEP_H, PE_STEP_W, PE_GAP_H, PE_GAP_W, PE_TOP, PE_LEFT   the window
 *   PE_INNER_BEGIN, PE_INNER_END     result columns whose taps all exist
 *   PE_PADDED                        1: windows may lie outside, or skip pixels
 *   PE_TRANSPOSED                    weights are contiguous along the depth: PE_TAPS_H = PE_TAPS_W
 * = 1 PE_TURNED                        pixels of the source are the columns of a matrix, which is
 *                                    transposed into scratch first: PE_TAPS_H = PE_TAPS_W = 1
 */

#if !defined(PE_A_ZERO) || !defined(PE_N) || !defined(PE_PADDED) || !defined(PE_TRANSPOSED) ||     \
    !defined(PE_TURNED)
#error "helium_product.inc.h needs PE_A_ZERO, PE_N, PE_PADDED, PE_TRANSPOSED and PE_TURNED"
#endif

#include "pe_helium.h"

#define PE_LINE (PE_TAPS_W * PE_CHANNELS)
#define PE_BLOCKS ((PE_LINE + 15) / 16)
#define PE_PIXEL (PE_TURNED ? 16 * PE_BLOCKS : PE_CHANNELS)
#define PE_LAST (PE_TURNED ? 16 : PE_LINE - (PE_BLOCKS - 1) * 16)
#define PE_PITCH (PE_SOURCE_W * PE_PIXEL)
#define PE_PACKED (PE_TAPS_H * PE_BLOCKS * 64)
#define PE_HELD (PE_TAPS_H == 1 && PE_BLOCKS == 1)

#include "window_copy.inc.h"

/* Packs the weights of `lanes` channels; returns the initial values of their sums. */
PE_INLINE pe_vi PE_FN(pack)(int8_t *to, const int8_t *weights, const int lanes) {
#if PE_TRANSPOSED
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < PE_BLOCKS; k++) {
            const int left = PE_LINE - 16 * k;
            const pe_block block = pe_load_block(weights + (i < lanes ? i * PE_LINE : 0) + 16 * k,
                                                 left < 16 ? left : 16);
            pe_store_block(to + 64 * k + 16 * i, block);
        }
    }
#else
    for (int t = 0; t < PE_TAPS_H; t++) {
        pe_turn_rows(to + t * PE_BLOCKS * 64, 16, 64, weights + t * (ptrdiff_t)PE_LINE * PE_N, PE_N,
                     PE_LINE, lanes);
    }
#endif
    pe_vi sum = {0};
#if PE_A_ZERO
    for (int i = 0; i < 4; i++) {
        int32_t bytes = 0;
        for (int k = 0; k < PE_TAPS_H * PE_BLOCKS; k++) {
            bytes = pe_add_bytes(bytes, pe_load_block(to + 64 * k + 16 * i, 16));
        }
        sum[i] = bytes;
    }
#endif
    return sum * -PE_A_ZERO;
}

/* Four sums of the window whose lines begin `pitch` apart. */
PE_INLINE pe_vi PE_FN(sums)(const int8_t *from, const ptrdiff_t pitch, const int8_t *packed,
                            const pe_vi first) {
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int t = 0; t < PE_TAPS_H; t++, from += pitch) {
        const int8_t *a = from;
        for (int k = 0; k < PE_BLOCKS; k++, a += 16, packed += 64) {
            const pe_block x = pe_load_block(a, k == PE_BLOCKS - 1 ? PE_LAST : 16);
            s0 = pe_add_block(s0, x, pe_load_block(packed, 16));
            s1 = pe_add_block(s1, x, pe_load_block(packed + 16, 16));
            s2 = pe_add_block(s2, x, pe_load_block(packed + 32, 16));
            s3 = pe_add_block(s3, x, pe_load_block(packed + 48, 16));
        }
    }
    return (pe_vi){s0, s1, s2, s3} + first;
}

/* Pixels of a row whose windows are in bounds; one block of weights stays in registers. */
PE_INLINE void PE_FN(inner)(const PE_FN(io) * io, const int8_t *from, const int8_t *packed,
                            const pe_vi first, const ptrdiff_t row, const int count, const int n,
                            const int lanes) {
#if PE_HELD
    const pe_block b0 = pe_load_block(packed, 16), b1 = pe_load_block(packed + 16, 16);
    const pe_block b2 = pe_load_block(packed + 32, 16), b3 = pe_load_block(packed + 48, 16);
#endif
    for (int x = 0; x < count; x++, from += PE_STEP_W * PE_PIXEL) {
#if PE_HELD
        const pe_block a = pe_load_block(from, PE_LAST);
        const pe_vi sums = {pe_add_block(0, a, b0), pe_add_block(0, a, b1), pe_add_block(0, a, b2),
                            pe_add_block(0, a, b3)};
        PE_FN(store)(io, sums + first, row + x, n, lanes);
#else
        PE_FN(store)(io, PE_FN(sums)(from, PE_PITCH, packed, first), row + x, n, lanes);
#endif
    }
}

PE_INLINE void PE_FN(channels)(const PE_FN(io) * io, const int8_t *source, const int8_t *packed,
                               int8_t *copied, const pe_vi first, const int n, const int lanes) {
    for (int line = 0; line < PE_IMAGES * PE_OUT_H; line++) {
        const int y = line % PE_OUT_H, top = y * PE_STEP_H - PE_TOP;
        const int8_t *image = source + (ptrdiff_t)(line / PE_OUT_H) * PE_SOURCE_H * PE_PITCH;
        const int whole =
            PE_GAP_H == 1 && PE_GAP_W == 1 && top >= 0 && top + PE_TAPS_H <= PE_SOURCE_H;
        const int begin = whole ? PE_INNER_BEGIN : 0, end = whole ? PE_INNER_END : 0;
        const ptrdiff_t row = (ptrdiff_t)line * PE_OUT_W;
        const int8_t *from =
            image + top * (ptrdiff_t)PE_PITCH + (begin * PE_STEP_W - PE_LEFT) * PE_PIXEL;
        PE_FN(inner)(io, from, packed, first, row + begin, end - begin, n, lanes);
#if PE_PADDED
        for (int x = begin ? 0 : end; x < PE_OUT_W; x = x + 1 == begin ? end : x + 1) {
            PE_FN(copy)(io, copied, image, y, x);
            PE_FN(store)(io, PE_FN(sums)(copied, PE_LINE, packed, first), row + x, n, lanes);
        }
#endif
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *weights, void *scratch) {
    int8_t *packed = (int8_t *)scratch + (ptrdiff_t)w->index * PE_THREAD_BYTES;
    int8_t *copied = packed + PE_PACKED;
    const pe_range share = pe_split(w, PE_N, 4);
#if PE_TURNED
    for (int c = 0; c < PE_SOURCE_W && share.begin < share.end; c += 4) {
        pe_turn_rows(copied + c * (ptrdiff_t)PE_PIXEL, PE_PIXEL, 16, source + c, PE_SOURCE_W,
                     PE_CHANNELS, PE_SOURCE_W - c < 4 ? PE_SOURCE_W - c : 4);
    }
    source = copied;
#endif
    for (int n = (int)share.begin; n < (int)share.end; n += 4) {
        const int8_t *from = weights + (PE_TRANSPOSED ? (ptrdiff_t)n * PE_CHANNELS : n);
        if (n + 4 <= PE_N) {
            const pe_vi first = PE_FN(pack)(packed, from, 4);
            PE_FN(channels)(io, source, packed, copied, first, n, 4);
            continue;
        }
#if PE_N % 4
        const pe_vi first = PE_FN(pack)(packed, from, PE_N % 4);
        PE_FN(channels)(io, source, packed, copied, first, n, PE_N % 4);
#endif
    }
}

#undef PE_LINE
#undef PE_BLOCKS
#undef PE_HELD
#undef PE_PIXEL
#undef PE_LAST
#undef PE_REST
#undef PE_PITCH
#undef PE_PACKED
#undef PE_PADDED
#undef PE_TURNED
#include "integer_end.inc.h"
