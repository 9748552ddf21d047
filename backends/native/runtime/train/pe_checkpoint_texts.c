/* How the fields of a training are written into a checkpoint, and read from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pe_checkpoint.h"

#define AT(field) offsetof(pe_record, field)

/* state_text.py: begin */
/* clang-format off */
const char *const pe_schedule_names[PE_SCHEDULES + 1] = {
    "constant",
    "linear",
    "cosine",
    "polynomial",
    "exponential",
    "step",
    "multistep",
    "restarts",
    "cyclic",
    "one-cycle",
    NULL,
};
/* clang-format on */

const pe_field pe_fields[PE_FIELDS] = {
    {"pockengine.steps", PE_TEXT_COUNT, PE_OF_PROGRESS, 1, AT(progress.steps)},
    {"pockengine.updates", PE_TEXT_COUNT, PE_OF_PROGRESS, 1, AT(progress.updates)},
    {"pockengine.collected", PE_TEXT_COUNT, PE_OF_PROGRESS, 1, AT(progress.collected)},
    {"pockengine.seed", PE_TEXT_SEED, PE_OF_PROGRESS, 1, AT(progress.seed)},
    {"pockengine.schedule", PE_TEXT_SCHEDULE, PE_OF_SCHEDULE, 3, AT(schedule.kind)},
    {"pockengine.rate", PE_TEXT_REAL, PE_OF_SCHEDULE, 3, AT(schedule.rate)},
    {"pockengine.warmup", PE_TEXT_COUNT, PE_OF_SCHEDULE, 3, AT(schedule.warmup)},
    {"pockengine.total", PE_TEXT_COUNT, PE_OF_SCHEDULE, 3, AT(schedule.total)},
    {"pockengine.rows", PE_TEXT_ROWS, PE_OF_SCHEDULE, 3, AT(schedule.rows)},
    {"pockengine.batch", PE_TEXT_ROWS, PE_OF_SCHEDULE, 4, AT(schedule.batch)},
    {"pockengine.shuffle", PE_TEXT_FLAG, PE_OF_SCHEDULE, 3, AT(schedule.shuffled)},
    {"pockengine.flip", PE_TEXT_FLAG, PE_OF_SCHEDULE, 4, AT(schedule.flip)},
    {"pockengine.crop", PE_TEXT_COUNT, PE_OF_SCHEDULE, 4, AT(schedule.crop)},
    {"pockengine.factor", PE_TEXT_REAL, PE_OF_FACTOR, 3, AT(schedule.factor)},
    {"pockengine.period", PE_TEXT_COUNT, PE_OF_FACTOR, 3, AT(schedule.period)},
    {"pockengine.milestones", PE_TEXT_MILESTONES, PE_OF_FACTOR, 3, AT(schedule.milestones)},
};
/* state_text.py: end */

void pe_print_field(const pe_field *field, const pe_record *record, char *text) {
    const void *at = (const unsigned char *)record + field->offset;
    const int64_t *count = at;
    const uint32_t *seed = at;
    const bool *flag = at;
    const pe_schedule_kind *kind = at;
    uint64_t bits;
    switch (field->form) {
    case PE_TEXT_COUNT:
    case PE_TEXT_ROWS:
        snprintf(text, PE_MILESTONES_BYTES, "%lld", (long long)*count);
        break;
    case PE_TEXT_SEED:
        snprintf(text, PE_MILESTONES_BYTES, "%lu", (unsigned long)*seed);
        break;
    case PE_TEXT_FLAG:
        snprintf(text, PE_MILESTONES_BYTES, "%d", *flag);
        break;
    case PE_TEXT_REAL: /* so that it reads back as the same */
        memcpy(&bits, at, sizeof bits);
        snprintf(text, PE_MILESTONES_BYTES, "%016llx", (unsigned long long)bits);
        break;
    case PE_TEXT_SCHEDULE:
        snprintf(text, PE_MILESTONES_BYTES, "%s", pe_schedule_names[*kind]);
        break;
    case PE_TEXT_MILESTONES:
        pe_print_milestones(count, text);
        break;
    }
}

uint64_t pe_parse_decimal(const char *text, uint64_t limit) {
    const size_t length = strlen(text);
    const bool digits = length > 0 && length <= 19 && strspn(text, "0123456789") == length;
    const uint64_t number = digits ? strtoull(text, NULL, 10) : UINT64_MAX;
    return number <= limit ? number : UINT64_MAX;
}

uint64_t pe_parse_hexadecimal(const char *text, size_t length) {
    const bool digits = strlen(text) == length && strspn(text, "0123456789abcdef") == length;
    return digits ? strtoull(text, NULL, 16) : UINT64_MAX;
}

uint64_t pe_parse_choice(const char *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            return (uint64_t)i;
        }
    }
    return UINT64_MAX;
}

/* The number in a text; UINT64_MAX if it does not have the form. */
static uint64_t number_of(pe_text_form form, const char *text) {
    switch (form) {
    case PE_TEXT_ROWS:
        return pe_parse_decimal(text, INT64_MAX);
    case PE_TEXT_SEED:
        return pe_parse_decimal(text, UINT32_MAX);
    case PE_TEXT_FLAG:
        return pe_parse_decimal(text, 1);
    case PE_TEXT_REAL:
        return pe_parse_hexadecimal(text, 16);
    case PE_TEXT_SCHEDULE:
        return pe_parse_choice(text, pe_schedule_names, PE_SCHEDULES);
    default:
        return pe_parse_decimal(text, INT32_MAX);
    }
}

bool pe_parse_field(const pe_field *field, const char *text, pe_record *record) {
    void *at = (unsigned char *)record + field->offset;
    if (field->form == PE_TEXT_MILESTONES) {
        return pe_parse_milestones(text, at);
    }
    const uint64_t number = number_of(field->form, text);
    const int64_t count = (int64_t)number;
    const uint32_t seed = (uint32_t)number;
    const bool flag = number != 0;
    const pe_schedule_kind kind = (pe_schedule_kind)number;
    if (number == UINT64_MAX) {
        return false;
    }
    switch (field->form) {
    case PE_TEXT_SEED:
        memcpy(at, &seed, sizeof seed);
        break;
    case PE_TEXT_FLAG:
        memcpy(at, &flag, sizeof flag);
        break;
    case PE_TEXT_SCHEDULE:
        memcpy(at, &kind, sizeof kind);
        break;
    default: /* the bits of a double, too */
        memcpy(at, &count, sizeof count);
        break;
    }
    return true;
}
