/* The steps of a tile of gemm_tile.inc.h on AArch64: vectors for the next step are loaded while
 * those of this one are multiplied.
 *
 * A vector is replaced after its last use, or a step earlier where registers are left. Barriers
 * keep this order: without them the compiler loads vectors just before their use, and keeps some
 * sums on the stack. By the model of a Cortex-A72, products that transpose A take 0.55 to 0.95 of
 * the time, those that read B from the second-level cache 0.72, and others 0.93 to 0.98.
 *
 * With rows of A, one instruction loads up to four vectors and advances the pointer: the loop of a
 * tile of 4 x 16 has 1.15 instructions per multiply-add, that of 9 x 8 by pair loads had 1.26.
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

#if PE_ROWS_BY_LANE

/* Loads a row's vectors and returns the place of the next row, `bytes` away. An instruction loads
 * up to four whole vectors and advances the pointer; `bytes` must be opaque to the compiler for
 * that. */
PE_INLINE const float *PE_FN(take)(pe_vf *v, const float *p, const ptrdiff_t bytes,
                                   const int vectors, const int lanes) {
    const float *next = (const float *)((const char *)p + bytes);
    if (lanes < PE_VL || vectors > 4) {
        PE_FN(load_vectors)(v, p, 0, vectors, vectors, lanes);
    } else if (vectors == 1) {
        PE_LOAD_AND_STEP(v[0], p, bytes);
        next = p;
    } else if (vectors == 2) {
        const float32x4x2_t two = vld1q_f32_x2(p);
        v[0] = two.val[0], v[1] = two.val[1];
    } else if (vectors == 3) {
        const float32x4x3_t three = vld1q_f32_x3(p);
        v[0] = three.val[0], v[1] = three.val[1], v[2] = three.val[2];
    } else {
        const float32x4x4_t four = vld1q_f32_x4(p);
        v[0] = four.val[0], v[1] = four.val[1], v[2] = four.val[2], v[3] = four.val[3];
    }
    return pe_fresh(next);
}

/* Replaces, by pairs, a row's vectors of which vector `j` was used last; returns the place of the
 * next pair or row. */
PE_INLINE const float *PE_FN(replace)(pe_vf *v, const float *p, const ptrdiff_t bytes, const int j,
                                      const int vectors, const int lanes) {
    const ptrdiff_t size = sizeof(pe_vf);
    const int first = j - j % 2, last = j == vectors - 1;
    if (j == first && !last) {
        return p;
    }
    const ptrdiff_t step = last ? bytes - first * size : 2 * size;
    return PE_FN(take)(v + first, p, step, j - first + 1, last ? lanes : PE_VL);
}

/* A load reads eight steps of a row of A, and vectors of B are loaded a step ahead, where registers
 * hold them; a load's registers are neighbors, so few must be free besides. */
#define PE_ROW_VECTORS (PE_MR * PE_NV + 2 * PE_MR + 2 * PE_NV <= PE_REGISTERS - 2 ? 2 : 1)
#define PE_TWO_ROWS_OF_B                                                                           \
    (PE_MR * PE_NV + PE_ROW_VECTORS * PE_MR + 2 * PE_NV < PE_REGISTERS - (PE_NV > 2))

/* The next step's vectors of B, and the places of the row after them and of each row of A. */
typedef struct PE_FN(held) {
    pe_vf b[PE_NV];
    const float *row;
    const float *a[PE_MR];
} PE_FN(held);

PE_INLINE void PE_FN(hold)(PE_FN(held) * held, const float *a, const float *b,
                           const ptrdiff_t bytes, const int rows, const int vectors,
                           const int lanes) {
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        held->a[i] = a + i * (ptrdiff_t)PE_A_ROW;
        if (PE_ROW_VECTORS == 2) {
            PE_HIDE(held->a[i]);
        }
    }
    held->row = PE_FN(take)(held->b, b, bytes, vectors, lanes);
}

/* Loads the next four steps of each row of A, or eight with two `quads`. */
PE_INLINE void PE_FN(load_rows)(pe_vf va[PE_MR][PE_ROW_VECTORS], PE_FN(held) * held,
                                const int quads, const int rows) {
    PE_UNROLL
    for (int i = 0; i < rows; i++) {
        if (PE_ROW_VECTORS == 1) { /* offsets reach all rows */
            va[i][0] = pe_load(held->a[i]);
            held->a[i] += 4;
        } else {
            const ptrdiff_t step = quads * (ptrdiff_t)sizeof(pe_vf);
            held->a[i] = PE_FN(take)(va[i], held->a[i], step, quads, PE_VL);
        }
    }
}

/* Four steps on contiguous rows of A, or eight with two `quads`; `more`: others follow. */
PE_INLINE void PE_FN(rows_ahead)(pe_vf c[PE_MR][PE_NV], PE_FN(held) * held, const ptrdiff_t bytes,
                                 const int quads, const int more, const int rows, const int vectors,
                                 const int lanes, const int fresh) {
    pe_vf va[PE_MR][PE_ROW_VECTORS];
    PE_FN(load_rows)(va, held, quads, rows);
    PE_UNROLL
    for (int q = 0; q < 4 * quads; q++) {
        const int last = q == 4 * quads - 1 && !more;
        const float *row = last ? (const float *)((const char *)held->row - bytes) : held->row;
        pe_vf following[PE_NV];
        if (PE_TWO_ROWS_OF_B) {
            held->row = PE_FN(take)(following, row, bytes, vectors, lanes);
        }
        PE_UNROLL
        for (int j = 0; j < vectors; j++) {
            PE_UNROLL
            for (int i = 0; i < rows; i++) {
                const float x = va[i][q / 4][q % 4];
                c[i][j] = PE_FN(add)(c[i][j], held->b[j], x, fresh && q == 0);
            }
            PE_FN(finish_rows)(c, 0, rows, j);
            if (!PE_TWO_ROWS_OF_B) {
                row = PE_FN(replace)(held->b, row, bytes, j, vectors, lanes);
            }
        }
        if (!PE_TWO_ROWS_OF_B) {
            held->row = row;
        }
        PE_UNROLL
        for (int j = 0; PE_TWO_ROWS_OF_B && j < vectors; j++) {
            held->b[j] = following[j];
        }
    }
}

#if PE_ROW_VECTORS == 1
#define PE_UNROLL_TURNS PE_UNROLL_2
#else
#define PE_UNROLL_TURNS
#endif

/* Steps by eight or four, at least four; returns their number. */
PE_INLINE int PE_FN(steps_ahead)(pe_vf c[PE_MR][PE_NV], const float *a, const float *b,
                                 const ptrdiff_t pitch, const int depth, const int rows,
                                 const int vectors, const int lanes) {
    const int most = 4 * PE_ROW_VECTORS;
    const ptrdiff_t bytes = pe_fresh_index(pitch * (ptrdiff_t)sizeof(float));
    PE_FN(held) held;
    int k = 0;
    PE_FN(hold)(&held, a, b, bytes, rows, vectors, lanes);
#if PE_FRESH
    if (depth >= most) {
        PE_FN(rows_ahead)(c, &held, bytes, PE_ROW_VECTORS, depth > most, rows, vectors, lanes, 1);
        k = most;
    } else {
        PE_FN(rows_ahead)(c, &held, bytes, 1, depth > 4, rows, vectors, lanes, 1);
        k = 4;
    }
#endif
    PE_UNROLL_TURNS
    for (; k + 2 * most <= depth; k += most) {
        PE_FN(rows_ahead)(c, &held, bytes, PE_ROW_VECTORS, 1, rows, vectors, lanes, 0);
    }
    if (k + most <= depth) {
        const int more = k + most < depth;
        PE_FN(rows_ahead)(c, &held, bytes, PE_ROW_VECTORS, more, rows, vectors, lanes, 0);
        k += most;
    }
    if (PE_ROW_VECTORS == 2 && k + 4 <= depth) {
        PE_FN(rows_ahead)(c, &held, bytes, 1, k + 4 < depth, rows, vectors, lanes, 0);
        k += 4;
    }
    return k;
}

#else

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

/* Twice where the compiler needs no further register for it. */
#if PE_TWO_ROWS_OF_B || PE_USED + PE_A_VECTORS < PE_REGISTERS
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
#endif
