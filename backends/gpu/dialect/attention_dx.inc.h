/* A gradient of attention: a group computes dq of 64 rows, or dk or dv of 64 columns. The
 * probabilities of each 64 x 64 tile are recomputed from stats. Reads dy, q, k, v, stats, delta,
 * mask; writes dx. Macros are those of attention.inc.h, and
 *
 * PE_GRADIENT           0, 1, 2: dq, dk, dv
 * PE_START(column)      first row that attends to this column, or the row after it
 * PE_DX_SIZE            length of a row of the result
 * PE_DX_MIX(queries, keys, rows, columns)   adds a tile's part to the result
 * PE_SCALE              the factor of scores
 * PE_SEEN(head, row, column)   whether a score comes from q and k
 */
#include "attention_tiles.h"

#define PE_SHARE (PE_HEADS / PE_GROUPS)
#define PE_DX_ROWS (PE_GRADIENT ? PE_COLUMNS : PE_ROWS)
#define PE_DX_AT(line) (PE_GRADIENT ? PE_KEYS(owner, line) : PE_QUERIES(owner, line))
#define PE_PIECES ((PE_DX_ROWS + PE_SIDE - 1) / PE_SIDE)

#define PE_COUNTS(head, row, column) (PE_GRADIENT == 2 || PE_SEEN(head, row, column))

/* A probability, or the unscaled gradient of a score. */
#define PE_TERM(sum, toward, head, row, column)                                                    \
    (PE_MATH(exp)(PE_SCORE(sum, head, row, column) - stats[PE_QUERIES(head, row) * 2]) /           \
     stats[PE_QUERIES(head, row) * 2 + 1] *                                                        \
     (PE_GRADIENT == 2 ? 1.0f : (toward) - delta[PE_QUERIES(head, row)]))

PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shares, PE_SIDE *PE_SIDE);
    PE_SHARED(float, tiles, PE_TILES);
    const int x = pe_item() % 16, y0 = pe_item() / 16;
    const int owner = pe_group() / PE_PIECES, first = pe_group() % PE_PIECES * PE_SIDE;
    const int group = PE_GRADIENT ? owner : owner / PE_SHARE;
    const int head0 = PE_GRADIENT ? owner * PE_SHARE : owner;
    const int start = PE_GRADIENT ? PE_START(first) / PE_SIDE * PE_SIDE : 0;
    const int stop = PE_GRADIENT ? PE_ROWS : PE_STOP(first + PE_SIDE);
    float sums[4][4], toward[4][4], out[4][PE_OWN(PE_DX_SIZE)];
    PE_EACH_NUMBER(i, j, PE_OWN(PE_DX_SIZE)) { out[i][j] = 0.0f; }
    for (int head = head0; head < head0 + (PE_GRADIENT ? PE_SHARE : 1); head++) {
        for (int other = start; other < stop; other += PE_SIDE) {
            const int row0 = PE_GRADIENT ? other : first, column0 = PE_GRADIENT ? first : other;
            const int rows = PE_ROWS - row0, columns = PE_COLUMNS - column0;
            const int queries = PE_QUERIES(head, row0), keys = PE_KEYS(group, column0);
            pe_tile_scores(tiles, pe_item(), q + queries * PE_SIZE, PE_HEADS * PE_SIZE, rows,
                           k + keys * PE_SIZE, PE_GROUPS * PE_SIZE, columns, PE_SIZE, sums);
            pe_tile_scores(tiles, pe_item(), dy + queries * PE_WIDTH, PE_HEADS * PE_WIDTH, rows,
                           v + keys * PE_WIDTH, PE_GROUPS * PE_WIDTH, columns,
                           PE_GRADIENT == 2 ? 0 : PE_WIDTH, toward);
            PE_EACH_NUMBER(i, j, 4) {
                const int row = row0 + y0 + 16 * i, column = column0 + x + 16 * j;
                shares[(y0 + 16 * i) * PE_SIDE + x + 16 * j] =
                    row < PE_ROWS && column < PE_COLUMNS && PE_COUNTS(head, row, column)
                        ? PE_TERM(sums[i][j], toward[i][j], head, row, column)
                        : 0.0f;
            }
            PE_DX_MIX(queries, keys, rows, columns)
        }
    }
    PE_EACH_NUMBER(i, j, PE_OWN(PE_DX_SIZE)) {
        const int line = first + y0 + 16 * i;
        if (line < PE_DX_ROWS && x + 16 * j < PE_DX_SIZE) {
            dx[PE_DX_AT(line) * PE_DX_SIZE + x + 16 * j] =
                out[i][j] * (PE_GRADIENT == 2 ? 1.0f : PE_SCALE);
        }
    }
}

#undef PE_SHARE
#undef PE_DX_ROWS
#undef PE_DX_AT
#undef PE_PIECES
#undef PE_COUNTS
#undef PE_TERM
