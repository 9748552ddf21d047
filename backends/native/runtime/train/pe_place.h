/* The files of a place of checkpoints (pe_train.h). */
#ifndef PE_PLACE_H
#define PE_PLACE_H

#include "pe_safetensors.h"
#include "pe_train.h"

/* Whether the place is a folder. */
bool pe_place_is_folder(const pe_place *place);

/* Writes the path of the checkpoint of a step. */
pe_status pe_place_path(const pe_place *place, int64_t step, char *path, char *message);

/* The largest step below `below` with a checkpoint in the place; -1 if there is none. For a
 * single file it is 0. */
int64_t pe_place_newest(const pe_place *place, int64_t below);

/* Removes checkpoints except the newest, and unfinished files of killed runs. */
void pe_place_tidy(const pe_place *place);

#endif
