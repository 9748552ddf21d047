/* How the sums of one of attention's products are stored.
 *
 * Parameters: PE_FN(name), PE_VL; PE_Y_PITCH, the row length of the result; PE_FACTOR_STEP, from
 * one row's factor to the next's; PE_SCALE, the scale of scores; and PE_STORE, of these:
 *
 *   PE_STORE_SUMS     unchanged
 *   PE_STORE_SCALED   times factor[row]
 *   PE_STORE_TOWARD   shares (sums - factor[row]) scale
 *   PE_STORE_ADDED    to the result
 */

#if !defined(PE_STORE)
#error "attention_store.inc.h needs PE_STORE"
#endif

#define PE_STORE_SUMS 0
#define PE_STORE_SCALED 1
#define PE_STORE_TOWARD 2
#define PE_STORE_ADDED 3

/* Destination of a product's sums; `shares` have the layout of the result. With `tiles` the tile
 * registers are configured (attention_tiles.inc.h). */
typedef struct PE_FN(io) {
    float *y;
    const float *factor, *shares;
    int tiles;
} PE_FN(io);

PE_INLINE void PE_FN(store)(const PE_FN(io) * io, const pe_vf acc, const ptrdiff_t row,
                            const int column, const int lanes) {
    const ptrdiff_t at = row * PE_Y_PITCH + column;
#if PE_STORE == PE_STORE_SCALED
    pe_store_part(io->y + at, acc * io->factor[row * PE_FACTOR_STEP], lanes);
#elif PE_STORE == PE_STORE_TOWARD
    const pe_vf share = pe_load_part(io->shares + at, lanes) * PE_SCALE;
    pe_store_part(io->y + at, share * (acc - io->factor[row * PE_FACTOR_STEP]), lanes);
#elif PE_STORE == PE_STORE_ADDED
    pe_store_part(io->y + at, acc + pe_load_part(io->y + at, lanes), lanes);
#else
    pe_store_part(io->y + at, acc, lanes);
#endif
}

#undef PE_FACTOR_STEP
#undef PE_SCALE
#undef PE_STORE
#undef PE_STORE_ADDED
#undef PE_STORE_SCALED
#undef PE_STORE_SUMS
#undef PE_STORE_TOWARD
#undef PE_Y_PITCH
