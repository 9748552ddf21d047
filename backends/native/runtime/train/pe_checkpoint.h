/* The texts of a checkpoint's `__metadata__`.
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
 *     pockengine.flip, .crop         augmentation of pictures: 0 or 1, and pixels
 *     pockengine.factor, .period, .milestones    of schedules that have a factor: bits like those
 * of the rate; decimal; decimal with commas between
 *
 * Version 3 had no .batch, .flip and .crop. Version 2 had .batches in place of the rows, so that
 * its schedule is left out; version 1 had neither checksums nor what follows the seed. A file
 * without a version holds params only.
 */
#ifndef PE_CHECKPOINT_H
#define PE_CHECKPOINT_H

#include "pe_safetensors.h"
#include "pe_train.h"

#define PE_CHECKPOINT_VERSION 4

/* Texts that are no fields of a training. */
enum {
    PE_KEY_VERSION,
    PE_KEY_CONTENT, /* this one and those below since version 2 */
    PE_KEY_FROZEN,
    PE_KEY_NAME,
    PE_KEY_PROGRAM,
    PE_KEY_RUNTIME,
    PE_KEYS
};

extern const char *const pe_checkpoint_keys[PE_KEYS];

/* The training state in a checkpoint. */
typedef struct pe_record {
    pe_progress progress;
    pe_schedule schedule;
} pe_record;

/* How a field is written. */
typedef enum pe_text_form {
    PE_TEXT_COUNT, /* an int64_t up to 2^31 - 1, in decimal */
    PE_TEXT_ROWS,  /* any that is not negative */
    PE_TEXT_SEED,  /* an uint32_t, in decimal */
    PE_TEXT_FLAG,  /* 0 or 1 */
    PE_TEXT_REAL,  /* the bits of a double, as 16 hexadecimal digits */
    PE_TEXT_SCHEDULE,
    PE_TEXT_MILESTONES,
} pe_text_form;

/* Which checkpoints have a field: all; those with a schedule; those whose schedule has a factor. */
typedef enum pe_field_group { PE_OF_PROGRESS, PE_OF_SCHEDULE, PE_OF_FACTOR } pe_field_group;

typedef struct pe_field {
    const char *key;
    pe_text_form form;
    pe_field_group group;
    uint64_t since; /* the first version that has it */
    size_t offset;  /* in pe_record */
} pe_field;

/* state_text.py: begin */
#define PE_FIELDS 16
/* state_text.py: end */

extern const pe_field pe_fields[PE_FIELDS];

/* Names of schedules, with NULL after the last. */
extern const char *const pe_schedule_names[PE_SCHEDULES + 1];

#define PE_MILESTONES_BYTES (PE_MOST_MILESTONES * 11)

/* Writes rising numbers with commas between, as text of at most PE_MILESTONES_BYTES. */
void pe_print_milestones(const int64_t *milestones, char *text);

/* Reads them; false if the text is invalid. An empty text means no milestones. */
bool pe_parse_milestones(const char *text, int64_t *milestones);

/* Writes a field of a record, as text of at most PE_MILESTONES_BYTES. */
void pe_print_field(const pe_field *field, const pe_record *record, char *text);

/* Reads it; false if the text does not have its form. */
bool pe_parse_field(const pe_field *field, const char *text, pe_record *record);

/* A decimal number up to a limit, hexadecimal digits of this length, and the place of a name;
 * UINT64_MAX for other texts. */
uint64_t pe_parse_decimal(const char *text, uint64_t limit);
uint64_t pe_parse_hexadecimal(const char *text, size_t length);
uint64_t pe_parse_choice(const char *text, const char *const *names, int count);

/* The checksum of all params of the model that no entry writes. */
uint32_t pe_frozen_checksum(pe_session *session);

#endif
