/* Steps over a block's neighboring pixels. Pair loads and stores have a small offset range, so
 * every PE_NEAR + 1 pixels get a new pointer.
 *
 * Parameters: PE_FN, PE_CHANNELS.
 */

#if !defined(PE_CHANNELS)
#error "depthwise_reach.inc.h needs PE_CHANNELS"
#endif

#define PE_NEAR (PE_PAIR_REACH / (4 * PE_CHANNELS))
#define PE_STARTS_NEAR(i) ((i) == 0 || (PE_NEAR && (i) % (PE_NEAR + 1) == 0))

/* The i-th pixel from `first` on; `last` is the pixel before it. */
PE_INLINE const float *PE_FN(next_pixel)(const float *first, const float *last, const int i) {
    return PE_STARTS_NEAR(i) ? pe_fresh(first + i * PE_CHANNELS) : last + PE_CHANNELS;
}
