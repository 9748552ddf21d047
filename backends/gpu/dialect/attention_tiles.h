/* Shared by the attention kernels: tiles of 64 x 64 scores for 256 items. Item x + 16 y0 has the
 * scores of rows y0 + 16 i and columns x + 16 j. */
#ifndef PE_ATTENTION_TILES_H
#define PE_ATTENTION_TILES_H

#define PE_SIDE 64
/* Floats of local memory in addition to the scores: 16 per row, for 64 rows, twice; or values. */
#define PE_TILES 2048
/* Rows of values of this length that fit there. */
#define PE_HELD(size) ((size) > 128 ? 8 : 16)
/* Columns per item of a row of this length. */
#define PE_OWN(size) (((size) + 15) / 16)

/* Rows before the first query of a head, or the first key of a group. */
#define PE_QUERIES(head, row) (((head) / PE_HEADS * PE_ROWS + (row)) * PE_HEADS + (head) % PE_HEADS)
#define PE_KEYS(group, column)                                                                     \
    (((group) / PE_GROUPS * PE_COLUMNS + (column)) * PE_GROUPS + (group) % PE_GROUPS)

/* The four rows of an item, and its columns of each. */
#define PE_EACH_ROW(i)                                                                             \
    PE_UNROLL                                                                                      \
    for (int i = 0; i < 4; i++)
#define PE_EACH_NUMBER(i, j, count)                                                                \
    PE_EACH_ROW(i)                                                                                 \
    PE_UNROLL                                                                                      \
    for (int j = 0; j < (count); j++)

/* sums = a bᵀ of up to 64 rows each, with `size` elements and the given strides; missing rows are
 * 0. */
PE_FUNCTION void pe_tile_scores(PE_LOCAL float *tiles, int item, const PE_GLOBAL float *a,
                                int a_step, int rows, const PE_GLOBAL float *b, int b_step,
                                int columns, int size, PE_PRIVATE float sums[4][4]) {
    const int x = item % 16, y0 = item / 16;
    PE_EACH_NUMBER(i, j, 4) { sums[i][j] = 0.0f; }
    for (int k0 = 0; k0 < size; k0 += 16) {
        for (int e = item; e < 16 * PE_SIDE; e += 256) {
            const int row = e / 16, k = k0 + e % 16, at = e % 16 * PE_SIDE + row;
            tiles[at] = row < rows && k < size ? a[row * a_step + k] : 0.0f;
            tiles[at + 16 * PE_SIDE] = row < columns && k < size ? b[row * b_step + k] : 0.0f;
        }
        pe_barrier();
        for (int k = 0; k < 16; k++) {
            PE_EACH_NUMBER(i, j, 4) {
                const float one = tiles[k * PE_SIDE + y0 + 16 * i];
                const float other = tiles[(16 + k) * PE_SIDE + x + 16 * j];
                sums[i][j] = PE_MATH(fma)(one, other, sums[i][j]);
            }
        }
        pe_barrier();
    }
}

/* Exchanges numbers among the 16 items of a row: each writes one for each of its four rows, and
 * PE_ROW_NUMBER(i, c) reads that of item c. */
#define PE_ROW_NUMBER(i, c) tiles[(item / 16 + 16 * (i)) * 16 + (c)]
PE_FUNCTION void pe_tell_row(PE_LOCAL float *tiles, int item, PE_PRIVATE float numbers[4]) {
    PE_EACH_ROW(i) { PE_ROW_NUMBER(i, item % 16) = numbers[i]; }
    pe_barrier();
}

/* Replaces the partial row sums of each item by the sums. */
PE_FUNCTION void pe_row_sums(PE_LOCAL float *tiles, int item, PE_PRIVATE float sums[4]) {
    pe_tell_row(tiles, item, sums);
    PE_EACH_ROW(i) {
        sums[i] = 0.0f;
        for (int c = 0; c < 16; c++) {
            sums[i] += PE_ROW_NUMBER(i, c);
        }
    }
}

/* Turns scores into exponentials relative to the running maximum of each row, and writes them to
 * `shares`. `kept` is the factor that rescales earlier exponentials to the new maximum. */
PE_FUNCTION void pe_tile_shares(PE_LOCAL float *tiles, PE_LOCAL float *shares, int item,
                                PE_PRIVATE float sums[4][4], PE_PRIVATE float most[4],
                                PE_PRIVATE float total[4], PE_PRIVATE float kept[4]) {
    const int x = item % 16, y0 = item / 16;
    float greatest[4];
    PE_EACH_ROW(i) { greatest[i] = most[i]; }
    PE_EACH_NUMBER(i, j, 4) { greatest[i] = pe_maximum(greatest[i], sums[i][j]); }
    pe_tell_row(tiles, item, greatest);
    PE_EACH_ROW(i) {
        for (int c = 0; c < 16; c++) {
            greatest[i] = pe_maximum(greatest[i], PE_ROW_NUMBER(i, c));
        }
        const float from = greatest[i] == -PE_INFINITY ? 0.0f : greatest[i]; /* nothing seen yet */
        kept[i] = PE_MATH(exp)(most[i] - from);
        most[i] = greatest[i];
        total[i] *= kept[i];
        PE_UNROLL
        for (int j = 0; j < 4; j++) {
            const float share = PE_MATH(exp)(sums[i][j] - from);
            total[i] += share;
            shares[(y0 + 16 * i) * PE_SIDE + x + 16 * j] = share;
        }
    }
    pe_barrier(); /* before `tiles` is reused */
}

/* sums += shares values, or sharesᵀ values: `count` rows of SIZE values each, with stride `step`.
 * Before the call all items have written their shares and finished reading `tiles`. */
#define PE_TILE_MIX(sums, transposed, values, step, count, SIZE)                                   \
    for (int first_row = 0; first_row < PE_SIDE; first_row += PE_HELD(SIZE)) {                     \
        for (int e = pe_item(); e < PE_HELD(SIZE) * 16 * PE_OWN(SIZE); e += 256) {                 \
            const int r = first_row + e / (16 * PE_OWN(SIZE)), c = e % (16 * PE_OWN(SIZE));        \
            tiles[e] = r < (count) && c < SIZE ? (values)[r * (step) + c] : 0.0f;                  \
        }                                                                                          \
        pe_barrier();                                                                              \
        for (int e = 0; e < PE_HELD(SIZE); e++) {                                                  \
            const int r = first_row + e;                                                           \
            PE_EACH_ROW(i) {                                                                       \
                const int own = y0 + 16 * i;                                                       \
                const float share = shares[transposed ? r * PE_SIDE + own : own * PE_SIDE + r];    \
                PE_UNROLL                                                                          \
                for (int j = 0; j < PE_OWN(SIZE); j++) {                                           \
                    const float value = tiles[e * 16 * PE_OWN(SIZE) + x + 16 * j];                 \
                    sums[i][j] = PE_MATH(fma)(share, value, sums[i][j]);                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        pe_barrier();                                                                              \
    }

#endif
