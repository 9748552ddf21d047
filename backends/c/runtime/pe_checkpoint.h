/* The texts of a checkpoint's `__metadata__`, for those who write and read them.
 *
 *     pockengine.header, .tensors    checksums (pe_safetensors.h)
 *     pockengine.checkpoint          version of this form
 *     pockengine.steps, .updates, .collected, .seed    the progress, in decimal
 *     pockengine.content             "trained" or "whole"
 *     pockengine.frozen              checksum of the params that no entry writes; what a compiler
 *                                    adds as constants differs between backends, and is left out
 *     pockengine.name, .program, .runtime    the program's name and specification, our version
 *     pockengine.schedule            a name of pe_schedule_names; with it
 *     pockengine.rate                bits of its f64 as 16 hexadecimal digits
 *     pockengine.warmup, .total      in decimal
 *     pockengine.rows, .batch, .shuffle    rows of the data and of a step (0: not known), and
 *                                    whether epochs shuffle them: 0 or 1
 *     pockengine.flip, .crop         what is done to pictures: 0 or 1, and pixels
 *     pockengine.factor, .period, .milestones    of schedules that have a factor: bits as those of
 *                                    the rate, in decimal, and in decimal with commas between
 *
 * Version 3 had no .batch, .flip and .crop. Version 2 had .batches in place of the rows, so that
 * its schedule is left out; version 1 had neither checksums nor what follows the seed. A file
 * without a version holds params only.
 */
#ifndef PE_CHECKPOINT_H
#define PE_CHECKPOINT_H

#include "pe_safetensors.h"

#define PE_CHECKPOINT_VERSION 4

enum {
    PE_KEY_VERSION,
    PE_KEY_STEPS,
    PE_KEY_UPDATES,
    PE_KEY_COLLECTED,
    PE_KEY_SEED,
    PE_KEY_CONTENT,
    PE_KEY_FROZEN,
    PE_KEY_NAME,
    PE_KEY_PROGRAM,
    PE_KEY_RUNTIME,
    PE_KEY_SCHEDULE, /* the first of those that may be absent */
    PE_KEY_RATE,
    PE_KEY_WARMUP,
    PE_KEY_TOTAL,
    PE_KEY_ROWS,
    PE_KEY_SHUFFLE,
    PE_KEY_BATCH, /* this one and those to PE_KEY_CROP since version 4 */
    PE_KEY_FLIP,
    PE_KEY_CROP,
    PE_KEY_FACTOR, /* the first of those that only schedules with a factor have */
    PE_KEY_PERIOD,
    PE_KEY_MILESTONES,
    PE_KEYS
};

extern const char *const pe_checkpoint_keys[PE_KEYS];

/* Names of schedules, with NULL after the last. */
extern const char *const pe_schedule_names[PE_SCHEDULES + 1];

#define PE_MILESTONES_BYTES (PE_MOST_MILESTONES * 11)

/* Writes rising numbers with commas between, as text of at most PE_MILESTONES_BYTES. */
void pe_print_milestones(const int64_t *milestones, char *text);

/* Reads them; false where the text is none of such. An empty text is no milestones. */
bool pe_parse_milestones(const char *text, int64_t *milestones);

/* The checksum of all params of the model that no entry writes. */
uint32_t pe_frozen_checksum(pe_session *session);

#endif
