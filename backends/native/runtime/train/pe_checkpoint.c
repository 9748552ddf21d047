/* Checkpoints are written here; pe_checkpoint_load.c reads them. */
#include "pe_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pe_arguments.h"
#include "pe_crc.h"
#include "pe_schedule.h"

const char *const pe_checkpoint_keys[PE_KEYS] = {
    [PE_KEY_VERSION] = "pockengine.checkpoint", [PE_KEY_CONTENT] = "pockengine.content",
    [PE_KEY_FROZEN] = "pockengine.frozen",      [PE_KEY_NAME] = "pockengine.name",
    [PE_KEY_PROGRAM] = "pockengine.program",    [PE_KEY_RUNTIME] = "pockengine.runtime",
};

/* The texts of one checkpoint, with the memory of those that are numbers. */
typedef struct texts {
    pe_st_text pairs[PE_KEYS + PE_FIELDS];
    char version[12], frozen[12];
    char fields[PE_FIELDS][PE_MILESTONES_BYTES];
} texts;

uint32_t pe_frozen_checksum(pe_session *session) {
    uint32_t crc = PE_CRC_EMPTY;
    for (int i = 0; !session->frozen_known && i < session->program->param_count; i++) {
        const pe_tensor *param = &session->program->params[i];
        if (!(param->flags & (PE_WRITTEN | PE_CONSTANT))) {
            crc = pe_crc32(crc, pe_param_data(session, param), pe_tensor_bytes(param));
        }
    }
    session->frozen_sum = session->frozen_known ? session->frozen_sum : crc;
    session->frozen_known = true;
    return session->frozen_sum;
}

static void put_text(texts *t, int key, const char *value) {
    t->pairs[key] = (pe_st_text){pe_checkpoint_keys[key], value};
}

/* Returns how many texts there are. */
static int fill(texts *t, pe_session *session, pe_content content) {
    const pe_program *program = session->program;
    const pe_schedule *schedule = session->schedule;
    pe_record record = {.progress = session->progress};
    pe_field_group last = PE_OF_PROGRESS;
    snprintf(t->version, sizeof t->version, "%d", PE_CHECKPOINT_VERSION);
    pe_crc_digits(pe_frozen_checksum(session), t->frozen);
    put_text(t, PE_KEY_VERSION, t->version);
    put_text(t, PE_KEY_CONTENT, content == PE_TRAINED ? "trained" : "whole");
    put_text(t, PE_KEY_FROZEN, t->frozen);
    put_text(t, PE_KEY_NAME, program->name);
    put_text(t, PE_KEY_PROGRAM, program->specification ? program->specification : "");
    put_text(t, PE_KEY_RUNTIME, PE_VERSION);
    if (schedule && schedule->total != 0) {
        record.schedule = *schedule;
        last = schedule->kind < PE_POLYNOMIAL ? PE_OF_SCHEDULE : PE_OF_FACTOR;
    }
    int count = PE_KEYS;
    for (int i = 0; i < PE_FIELDS; i++) {
        if (pe_fields[i].group <= last) {
            pe_print_field(&pe_fields[i], &record, t->fields[i]);
            t->pairs[count++] = (pe_st_text){pe_fields[i].key, t->fields[i]};
        }
    }
    return count;
}

static bool is_written(const pe_tensor *param) { return (param->flags & PE_WRITTEN) != 0; }

static pe_st_content content_of(texts *t, pe_session *session, pe_content content) {
    const pe_program *program = session->program;
    return (pe_st_content){
        .tensors = program->params,
        .tensor_count = program->param_count,
        .takes = content == PE_TRAINED ? is_written : NULL,
        .texts = t->pairs,
        .text_count = fill(t, session, content),
        .session = session,
    };
}

/* Checks the params that must be finite. */
static pe_status check_finite(const pe_session *session, char *message) {
    for (int i = 0; i < session->program->param_count; i++) {
        const pe_tensor *param = &session->program->params[i];
        const float *data = pe_param_data(session, param);
        const bool wanted = (param->flags & PE_FINITE) != 0;
        const size_t count = wanted ? pe_tensor_bytes(param) / sizeof *data : 0;
        for (size_t j = 0; j < count; j++) {
            if (!isfinite(data[j])) {
                return pe_fail(message, PE_ERROR_DIVERGED,
                               "%s is not finite at element %zu (%g): the training diverged, and "
                               "nothing is saved; take a lower rate from the last checkpoint on",
                               param->name, j, (double)data[j]);
            }
        }
    }
    return PE_OK;
}

/* Checks what a caller may have set since the session was opened. */
static pe_status check_call(pe_session *session, const char *function, const char *path,
                            pe_content content) {
    const pe_status status = pe_check_arguments(session, function, path != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_progress *p = &session->progress;
    const int64_t counts[] = {p->steps, p->updates, p->collected};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] < 0 || counts[i] > INT32_MAX) {
            return pe_fail(session->message, PE_ERROR_ARGUMENT,
                           "a training cannot have come as far as %lld", (long long)counts[i]);
        }
    }
    const char *fault = (unsigned)content > PE_WHOLE ? "there is no such content of a checkpoint"
                        : session->schedule          ? pe_schedule_fault(session->schedule)
                                                     : NULL;
    return fault ? pe_fail(session->message, PE_ERROR_ARGUMENT, "%s", fault) : PE_OK;
}

pe_status pe_try_checkpoint(pe_session *session, const char *path, pe_content content) {
    const pe_status status = check_call(session, "pe_try_checkpoint", path, content);
    if (status != PE_OK) {
        return status;
    }
    texts t;
    const pe_st_content whole = content_of(&t, session, content);
    return pe_st_try_place(path, pe_st_file_bytes(&whole), session->message);
}

pe_status pe_save_checkpoint(pe_session *session, const char *path, pe_content content) {
    pe_status status = check_call(session, "pe_save_checkpoint", path, content);
    status = status == PE_OK ? pe_fetch_params(session) : status;
    status = status == PE_OK ? check_finite(session, session->message) : status;
    if (status != PE_OK) {
        return status;
    }
    texts t;
    const pe_st_content whole = content_of(&t, session, content);
    pe_st_writer writer;
    status = pe_st_create(&writer, path, &whole, session->message);
    uint64_t offset = 0;
    for (int i = 0; status == PE_OK && i < whole.tensor_count; i++) {
        const pe_tensor *param = &whole.tensors[i];
        const size_t bytes = pe_tensor_bytes(param);
        if (pe_st_takes(&whole, i)) {
            status = pe_st_write_at(&writer, offset, pe_param_data(session, param), bytes,
                                    session->message);
            offset += bytes;
        }
    }
    return status == PE_OK ? pe_st_commit(&writer, session->message) : status;
}
