/* Random flips and crops of the pictures of a batch, equal to backends/augmentation.py. */
#ifndef PE_DATA_AUGMENT_H
#define PE_DATA_AUGMENT_H

#include "pe_data.h"

typedef struct pe_augmentation {
    bool flip;    /* half of the pictures are mirrored */
    int64_t crop; /* pixels: the largest shift in each direction; zeros fill the gap */
} pe_augmentation;

/* Checks that the data have pictures in one input, f32 [B, C, H, W] or [B, H, W, C] with 1 or 3
 * channels, that no other input would need the same shift, and that the crop is smaller than the
 * pictures. */
pe_status pe_check_augmentation(const pe_data *data, const pe_augmentation *how, char *message);

/* Flips and crops the pictures of a batch in memory; the changes depend on the seed, the epoch and
 * each picture's position in the epoch. */
void pe_augment(const pe_data *data, const pe_session *session, const pe_augmentation *how,
                int64_t epoch, int64_t batch);

#endif
