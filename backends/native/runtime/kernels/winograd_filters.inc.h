/* Transforms the filters of a 3x3 convolution to the points of Winograd's method: panels of
 * columns, point by point, with a row of the panel's columns for each channel.
 *
 * Parameters, besides those of winograd_points.inc.h:
 *   PE_VL, PE_NV            lanes of a vector, and vectors of a panel
 *   PE_TRANSPOSED           1: the input's gradient, filters flipped and transposed
 *   PE_FILTER_PLANE         floats from one point to the next
 */

#if !defined(PE_TRANSPOSED)
#error "winograd_filters.inc.h needs PE_TRANSPOSED"
#endif

#include "pe_transpose.h"
#include "winograd_points.inc.h"

#ifndef PE_NR /* gemm_tile.inc.h defines them too */
#define PE_NR (PE_NV * PE_VL)
#define PE_PANELS ((PE_N + PE_NR - 1) / PE_NR)
#endif
#define PE_PANEL_FLOATS (PE_PLANES * (ptrdiff_t)PE_FILTER_PLANE)
#define PE_FILTER_STEPS 16 /* channels whose filters are transformed together: a line's, on dx */

/* One channel's filters for a vector of columns; `taps` are `pitch` apart. */
PE_INLINE void PE_FN(filter_vector)(float *to, const float *taps, const ptrdiff_t pitch,
                                    const int lanes) {
    pe_vf half[3][PE_POINTS];
    PE_UNROLL
    for (int i = 0; i < 3; i++) {
        pe_vf line[3];
        PE_UNROLL
        for (int j = 0; j < 3; j++) {
            line[j] = pe_load_part(taps + (i * 3 + j) * pitch, lanes);
        }
        PE_FN(filter_to_points)(half[i], line);
    }
    PE_UNROLL
    for (int j = 0; j < PE_POINTS; j++) {
        const pe_vf column[3] = {half[0][j], half[1][j], half[2][j]};
        pe_vf points[PE_POINTS];
        PE_FN(filter_to_points)(points, column);
        PE_UNROLL
        for (int i = 0; i < PE_POINTS; i++) {
            pe_store(to + (i * PE_POINTS + j) * (ptrdiff_t)PE_FILTER_PLANE, points[i]);
        }
    }
}

/* Channels `begin` to at most begin + PE_FILTER_STEPS of a panel; `to` is the panel. */
PE_INLINE void PE_FN(transform_filters)(float *to, const float *weights, const int panel,
                                        const int begin) {
    const int rest = PE_SOURCE_C - begin, first = panel * PE_NR;
    const int steps = rest < PE_FILTER_STEPS ? rest : PE_FILTER_STEPS;
    const int columns = PE_N - first < PE_NR ? PE_N - first : PE_NR;
#if PE_TRANSPOSED
    float taps[9 * PE_FILTER_STEPS * PE_NR];
    const ptrdiff_t pitch = PE_FILTER_STEPS * PE_NR, row = PE_NR;
    for (int tap = 0; tap < 9; tap++) {
        const float *from = weights + ((8 - tap) * (ptrdiff_t)PE_N + first) * PE_SOURCE_C + begin;
        for (int i = 0; i < columns; i++) {
            __builtin_prefetch(from + i * (ptrdiff_t)PE_SOURCE_C + PE_FILTER_STEPS);
        }
        pe_transpose(taps + tap * pitch, PE_NR, from, PE_SOURCE_C, columns, steps,
                     PE_VL >= 8 ? 8 : 4);
    }
#else
    const float *taps = weights + begin * (ptrdiff_t)PE_N + first;
    const ptrdiff_t pitch = PE_SOURCE_C * (ptrdiff_t)PE_N, row = PE_N;
#endif
    for (int k = 0; k < steps; k++) {
        for (int column = 0; column < columns; column += PE_VL) {
            const int lanes = columns - column < PE_VL ? columns - column : PE_VL;
#if !PE_TRANSPOSED
            PE_UNROLL
            for (int tap = 0; tap < 9; tap++) {
                __builtin_prefetch(taps + (k + PE_FILTER_STEPS) * row + column + tap * pitch);
            }
#endif
            PE_FN(filter_vector)(to + (begin + k) * (ptrdiff_t)PE_NR + column,
                                 taps + k * row + column, pitch, lanes);
        }
    }
}

/* All panels, shared by the threads. */
PE_INLINE void PE_FN(transform_all)(pe_worker *w, float *to, const float *weights) {
    enum { groups = (PE_SOURCE_C + PE_FILTER_STEPS - 1) / PE_FILTER_STEPS };
    const pe_range units = pe_split(w, PE_PANELS * groups, 1);
    for (int unit = (int)units.begin; unit < units.end; unit++) {
        const int panel = unit / groups;
        PE_FN(transform_filters)(to + panel * PE_PANEL_FLOATS, weights, panel,
                                 unit % groups * PE_FILTER_STEPS);
    }
}
