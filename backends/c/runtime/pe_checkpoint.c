/* Checkpoints are written here; pe_checkpoint_load.c reads them. */
#include "pe_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pe_arguments.h"
#include "pe_crc.h"
#include "pe_schedule.h"

const char *const pe_checkpoint_keys[PE_KEYS] = {
    [PE_KEY_VERSION] = "pockengine.checkpoint", [PE_KEY_STEPS] = "pockengine.steps",
    [PE_KEY_UPDATES] = "pockengine.updates",    [PE_KEY_COLLECTED] = "pockengine.collected",
    [PE_KEY_SEED] = "pockengine.seed",          [PE_KEY_CONTENT] = "pockengine.content",
    [PE_KEY_FROZEN] = "pockengine.frozen",      [PE_KEY_NAME] = "pockengine.name",
    [PE_KEY_PROGRAM] = "pockengine.program",    [PE_KEY_RUNTIME] = "pockengine.runtime",
    [PE_KEY_SCHEDULE] = "pockengine.schedule",  [PE_KEY_RATE] = "pockengine.rate",
    [PE_KEY_WARMUP] = "pockengine.warmup",      [PE_KEY_TOTAL] = "pockengine.total",
    [PE_KEY_ROWS] = "pockengine.rows",          [PE_KEY_BATCH] = "pockengine.batch",
    [PE_KEY_FLIP] = "pockengine.flip",          [PE_KEY_CROP] = "pockengine.crop",
    [PE_KEY_SHUFFLE] = "pockengine.shuffle",    [PE_KEY_FACTOR] = "pockengine.factor",
    [PE_KEY_PERIOD] = "pockengine.period",      [PE_KEY_MILESTONES] = "pockengine.milestones",
};

const char *const pe_schedule_names[PE_SCHEDULES + 1] = {
    [PE_CONSTANT_RATE] = "constant", [PE_LINEAR] = "linear",           [PE_COSINE] = "cosine",
    [PE_POLYNOMIAL] = "polynomial",  [PE_EXPONENTIAL] = "exponential", [PE_STEPS] = "step",
    [PE_MILESTONES] = "multistep",   [PE_RESTARTS] = "restarts",       [PE_CYCLIC] = "cyclic",
    [PE_ONE_CYCLE] = "one-cycle",
};

/* The texts of one checkpoint, with the memory of those that are numbers. */
typedef struct texts {
    pe_st_text pairs[PE_KEYS];
    char numbers[PE_KEYS][24];
    char milestones[PE_MILESTONES_BYTES];
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

static void put_number(texts *t, int key, int64_t value) {
    snprintf(t->numbers[key], sizeof t->numbers[key], "%lld", (long long)value);
    put_text(t, key, t->numbers[key]);
}

/* The bits of a number, so that it reads back as the same. */
static void put_bits(texts *t, int key, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    snprintf(t->numbers[key], sizeof t->numbers[key], "%016llx", (unsigned long long)bits);
    put_text(t, key, t->numbers[key]);
}

/* Returns how many texts there are. */
static int fill(texts *t, pe_session *session, pe_content content) {
    const pe_program *program = session->program;
    const pe_progress *p = &session->progress;
    const pe_schedule *schedule = &session->schedule;
    put_number(t, PE_KEY_VERSION, PE_CHECKPOINT_VERSION);
    put_number(t, PE_KEY_STEPS, p->steps);
    put_number(t, PE_KEY_UPDATES, p->updates);
    put_number(t, PE_KEY_COLLECTED, p->collected);
    put_number(t, PE_KEY_SEED, p->seed);
    put_text(t, PE_KEY_CONTENT, content == PE_TRAINED ? "trained" : "whole");
    pe_crc_digits(pe_frozen_checksum(session), t->numbers[PE_KEY_FROZEN]);
    put_text(t, PE_KEY_FROZEN, t->numbers[PE_KEY_FROZEN]);
    put_text(t, PE_KEY_NAME, program->name);
    put_text(t, PE_KEY_PROGRAM, program->specification ? program->specification : "");
    put_text(t, PE_KEY_RUNTIME, PE_VERSION);
    if (schedule->total == 0) {
        return PE_KEY_SCHEDULE;
    }
    put_text(t, PE_KEY_SCHEDULE, pe_schedule_names[schedule->kind]);
    put_bits(t, PE_KEY_RATE, schedule->rate);
    put_number(t, PE_KEY_WARMUP, schedule->warmup);
    put_number(t, PE_KEY_TOTAL, schedule->total);
    put_number(t, PE_KEY_ROWS, schedule->rows);
    put_number(t, PE_KEY_BATCH, schedule->batch);
    put_number(t, PE_KEY_FLIP, schedule->flip);
    put_number(t, PE_KEY_CROP, schedule->crop);
    put_number(t, PE_KEY_SHUFFLE, schedule->shuffled);
    if (schedule->kind < PE_POLYNOMIAL) {
        return PE_KEY_FACTOR;
    }
    put_bits(t, PE_KEY_FACTOR, schedule->factor);
    put_number(t, PE_KEY_PERIOD, schedule->period);
    pe_print_milestones(schedule->milestones, t->milestones);
    put_text(t, PE_KEY_MILESTONES, t->milestones);
    return PE_KEYS;
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
                                                     : pe_schedule_fault(&session->schedule);
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
