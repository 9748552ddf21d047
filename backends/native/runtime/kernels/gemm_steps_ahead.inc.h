/* The steps of a tile of gemm_tile.inc.h on AArch64: vectors for the next step are loaded while
 * those of this one are multiplied.
 *
 * A vector is replaced after its last use, or a step earlier where registers are left. Barriers
 * keep this order: without them the compiler loads vectors just before their use, and keeps some
 * sums on the stack. By the model of a Cortex-A72, products that transpose A take 0.55 to 0.95 of
 * the time, those that read B from the second-level cache 0.72, and others 0.93 to 0.98.
 *
 * Parameters as in gemm_tile.inc.h.
 */

#if !defined(PE_MR) || !defined(PE_NV) || !defined(PE_A_ROW) || !defined(PE_TILE_STEP) ||          \
    !defined(PE_ROWS_BY_LANE) || !defined(PE_FRESH)
#error "gemm_steps_ahead.inc.h needs what gemm_tile.inc.h defines"
#endif

#define PE_REGISTERS 32

/* Computes the sums of some rows and one vector before later code and loads. */
PE_INLINE void PE_FN(finish_rows)(pe_vf c[PE_MR][PE_NV], const int begin, const int end,
                                  const int j) {
    PE_UNROLL
    for (int i = begin; i < end; i++) {
        PE_KEEP_ORDER(c[i][j]);
    }
}

/* Loads vectors `begin` to `end` of a row of B. */
PE_INLINE void PE_FN(load_vectors)(pe_vf *v, const float *b, const int begin, const int end,
                                   const int vectors, const int lanes) {
    PE_UNROLL
    for (int j = begin; j < end; j++) {
        v[j] = pe_load_part(b + j * PE_VL, j == vectors - 1 ? lanes : PE_VL);
    }
}

/* Replaces vectors of B that were used last with vector `j`, by pairs. */
PE_INLINE void PE_FN(replace_b)(pe_vf *v, const float *next, const int j, const int vectors,
                                const int lanes) {
    if (j % 2 == 1 || j == vectors - 1) {
        PE_FN(load_vectors)(v, next, j - j % 2, j + 1, vectors, lanes);
    }
}

/* The place of the next step, `offset` floats away; pair loads reach it from there. */
PE_INLINE const float *PE_FN(next)(const float *p, const ptrdiff_t offset) {
    return 4 * (ptrdiff_t)sizeof(float) * offset > PE_PAIR_REACH ? pe_fresh(p + offset)
                                                                 : p + offset;
}

#if PE_ROWS_BY_LANE

#define PE_TWO_ROWS_OF_B (PE_MR * PE_NV + PE_MR + 2 * PE_NV <= PE_REGISTERS)

/* The next step's vectors of B. */
typedef struct PE_FN(held) {
    pe_vf b[PE_NV];
} PE_FN(held);

PE_INLINE void PE_FN(hold)(PE_FN(held) * held, const float *a, const float *b, const int rows,
                           const int vectors, const int lanes) {
    (void)a, (void)rows;
    PE_FN(load_vectors)(held->b, b, 0, vectors, vectors, lanes);
}

/* Four steps on contiguous rows of A; `more`: others follow. */
PE_INLINE void PE_FN(four_ahead)(pe_vf c[PE_MR][PE_NV], PE_FN(held) * held, const float *a,
                                 const float *b, const ptrdiff_t pitch, const int more,
                                 const int rows, const int vectors, const int lanes,
                                 const int fresh) {
    pe_vf va[PE_MR];
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        va[i] = pe_load(a + i * (ptrdiff_t)PE_A_ROW);
    }
    PE_UNROLL
    for (int q = 0; q < 4; q++) {
        const float *next = q < 3 || more ? PE_FN(next)(b, pitch) : b;
        pe_vf following[PE_NV];
        if (PE_TWO_ROWS_OF_B) {
            PE_FN(load_vectors)(following, next, 0, vectors, vectors, lanes);
        }
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            PE_UNROLL
            for (int i = 0; i < rows; i++) {
                c[i][j] = PE_FN(add)(c[i][j], held->b[j], va[i][q], fresh && q == 0);
            }
            PE_FN(finish_rows)(c, 0, rows, j);
            if (!PE_TWO_ROWS_OF_B) {
                PE_FN(replace_b)(held->b, next, j, vectors, lanes);
            }
        }
        b = next;
        PE_UNROLL
        for (int j = 0; PE_TWO_ROWS_OF_B && j < vectors; j++) {
            held->b[j] = following[j];
        }
    }
}

#else

#define PE_A_VECTORS ((PE_MR + 3) / 4)
#define PE_USED (PE_MR * PE_NV + PE_A_VECTORS + PE_NV)
#define PE_TWO_ROWS_OF_B (PE_USED + PE_NV < PE_REGISTERS)
#define PE_TWO_COLUMNS_OF_A (!PE_TWO_ROWS_OF_B && PE_USED + PE_A_VECTORS <= PE_REGISTERS)

/* The next step's vectors. */
typedef struct PE_FN(held) {
    pe_vf a[PE_A_VECTORS], b[PE_NV];
} PE_FN(held);

/* Loads vectors `begin` to `end` of a column of A. */
PE_INLINE void PE_FN(load_column)(pe_vf *v, const float *a, const int begin, const int end,
                                  const int rows) {
    PE_UNROLL
    for (int g = begin; g < end; g++) {
        v[g] = pe_load_part(a + 4 * g, rows - 4 * g);
    }
}

PE_INLINE void PE_FN(hold)(PE_FN(held) * held, const float *a, const float *b, const int rows,
                           const int vectors, const int lanes) {
    PE_FN(load_column)(held->a, a, 0, (rows + 3) / 4, rows);
    PE_FN(load_vectors)(held->b, b, 0, vectors, vectors, lanes);
}

/* One step on contiguous columns of A; the next one's operands are at `a` and `b`. */
PE_INLINE void PE_FN(step_ahead)(pe_vf c[PE_MR][PE_NV], PE_FN(held) * held, const float *a,
                                 const float *b, const int rows, const int vectors, const int lanes,
                                 const int fresh) {
    const int groups = (rows + 3) / 4;
    PE_FN(held) next;
    if (PE_TWO_ROWS_OF_B) {
        PE_FN(load_vectors)(next.b, b, 0, vectors, vectors, lanes);
    } else if (PE_TWO_COLUMNS_OF_A) {
        PE_FN(load_column)(next.a, a, 0, groups, rows);
    }
    PE_UNROLL
    for (int g = 0; g < groups; g++) {
        const int end = rows < 4 * g + 4 ? rows : 4 * g + 4;
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            PE_UNROLL
            for (int i = 4 * g; i < end; i++) {
                c[i][j] = PE_FN(add)(c[i][j], held->b[j], held->a[g][i % 4], fresh);
            }
            PE_FN(finish_rows)(c, 4 * g, end, j);
            if (!PE_TWO_ROWS_OF_B && g == groups - 1) {
                PE_FN(replace_b)(held->b, b, j, vectors, lanes);
            }
        }
        if (!PE_TWO_COLUMNS_OF_A && (g % 2 == 1 || g == groups - 1)) {
            PE_FN(load_column)(held->a, a, g - g % 2, g + 1, rows);
        }
    }
    PE_UNROLL
    for (int g = 0; PE_TWO_COLUMNS_OF_A && g < groups; g++) {
        held->a[g] = next.a[g];
    }
    PE_UNROLL
    for (int j = 0; PE_TWO_ROWS_OF_B && j < vectors; j++) {
        held->b[j] = next.b[j];
    }
}

/* Four steps on contiguous columns of A; `more`: others follow. */
PE_INLINE void PE_FN(four_ahead)(pe_vf c[PE_MR][PE_NV], PE_FN(held) * held, const float *a,
                                 const float *b, const ptrdiff_t pitch, const int more,
                                 const int rows, const int vectors, const int lanes,
                                 const int fresh) {
    PE_UNROLL
    for (int q = 0; q < 4; q++) {
        if (q < 3 || more) {
            a = PE_FN(next)(a, PE_TILE_STEP);
            b = PE_FN(next)(b, pitch);
        }
        PE_FN(step_ahead)(c, held, a, b, rows, vectors, lanes, fresh && q == 0);
    }
}
#endif

/* Twice where the compiler needs no further register for it. */
#if PE_ROWS_BY_LANE || PE_TWO_ROWS_OF_B || PE_USED + PE_A_VECTORS < PE_REGISTERS
#define PE_UNROLL_TURNS PE_UNROLL_2
#else
#define PE_UNROLL_TURNS
#endif

/* Steps by four, at least four; returns their number. What is loaded behind the last is unused. */
PE_INLINE int PE_FN(steps_ahead)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b,
                                 const ptrdiff_t pitch, const int depth, const int rows,
                                 const int vectors, const int lanes) {
    PE_FN(held) held;
    int k = 0;
    PE_FN(hold)(&held, a, b, rows, vectors, lanes);
#if PE_FRESH
    PE_FN(four_ahead)(c, &held, a, b, pitch, depth > 4, rows, vectors, lanes, 1);
    k = 4;
#endif
    a += k * PE_TILE_STEP;
    b += k * pitch;
    PE_UNROLL_TURNS
    for (; k + 8 <= depth; k += 4) {
        PE_FN(four_ahead)(c, &held, a, b, pitch, 1, rows, vectors, lanes, 0);
        a += 4 * PE_TILE_STEP;
        b += 4 * pitch;
    }
    if (k + 4 <= depth) {
        PE_FN(four_ahead)(c, &held, a, b, pitch, k + 4 < depth, rows, vectors, lanes, 0);
        k += 4;
    }
    return k;
}
