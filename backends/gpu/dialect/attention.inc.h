/* Attention: a group processes 64 rows of a head, in tiles of 64 columns. It keeps the running
 * maximum score and sum of exponentials of each row, and rescales the partial result when the
 * maximum grows (FlashAttention-2, arXiv 2307.08691). Reads q, k, v, mask; writes y and stats.
 *
 * PE_HEADS, PE_GROUPS   heads of the queries, and of the keys and values, in a sample
 * PE_ROWS, PE_COLUMNS   size of the scores
 * PE_SIZE, PE_WIDTH     length of a query or key, and of a value
 * PE_STOP(row)          limit of the columns visible to rows below this one
 * PE_SCORE(sum, head, row, column)   scaled and masked score of a product of query and key
 */
#include "attention_tiles.h"

PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shares, PE_SIDE *PE_SIDE);
    PE_SHARED(float, tiles, PE_TILES);
    const int x = pe_item() % 16, y0 = pe_item() / 16;
    const int pieces = (PE_ROWS + PE_SIDE - 1) / PE_SIDE;
    const int head = pe_group() / pieces, row0 = pe_group() % pieces * PE_SIDE;
    const int group = head / (PE_HEADS / PE_GROUPS), stop = PE_STOP(row0 + PE_SIDE);
    const int queries = PE_QUERIES(head, row0) * PE_SIZE;
    float out[4][PE_OWN(PE_WIDTH)], sums[4][4], total[4], kept[4];
    float most[4] = {-PE_INFINITY, -PE_INFINITY, -PE_INFINITY, -PE_INFINITY};
    PE_EACH_ROW(i) { total[i] = 0.0f; }
    PE_EACH_NUMBER(i, j, PE_OWN(PE_WIDTH)) { out[i][j] = 0.0f; }
    for (int column0 = 0; column0 < stop; column0 += PE_SIDE) {
        const int keys = PE_KEYS(group, column0), columns = PE_COLUMNS - column0;
        pe_tile_scores(tiles, pe_item(), q + queries, PE_HEADS * PE_SIZE, PE_ROWS - row0,
                       k + keys * PE_SIZE, PE_GROUPS * PE_SIZE, columns, PE_SIZE, sums);
        PE_EACH_NUMBER(i, j, 4) {
            const int row = row0 + y0 + 16 * i, column = column0 + x + 16 * j;
            const int inside = row < PE_ROWS && column < PE_COLUMNS;
            sums[i][j] = inside ? PE_SCORE(sums[i][j], head, row, column) : -PE_INFINITY;
        }
        pe_tile_shares(tiles, shares, pe_item(), sums, most, total, kept);
        PE_EACH_NUMBER(i, j, PE_OWN(PE_WIDTH)) { out[i][j] *= kept[i]; }
        PE_TILE_MIX(out, 0, v + keys * PE_WIDTH, PE_GROUPS * PE_WIDTH, columns, PE_WIDTH)
    }
    pe_row_sums(tiles, pe_item(), total);
    PE_EACH_ROW(i) {
        if (row0 + y0 + 16 * i < PE_ROWS && x < 2) {
            stats[PE_QUERIES(head, row0 + y0 + 16 * i) * 2 + x] = x ? total[i] : most[i];
        }
    }
    PE_EACH_NUMBER(i, j, PE_OWN(PE_WIDTH)) {
        const int row = row0 + y0 + 16 * i;
        if (row < PE_ROWS && x + 16 * j < PE_WIDTH) {
            y[PE_QUERIES(head, row) * PE_WIDTH + x + 16 * j] = out[i][j] / total[i];
        }
    }
}
