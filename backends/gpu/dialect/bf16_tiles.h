/* Tiles of 16 x 16 bf16 numbers, the operands of a warp's product.
 *
 * Shared memory has the layout of the instruction: an item reads its part of a tile as 16 bytes,
 * eight adjacent items at a time. The exclusive or distributes writes over the banks.
 */
#ifndef PE_BF16_TILES_H
#define PE_BF16_TILES_H

/* Length of the sum per step. */
#define PE_DEEP_STEP 32
/* Maximum number of tiles of a warp, down. */
#define PE_MOST_DOWN 4

/* Place of the part of tile `t` that item `lane` of a warp needs, from element k of a line. */
PE_FUNCTION int pe_fragment_at(int tiles, int t, int k, int lane) {
    return (k / 16 * tiles + t) * 32 + (lane ^ lane / 8);
}

/* The same for the item that needs element k of a line: a row of a, or a column of b. */
PE_FUNCTION int pe_number_at(int lines, int line, int k) {
    return pe_fragment_at(lines / 16, line / 16, k, line % 8 * 4 + k % 8 / 2);
}

/* The pair that an item writes: if elements of a line are adjacent in memory (`deep`), half a step
 * of pairs lies along the line; else adjacent items take adjacent lines. */
PE_FUNCTION int pe_line(int pair, int lines, int deep) {
    return deep ? pair / (PE_DEEP_STEP / 2) : pair % lines;
}

PE_FUNCTION int pe_depth(int pair, int lines, int deep) {
    return 2 * (deep ? pair % (PE_DEEP_STEP / 2) : pair / lines);
}

/* Parts of a fragment with elements k and k + 1 of a line. */
PE_FUNCTION int pe_part_a(int line, int k) { return line / 8 % 2 + k / 8 % 2 * 2; }

PE_FUNCTION int pe_part_b(int line, int k) { return line / 8 % 2 * 2 + k / 8 % 2; }

/* Adds the products of a step to the tiles of a warp, `down` x `across` of them with eight sums per
 * item; a group has 2 x 4 warps. */
PE_FUNCTION void pe_multiply_tiles(float *sums, const PE_LOCAL pe_fragment *tiles_a, int down,
                                   const PE_LOCAL pe_fragment *tiles_b, int across) {
    const int lane = pe_item() % 32, y = pe_item() / 128 * down, x = pe_item() / 32 % 4 * across;
    for (int k = 0; k < PE_DEEP_STEP; k += 16) {
        pe_fragment a[PE_MOST_DOWN];
        PE_UNROLL
        for (int i = 0; i < down; i++) {
            a[i] = tiles_a[pe_fragment_at(2 * down, y + i, k, lane)];
        }
        PE_UNROLL
        for (int j = 0; j < across; j++) {
            const pe_fragment b = tiles_b[pe_fragment_at(4 * across, x + j, k, lane)];
            PE_UNROLL
            for (int i = 0; i < down; i++) {
                float *own = sums + (i * across + j) * 8;
                pe_mma_bf16(own, a[i].part, b.part);
                pe_mma_bf16(own + 4, a[i].part, b.part + 2);
            }
        }
    }
}

/* Row and column of an item's sum, within its group's tile. */
PE_FUNCTION int pe_sum_row(int sum, int down, int across) {
    const int tile = pe_item() / 128 * down + sum / 8 / across;
    return tile * 16 + sum / 2 % 2 * 8 + pe_item() % 32 / 4;
}

PE_FUNCTION int pe_sum_column(int sum, int across) {
    const int tile = pe_item() / 32 % 4 * across + sum / 8 % across;
    return tile * 16 + sum / 4 % 2 * 8 + pe_item() % 4 * 2 + sum % 2;
}

#endif
