/* Attention by blocks of rows: all scores of PE_BLOCK_ROWS rows of a head exist at a time.
 *
 * The scores of a block fit in the cache, so a softmax needs no rescaling as it does if blocks also
 * split columns. Threads share the blocks of all heads. A thread's scratch holds the keys of its
 * head, transposed as far as blocks have reached, and the scores. Products end with the last column
 * that a row of the block sees: its own (PE_SKIPS), or the last that the mask shows (PE_LOOKS).
 * With PE_DOTS, a single row reads the keys as they are, in sums along each row of keys. With
 * PE_TILES operands are rounded to bf16, and keys and values lie in tiles.
 *
 * Parameters: PE_FN(name), PE_VL; PE_BATCH, PE_HEADS, PE_GROUPS, PE_ROWS, PE_COLUMNS, PE_SIZE,
 * PE_WIDTH as in compiler/ops/attention.py; PE_BLOCK_ROWS; PE_PITCH, of scores and of keys;
 * PE_REACH, whole tiles of columns; PE_SCALE, PE_HIDDEN; PE_CAUSAL, PE_SKIPS, PE_LOOKS; PE_MASK,
 * PE_MASK_TYPE, PE_MASK_BATCH, PE_MASK_HEAD, PE_MASK_ROW, PE_MASK_STEP, the mask's strides;
 * PE_HIDES: some scores are replaced; PE_THREADS, PE_OWN_FLOATS of scratch for each, of them
 * PE_KEYS_FLOATS for keys and PE_VALUES_FLOATS for values; and the products PE_FN(scores_run),
 * PE_FN(mix_run) of attention_product.inc.h, with PE_TILES of attention_tiles.inc.h, or with
 * PE_DOTS PE_FN(scores_dot_rows) of gemm_dot.inc.h.
 */
#if !defined(PE_DOTS) || !defined(PE_TILES)
#error "attention.inc.h needs PE_DOTS and PE_TILES"
#endif

#define PE_FORWARD 1
#include "attention_rows.inc.h"
#include "pe_transpose.h"
#include "team.inc.h"

#define PE_BLOCKS ((PE_ROWS + PE_BLOCK_ROWS - 1) / PE_BLOCK_ROWS)

/* A head's keys and values, and how many columns of them are packed: the keys transposed, or both
 * in tiles. */
typedef struct PE_FN(head) {
    const float *keys, *values;
    float *packed_keys, *packed_values;
    ptrdiff_t columns;
    int tiles;
} PE_FN(head);

#if !PE_DOTS
/* Packs the columns up to `reach` that are not packed yet. */
PE_INLINE void PE_FN(pack)(PE_FN(head) * head, const ptrdiff_t reach) {
    enum { together = PE_TILES ? 32 : 8 };
    const ptrdiff_t done = head->columns;
    const ptrdiff_t end = PE_FN(least)((reach + together - 1) / together * together, PE_COLUMNS);
    if (done >= end) {
        return;
    }
#if PE_TILES
    PE_FN(scores_pack)(head->packed_keys, head->keys, (pe_range){done, end});
    PE_FN(mix_pack)(head->packed_values, head->values, (pe_range){done, end});
#else
    const ptrdiff_t step = PE_GROUPS * PE_SIZE;
    pe_transpose(head->packed_keys + done, PE_PITCH, head->keys + done * step, step, end - done,
                 PE_SIZE, PE_VL >= 8 ? 8 : 4);
#endif
    head->columns = end;
}
#endif

/* Multiplies the queries of a block by the keys of the columns up to `reach`. */
PE_INLINE void PE_FN(score_block)(float *scores, const float *q, PE_FN(head) * head,
                                  const ptrdiff_t rows, const ptrdiff_t reach) {
#if PE_DOTS
    const PE_FN(scores_io) io = {.y = scores};
    (void)rows; /* of the only block */
    for (ptrdiff_t i = 0; i < reach; i += PE_VL) {
        PE_FN(scores_dot_rows)
        (&io, q, head->keys + i * PE_GROUPS * PE_SIZE, 0, (int)i, PE_ROWS, PE_FN(lanes)(reach - i));
    }
#else
    const PE_FN(scores_io) io = {.y = scores, .tiles = head->tiles};
    PE_FN(pack)(head, reach);
    PE_FN(scores_run)(io, q, head->packed_keys, rows, reach, PE_SIZE);
#endif
}

/* Computes one block, whose first row is `begin`; q, y and stats point to the head's first row. */
static void PE_FN(block)(const float *q, PE_FN(head) * head, const PE_MASK_TYPE *mask, float *y,
                         float *stats, const ptrdiff_t begin, float *scores) {
    const ptrdiff_t end = PE_FN(least)(begin + PE_BLOCK_ROWS, PE_ROWS), rows = end - begin;
    ptrdiff_t seen[PE_BLOCK_ROWS];
    const ptrdiff_t reach = PE_FN(look)(mask, begin, rows, seen), step = PE_HEADS * PE_WIDTH;
    float factor[PE_BLOCK_ROWS];
    PE_FN(score_block)(scores, q + begin * PE_HEADS * PE_SIZE, head, rows, reach);
    for (ptrdiff_t i = 0; i < rows; i++) {
        const PE_MASK_TYPE *own = mask + (begin + i) * PE_MASK_ROW;
        float *row = scores + i * PE_PITCH, *stat = stats + (begin + i) * 2 * PE_HEADS;
        stat[0] = PE_FN(most)(row, own, begin + i, seen[i]);
        stat[1] = PE_FN(powers)(row, own, begin + i, seen[i], reach, stat[0], 1.0f);
        factor[i] = 1.0f / stat[1];
    }
    const PE_FN(mix_io) io = {.y = y + begin * step, .factor = factor, .tiles = head->tiles};
    PE_FN(mix_run)(io, scores, PE_TILES ? head->packed_values : head->values, rows, PE_WIDTH,
                   reach);
}

PE_INLINE void PE_FN(run)(const pe_worker *w, const float *q, const float *k, const float *v,
                          const PE_MASK_TYPE *mask, float *y, float *stats, float *scratch) {
    const pe_range share = PE_FN(share)(w, (ptrdiff_t)PE_BATCH * PE_HEADS * PE_BLOCKS, 1);
    float *own = scratch + w->index * (ptrdiff_t)PE_OWN_FLOATS, *values = own + PE_KEYS_FLOATS;
    float *scores = values + PE_VALUES_FLOATS;
    const int tiles = PE_FN(begin_tiles)();
    PE_FN(head) head = {0};
    for (ptrdiff_t unit = share.begin; unit < share.end; unit++) {
        const ptrdiff_t batch = unit / PE_BLOCKS / PE_HEADS, place = unit / PE_BLOCKS % PE_HEADS;
        const ptrdiff_t group = place / (PE_HEADS / PE_GROUPS);
        const ptrdiff_t shared = batch * PE_COLUMNS * PE_GROUPS + group;
        if (head.keys != k + shared * PE_SIZE) {
            head = (PE_FN(head)){.keys = k + shared * PE_SIZE,
                                 .values = v + shared * PE_WIDTH,
                                 .packed_keys = own,
                                 .packed_values = values,
                                 .tiles = tiles};
        }
        const ptrdiff_t row = batch * PE_ROWS * PE_HEADS + place;
        PE_FN(block)(q + row * PE_SIZE, &head, mask + batch * PE_MASK_BATCH + place * PE_MASK_HEAD,
                     y + row * PE_WIDTH, stats + 2 * row, unit % PE_BLOCKS * PE_BLOCK_ROWS, scores);
    }
    PE_FN(end_tiles)(tiles);
}

#undef PE_BLOCKS
#include "attention_undef.inc.h"
