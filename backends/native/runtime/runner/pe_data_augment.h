/* Random flips and crops of the pictures of a batch, as backends/augmentation.py has them. */
#ifndef PE_DATA_AUGMENT_H
#define PE_DATA_AUGMENT_H

#include "pe_data.h"

typedef struct pe_augmentation {
    bool flip;    /* half of the pictures are mirrored */
    int64_t crop; /* each is moved by up to so many pixels both ways, with zeros around it */
} pe_augmentation;

/* Checks that the data have pictures in one input, f32 [B, C, H, W] or [B, H, W, C] with 1 or 3
 * channels, that no other would have to move along, and that a crop leaves something of them. */
pe_status pe_check_augmentation(const pe_data *data, const pe_augmentation *how, char *message);

/* Flips and crops the pictures of a batch in memory; the changes depend on the seed, the epoch and
 * each picture's position in the epoch. */
void pe_augment(const pe_data *data, const pe_session *session, const pe_augmentation *how,
                int64_t epoch, int64_t batch);

#endif
