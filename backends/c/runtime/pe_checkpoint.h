/* The texts of a checkpoint's `__metadata__`, for those who write and read them.
 *
 *     pockengine.header, .tensors    checksums (pe_safetensors.h)
 *     pockengine.checkpoint          version of this form
 *     pockengine.steps, .updates, .collected, .seed    the progress, in decimal
 *     pockengine.content             "trained" or "whole"
 *     pockengine.frozen              checksum of the params that no entry writes
 *     pockengine.name, .program, .runtime    the program's name and specification, our version
 *     pockengine.schedule            "constant", "linear" or "cosine"; with it
 *     pockengine.rate                bits of its f64 as 16 hexadecimal digits
 *     pockengine.warmup, .total      in decimal
 *     pockengine.rows, .shuffle      rows of the data, and whether epochs shuffle them: 0 or 1
 *
 * Version 2 had .batches in place of the rows, so that its schedule is left out; version 1 had
 * neither checksums nor what follows the seed. A file without a version holds params only.
 */
#ifndef PE_CHECKPOINT_H
#define PE_CHECKPOINT_H

#include "pe_safetensors.h"

#define PE_CHECKPOINT_VERSION 3

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
    PE_KEYS
};

extern const char *const pe_checkpoint_keys[PE_KEYS];

/* "constant", "linear", "cosine". */
extern const char *const pe_schedule_names[3];

/* The checksum of all params that no entry writes. */
uint32_t pe_frozen_checksum(pe_session *session);

#endif
