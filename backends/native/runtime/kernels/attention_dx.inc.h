/* Gradients of attention: the softmax of PE_BLOCK_ROWS rows of a head is recomputed at a time.
 *
 * Threads share the heads. Each block of a head adds to the gradients of its keys and values: into
 * the results if no heads share them, else into scratch, and the team adds up the parts of a
 * group's heads. A thread's scratch holds keys and values, transposed, the shares, and the gradient
 * of the scores. With PE_TILES operands are rounded to bf16, and scratch also holds the keys for
 * PE_DQ and a block's queries or cotangents, in tiles.
 *
 * Parameters: those of attention.inc.h, and PE_DQ, PE_DK, PE_DV, the requested gradients;
 * PE_SHARED_HEADS: several heads share their keys; PE_KEYS_FLOATS, PE_VALUES_FLOATS,
 * PE_SHARES_FLOATS, PE_STEPS_FLOATS (keys for PE_DQ): the parts of a thread's scratch; and the
 * products PE_FN(scores_run), PE_FN(toward_run), PE_FN(dq_run), PE_FN(dk_run), PE_FN(dv_run) of
 * those that are needed.
 */

#if !defined(PE_DK) || !defined(PE_DQ) || !defined(PE_DV) || !defined(PE_HIDES) ||                 \
    !defined(PE_SHARED_HEADS) || !defined(PE_TILES)
#error "attention_dx.inc.h needs PE_DK, PE_DQ, PE_DV, PE_HIDES, PE_SHARED_HEADS and PE_TILES"
#endif

#define PE_FORWARD 0
#define PE_TOWARD (PE_DQ || PE_DK)
#include "attention_rows.inc.h"
#include "pe_transpose.h"
#include "team.inc.h"

/* B of a product: as it is in memory, or its first `count` steps or columns packed at `to`. */
#if PE_TILES
#define PE_PACKED(product, to, b, count)                                                           \
    (PE_FN(product##_pack)((to), (b), (pe_range){0, (count)}), (to))
#else
#define PE_PACKED(product, to, b, count) (b)
#endif

/* A head's matrices, from its first row on; `values` and `keys` are transposed. */
typedef struct PE_FN(head) {
    const float *dy, *q, *k, *stats, *delta, *keys, *values;
    const PE_MASK_TYPE *mask;
    float *dq, *dk, *dv, *shares, *toward, *operand;
    int tiles;
} PE_FN(head);

static void PE_FN(block)(const PE_FN(head) * t, const ptrdiff_t begin) {
    const ptrdiff_t end = PE_FN(least)(begin + PE_BLOCK_ROWS, PE_ROWS), rows = end - begin;
    ptrdiff_t seen[PE_BLOCK_ROWS];
    const ptrdiff_t reach = PE_FN(look)(t->mask, begin, rows, seen);
    const float *q = t->q + begin * PE_HEADS * PE_SIZE, *dy = t->dy + begin * PE_HEADS * PE_WIDTH;
    PE_FN(scores_run)((PE_FN(scores_io)){.y = t->shares, .tiles = t->tiles}, q, t->keys, rows,
                      reach, PE_SIZE);
    for (ptrdiff_t i = 0; i < rows; i++) {
        const float *stat = t->stats + (begin + i) * 2 * PE_HEADS;
        PE_FN(powers)(t->shares + i * PE_PITCH, t->mask + (begin + i) * PE_MASK_ROW, begin + i,
                      seen[i], reach, stat[0], 1.0f / stat[1]);
    }
#if PE_DV
    PE_FN(dv_run)((PE_FN(dv_io)){.y = t->dv, .tiles = t->tiles}, t->shares,
                  PE_PACKED(dv, t->operand, dy, rows), reach, PE_WIDTH, rows);
#endif
#if PE_TOWARD
    const PE_FN(toward_io) io = {.y = t->toward,
                                 .factor = t->delta + begin * PE_HEADS,
                                 .shares = t->shares,
                                 .tiles = t->tiles};
    PE_FN(toward_run)(io, dy, t->values, rows, reach, PE_WIDTH);
#if PE_HIDES
    for (ptrdiff_t i = 0; i < rows; i++) {
        PE_FN(hide)(t->toward + i * PE_PITCH, t->mask + (begin + i) * PE_MASK_ROW, begin + i,
                    seen[i]);
    }
#endif
#endif
#if PE_DK
    PE_FN(dk_run)((PE_FN(dk_io)){.y = t->dk, .tiles = t->tiles}, t->toward,
                  PE_PACKED(dk, t->operand, q, rows), reach, PE_SIZE, rows);
#endif
#if PE_DQ
    const PE_FN(dq_io) to = {.y = t->dq + begin * PE_HEADS * PE_SIZE, .tiles = t->tiles};
    PE_FN(dq_run)(to, t->toward, t->k, rows, PE_SIZE, reach);
#endif
}

#if PE_DK || PE_DV
/* Zeroes the sums of a head. */
PE_INLINE void PE_FN(clear)(float *dx, const ptrdiff_t size, const ptrdiff_t pitch) {
    for (ptrdiff_t i = 0; i < PE_COLUMNS; i++) {
        memset(dx + i * pitch, 0, sizeof(float) * (size_t)size);
    }
}
#endif

#if PE_SHARED_HEADS && (PE_DK || PE_DV)
/* Adds up the parts of each group's heads: parts[batch][head][column][size]. */
PE_INLINE void PE_FN(gather)(const pe_worker *w, float *dx, const float *parts,
                             const ptrdiff_t size) {
    const ptrdiff_t alike = PE_HEADS / PE_GROUPS;
    const pe_range share = pe_split(w, (ptrdiff_t)PE_BATCH * PE_COLUMNS * PE_GROUPS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        const ptrdiff_t group = row % PE_GROUPS, column = row / PE_GROUPS % PE_COLUMNS;
        const ptrdiff_t batch = row / PE_GROUPS / PE_COLUMNS;
        const float *first =
            parts + ((batch * PE_HEADS + group * alike) * PE_COLUMNS + column) * size;
        for (ptrdiff_t i = 0; i < size; i++) {
            float sum = 0;
            for (ptrdiff_t head = 0; head < alike; head++) {
                sum += first[head * PE_COLUMNS * size + i];
            }
            dx[row * size + i] = sum;
        }
    }
}
#endif

/* The kernel's arguments, in the op's order. */
typedef struct PE_FN(given) {
    const float *dy, *q, *k, *v, *stats, *delta;
    const PE_MASK_TYPE *mask;
    float *dq, *dk, *dv, *scratch;
} PE_FN(given);

/* Scratch for each head's gradients of keys, followed by those of values. */
PE_INLINE float *PE_FN(parts)(const PE_FN(given) * all, const int of_values) {
    const ptrdiff_t columns = (ptrdiff_t)PE_BATCH * PE_HEADS * PE_COLUMNS;
    float *first = all->scratch + PE_THREADS * (ptrdiff_t)PE_OWN_FLOATS;
    return first + (of_values && PE_DK ? columns * PE_SIZE : 0);
}

/* Packs a head's operands into a thread's own scratch. */
PE_INLINE void PE_FN(pack)(PE_FN(head) * t, float *own, const float *v) {
    float *values = own + PE_KEYS_FLOATS;
    const float *k = t->k;
    t->keys = own;
    t->values = values;
#if PE_TILES
    PE_FN(scores_pack)(own, k, (pe_range){0, PE_COLUMNS});
#if PE_TOWARD
    PE_FN(toward_pack)(values, v, (pe_range){0, PE_COLUMNS});
#endif
#if PE_DQ
    float *steps = t->operand - PE_STEPS_FLOATS;
    t->k = PE_PACKED(dq, steps, k, PE_COLUMNS);
#endif
#else
    enum { together = PE_VL >= 8 ? 8 : 4 };
    pe_transpose(own, PE_PITCH, k, PE_GROUPS * PE_SIZE, PE_COLUMNS, PE_SIZE, together);
#if PE_TOWARD
    pe_transpose(values, PE_PITCH, v, PE_GROUPS * PE_WIDTH, PE_COLUMNS, PE_WIDTH, together);
#endif
#endif
    (void)v;
}

/* Packs a head's operands, and zeroes its sums. */
static PE_FN(head) PE_FN(open)(const PE_FN(given) * all, float *own, const ptrdiff_t pair) {
    const ptrdiff_t batch = pair / PE_HEADS, head = pair % PE_HEADS;
    const ptrdiff_t row = batch * PE_ROWS * PE_HEADS + head;
    const ptrdiff_t place = batch * PE_COLUMNS * PE_GROUPS + head / (PE_HEADS / PE_GROUPS);
    PE_FN(head) t = {0};
    t.dy = all->dy + row * PE_WIDTH;
    t.q = all->q + row * PE_SIZE;
    t.k = all->k + place * PE_SIZE;
    t.stats = all->stats + 2 * row;
    t.delta = all->delta + row;
    t.mask = all->mask + batch * PE_MASK_BATCH + head * PE_MASK_HEAD;
    t.shares = own + PE_KEYS_FLOATS + PE_VALUES_FLOATS;
    t.toward = t.shares + PE_SHARES_FLOATS;
    t.operand = t.toward + (PE_TOWARD ? PE_SHARES_FLOATS : 0) + PE_STEPS_FLOATS;
    PE_FN(pack)(&t, own, all->v + place * PE_WIDTH);
#if PE_DQ
    t.dq = all->dq + row * PE_SIZE;
#endif
#if PE_DK
    t.dk = PE_SHARED_HEADS ? PE_FN(parts)(all, 0) + pair * PE_COLUMNS * PE_SIZE
                           : all->dk + place * PE_SIZE;
    PE_FN(clear)(t.dk, PE_SIZE, PE_SHARED_HEADS ? PE_SIZE : PE_GROUPS * PE_SIZE);
#endif
#if PE_DV
    t.dv = PE_SHARED_HEADS ? PE_FN(parts)(all, 1) + pair * PE_COLUMNS * PE_WIDTH
                           : all->dv + place * PE_WIDTH;
    PE_FN(clear)(t.dv, PE_WIDTH, PE_SHARED_HEADS ? PE_WIDTH : PE_GROUPS * PE_WIDTH);
#endif
    return t;
}

PE_INLINE void PE_FN(run)(pe_worker *w, const PE_FN(given) * all) {
    const pe_range share = PE_FN(share)(w, (ptrdiff_t)PE_BATCH * PE_HEADS, 1);
    float *own = all->scratch + w->index * (ptrdiff_t)PE_OWN_FLOATS;
    const int tiles = PE_FN(begin_tiles)();
    for (ptrdiff_t pair = share.begin; pair < share.end; pair++) {
        PE_FN(head) t = PE_FN(open)(all, own, pair);
        t.tiles = tiles;
        for (ptrdiff_t begin = 0; begin < PE_ROWS; begin += PE_BLOCK_ROWS) {
            PE_FN(block)(&t, begin);
        }
    }
    PE_FN(end_tiles)(tiles);
#if PE_SHARED_HEADS && (PE_DK || PE_DV)
    pe_barrier(w);
#if PE_DK
    PE_FN(gather)(w, all->dk, PE_FN(parts)(all, 0), PE_SIZE);
#endif
#if PE_DV
    PE_FN(gather)(w, all->dv, PE_FN(parts)(all, 1), PE_WIDTH);
#endif
#endif
}

#undef PE_DK
#undef PE_DQ
#undef PE_DV
#undef PE_PACKED
#undef PE_SHARED_HEADS
#undef PE_SHARES_FLOATS
#undef PE_STEPS_FLOATS
#undef PE_TOWARD
#include "attention_undef.inc.h"
