/* Convolution of integers by pairs of 16-bit numbers, and products with a matrix: four channels of
 * the result at a time, whose weights are packed once for all pixels.
 *
 * Four numbers of the depth are a word of the source, and two pairs; packed weights follow their
 * order: for each four numbers the pairs (0, 2) of all four channels, then the pairs (1, 3). A
 * window with taps out of bounds is copied first, with zero points for them. Threads share the
 * groups of four channels; each has a part of the scratch.
 *
 * Parameters:
 *   PE_FN(io), PE_FN(store)(io, acc, row, column, lanes)   the epilogue; rows are result pixels
 *   PE_A_ZERO, PE_THREAD_WORDS       zero point of the source; words of scratch of a thread
 *   PE_IMAGES, PE_SOURCE_H, PE_SOURCE_W, PE_CHANNELS, PE_OUT_H, PE_OUT_W, PE_N   x and y
 *   PE_TAPS_H, PE_TAPS_W, PE_STEP_H, PE_STEP_W, PE_GAP_H, PE_GAP_W, PE_TOP, PE_LEFT   the window
 *   PE_INNER_BEGIN, PE_INNER_END     result columns whose taps all exist
 *   PE_REST, PE_TAIL                 numbers of a line's last word; channels past the last four
 *   PE_TRANSPOSED                    weights are contiguous along the depth: PE_TAPS_H = PE_TAPS_W
 * = 1
 */

#if !defined(PE_TAIL) || !defined(PE_TRANSPOSED)
#error "pairs_conv.inc.h needs PE_TAIL and PE_TRANSPOSED"
#endif

#include "pe_pairs.h"

#define PE_LINE (PE_TAPS_W * PE_CHANNELS)
#define PE_WORDS ((PE_LINE + 3) / 4)
#define PE_PITCH (PE_SOURCE_W * PE_CHANNELS)
#define PE_PACKED (PE_TAPS_H * PE_WORDS * 8)

#include "window_copy.inc.h"

/* Four weights of the depth and `lanes` channels become eight pairs. */
PE_INLINE void PE_FN(pack_word)(const PE_FN(io) * io, pe_pair *to, const int8_t *from,
                                const int depth, const int lanes) {
    (void)io;
    pe_pair even[4], odd[4];
#if PE_TRANSPOSED
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = i < lanes ? pe_load_bytes(from + i * PE_CHANNELS, depth) : 0;
        to[i] = pe_even_bytes(bytes, 0), to[4 + i] = pe_odd_bytes(bytes, 0);
    }
    (void)even, (void)odd;
#else
    for (int i = 0; i < 4; i++) {
        const uint32_t bytes = i < depth ? pe_load_bytes(from + i * PE_N, lanes) : 0;
        even[i] = pe_even_bytes(bytes, 0), odd[i] = pe_odd_bytes(bytes, 0);
    }
    for (int i = 0; i < 2; i++) {
        to[4 * i] = pe_join_lower(even[i], even[i + 2]);
        to[4 * i + 1] = pe_join_lower(odd[i], odd[i + 2]);
        to[4 * i + 2] = pe_join_upper(even[i], even[i + 2]);
        to[4 * i + 3] = pe_join_upper(odd[i], odd[i + 2]);
    }
#endif
}

PE_INLINE void PE_FN(pack)(const PE_FN(io) * io, pe_pair *to, const int8_t *weights,
                           const int lanes) {
    (void)io;
    const int pitch = PE_TRANSPOSED ? 1 : PE_N;
    for (int t = 0; t < PE_TAPS_H; t++, weights += PE_LINE * pitch) {
        PE_ROLLED
        for (int k = 0; k < PE_WORDS - 1; k++, to += 8) {
            PE_FN(pack_word)(io, to, weights + 4 * k * pitch, 4, lanes);
        }
        PE_FN(pack_word)(io, to, weights + 4 * (PE_WORDS - 1) * pitch, PE_REST, lanes);
        to += 8;
    }
}

/* Four sums of the window whose lines begin `pitch` apart. */
PE_INLINE pe_vi PE_FN(sums)(const PE_FN(io) * io, const int8_t *from, const ptrdiff_t pitch,
                            const pe_pair *packed) {
    (void)io;
    const pe_pair summands = pe_twice(-PE_A_ZERO);
    pe_vi sum = {0};
    for (int t = 0; t < PE_TAPS_H; t++, from += pitch) {
        const int8_t *a = from;
        for (int k = 0; k < PE_WORDS - 1; k++, a += 4, packed += 8) {
            sum = pe_add_word(sum, a, summands, packed);
        }
        const uint32_t rest = pe_load_bytes(a, PE_REST);
        sum = pe_add_word(sum, (const int8_t *)&rest, summands, packed);
        packed += 8;
    }
    return sum;
}

PE_INLINE void PE_FN(channels)(const PE_FN(io) * io, const int8_t *source, const pe_pair *packed,
                               int8_t *copied, const int n, const int lanes) {
    for (int line = 0; line < PE_IMAGES * PE_OUT_H; line++) {
        const int y = line % PE_OUT_H, top = y * PE_STEP_H - PE_TOP;
        const int8_t *image = source + (ptrdiff_t)(line / PE_OUT_H) * PE_SOURCE_H * PE_PITCH;
        const int whole =
            PE_GAP_H == 1 && PE_GAP_W == 1 && top >= 0 && top + PE_TAPS_H <= PE_SOURCE_H;
        const int begin = whole ? PE_INNER_BEGIN : PE_OUT_W, end = whole ? PE_INNER_END : PE_OUT_W;
        const ptrdiff_t row = (ptrdiff_t)line * PE_OUT_W;
        for (int x = 0; x < PE_OUT_W; x++) {
            if (x >= begin && x < end) {
                const int left = x * PE_STEP_W - PE_LEFT;
                const int8_t *from = image + top * PE_PITCH + left * PE_CHANNELS;
                PE_FN(store)(io, PE_FN(sums)(io, from, PE_PITCH, packed), row + x, n, lanes);
                continue;
            }
            PE_FN(copy)(io, copied, image, y, x);
            PE_FN(store)(io, PE_FN(sums)(io, copied, PE_LINE, packed), row + x, n, lanes);
        }
    }
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(io) * io, const int8_t *source,
                          const int8_t *weights, void *scratch) {
    pe_pair *packed = (pe_pair *)scratch + (ptrdiff_t)w->index * PE_THREAD_WORDS;
    int8_t *copied = (int8_t *)(packed + PE_PACKED);
    const pe_range share = pe_split(w, PE_N, 4);
    for (int n = (int)share.begin; n < (int)share.end; n += 4) {
        const int8_t *from = weights + (PE_TRANSPOSED ? (ptrdiff_t)n * PE_CHANNELS : n);
        if (n + 4 <= PE_N) {
            PE_FN(pack)(io, packed, from, 4);
            PE_FN(channels)(io, source, packed, copied, n, 4);
            continue;
        }
#if PE_TAIL
        PE_FN(pack)(io, packed, from, PE_TAIL);
        PE_FN(channels)(io, source, packed, copied, n, PE_TAIL);
#endif
    }
}

#undef PE_LINE
#undef PE_WORDS
#undef PE_REST
#undef PE_TAIL
#undef PE_PITCH
#undef PE_PACKED
#include "integer_end.inc.h"
