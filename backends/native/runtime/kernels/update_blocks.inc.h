/* One block of an update with 8-bit states, and the part of a param that it writes.
 *
 * Parameters:
 *   PE_FN(name), PE_VL           name of a function of this kernel, lanes
 *   PE_FN(io), PE_FN(tile)(io, outer, row, column, lanes, rows)
 *                                loads, computes and stores `lanes` elements from `column` on
 *   PE_PART(k)                   only of a part in pieces: the channel of its channel k
 *   PE_K, PE_CHANNELS, PE_LINE   the part's channels, the param's, and elements of one channel
 *   PE_TARGET                    the param's C type
 */

PE_INLINE void PE_FN(block)(const PE_FN(io) * io, const int count) {
    int at = 0;
    for (; at + PE_VL <= count; at += PE_VL) {
        PE_FN(tile)(io, 0, 0, at, PE_VL, 1);
    }
    if (at < count) {
        PE_FN(tile)(io, 0, 0, at, count - at, 1);
    }
}

#ifdef PE_PART
/* Position in the param of element `at` of the part. */
PE_INLINE ptrdiff_t PE_FN(place)(const ptrdiff_t at) {
    const ptrdiff_t line = at / PE_LINE;
    return (line / PE_K * PE_CHANNELS + PE_PART(line % PE_K)) * PE_LINE + at % PE_LINE;
}

PE_INLINE void PE_FN(gather)(PE_TARGET *to, const PE_TARGET *param, const ptrdiff_t first,
                             const int count) {
    for (int i = 0; i < count; i++) {
        to[i] = param[PE_FN(place)(first + i)];
    }
}

PE_INLINE void PE_FN(scatter)(PE_TARGET *param, const PE_TARGET *from, const ptrdiff_t first,
                              const int count) {
    for (int i = 0; i < count; i++) {
        param[PE_FN(place)(first + i)] = from[i];
    }
}
#undef PE_PART
#endif

#include "undef.inc.h"
