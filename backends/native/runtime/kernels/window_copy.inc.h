/* Copies the window of a result pixel, line by line, with zero points for pixels outside the
 * source.
 *
 * Parameters: those of the template that includes it, pairs_conv.inc.h or helium_product.inc.h.
 */
PE_INLINE void PE_FN(copy)(const PE_FN(io) * io, int8_t *to, const int8_t *image, const int y,
                           const int x) {
    (void)io;
    for (int t = 0; t < PE_TAPS_H; t++) {
        const int row = y * PE_STEP_H - PE_TOP + t * PE_GAP_H;
        for (int u = 0; u < PE_TAPS_W; u++, to += PE_CHANNELS) {
            const int column = x * PE_STEP_W - PE_LEFT + u * PE_GAP_W;
            if (row < 0 || row >= PE_SOURCE_H || column < 0 || column >= PE_SOURCE_W) {
                memset(to, (uint8_t)PE_A_ZERO, PE_CHANNELS);
            } else {
                memcpy(to, image + ((ptrdiff_t)row * PE_SOURCE_W + column) * PE_CHANNELS,
                       PE_CHANNELS);
            }
        }
    }
}
