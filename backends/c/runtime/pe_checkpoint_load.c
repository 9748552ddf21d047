/* Params, progress and schedule from safetensors files. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pe_arguments.h"
#include "pe_checkpoint.h"
#include "pe_frozen.h"
#include "pe_schedule.h"

/* Params that one reading of a header marks as found. */
#ifndef PE_MARKS
#define PE_MARKS 512
#endif

/* A file's params are visited several times: first only checked, PE_MARKS of the program's at a
 * time, then read. */
typedef struct loading {
    pe_session *session;
    const char *path;
    int file;
    bool read;
    bool mapped;        /* what is frozen is not read */
    bool apart;         /* the frozen params do not lie in the file as in the program */
    uint64_t frozen_at; /* else where they begin in the file */
    int first;          /* the first param that is marked */
    bool found[PE_MARKS];
    bool known[PE_KEYS];
    uint64_t numbers[PE_KEYS];
    int64_t milestones[PE_MOST_MILESTONES];
} loading;

static bool is_trained(const loading *load) {
    return load->known[PE_KEY_CONTENT] && load->numbers[PE_KEY_CONTENT] == PE_TRAINED;
}

static int find_param(const pe_program *program, const char *name) {
    for (int i = 0; i < program->param_count; i++) {
        if (strcmp(program->params[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool same_type(const pe_tensor *param, const pe_st_tensor *tensor) {
    return param->rank == tensor->rank && strcmp(pe_dtype_name(param->dtype), tensor->dtype) == 0 &&
           memcmp(param->shape, tensor->shape, (size_t)param->rank * sizeof param->shape[0]) == 0;
}

static pe_status mark_found(loading *load, int index, char *message) {
    const int mark = index - load->first;
    if (mark < 0 || mark >= PE_MARKS) {
        return PE_OK;
    }
    if (load->found[mark]) {
        return pe_fail(message, PE_ERROR_FORMAT, "%s holds %s twice", load->path,
                       load->session->program->params[index].name);
    }
    load->found[mark] = true;
    return PE_OK;
}

/* Notes where the memory of frozen params would begin in the file. */
static void note_frozen(loading *load, const pe_tensor *param, uint64_t offset) {
    if (!(param->flags & PE_WRITTEN)) {
        const uint64_t begin = offset - param->offset;
        load->apart |= offset < param->offset || (load->frozen_at && begin != load->frozen_at);
        load->frozen_at = begin;
    }
}

static pe_status read_param(const loading *load, const pe_tensor *param, uint64_t offset,
                            char *message) {
    const bool written = (param->flags & PE_WRITTEN) != 0;
    if (!written && load->mapped) {
        return PE_OK;
    }
    unsigned char *place =
        written ? load->session->params + param->offset : pe_frozen_place(load->session, param);
    return place ? pe_st_read_at(load->file, load->path, offset, place, pe_tensor_bytes(param),
                                 message)
                 : PE_ERROR_ARGUMENT;
}

static pe_status visit_param(void *context, const pe_st_tensor *tensor, char *message) {
    loading *load = context;
    const pe_program *program = load->session->program;
    const int index = find_param(program, tensor->name);
    if (index < 0) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%s holds \"%s\", which program %s does not have", load->path, tensor->name,
                       program->name);
    }
    const pe_tensor *param = &program->params[index];
    if (!same_type(param, tensor)) {
        return pe_fail(
            message, PE_ERROR_MISMATCH,
            "%s: %s has another dtype or shape than in program %s (%s, %llu bytes; wanted %s, %zu)",
            load->path, param->name, program->name, tensor->dtype,
            (unsigned long long)tensor->bytes, pe_dtype_name(param->dtype), pe_tensor_bytes(param));
    }
    if (load->read) {
        return read_param(load, param, tensor->offset, message);
    }
    note_frozen(load, param, tensor->offset);
    return mark_found(load, index, message);
}

/* A decimal number up to a limit, or UINT64_MAX. */
static uint64_t decimal(const char *value, uint64_t limit) {
    const size_t length = strlen(value);
    const bool digits = length > 0 && length <= 19 && strspn(value, "0123456789") == length;
    const uint64_t number = digits ? strtoull(value, NULL, 10) : UINT64_MAX;
    return number <= limit ? number : UINT64_MAX;
}

static uint64_t hexadecimal(const char *value, size_t length) {
    const bool digits = strlen(value) == length && strspn(value, "0123456789abcdef") == length;
    return digits ? strtoull(value, NULL, 16) : UINT64_MAX;
}

static uint64_t choice(const char *value, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(value, names[i]) == 0) {
            return (uint64_t)i;
        }
    }
    return UINT64_MAX;
}

/* The number that a text stands for; UINT64_MAX where it is none of its key's. */
static uint64_t number_of(int key, const char *value) {
    static const char *const contents[] = {"trained", "whole"};
    switch (key) {
    case PE_KEY_CONTENT:
        return choice(value, contents, 2);
    case PE_KEY_SCHEDULE:
        return choice(value, pe_schedule_names, PE_SCHEDULES);
    case PE_KEY_FROZEN:
        return hexadecimal(value, 8);
    case PE_KEY_RATE:
    case PE_KEY_FACTOR:
        return hexadecimal(value, 16);
    case PE_KEY_NAME:
    case PE_KEY_PROGRAM:
    case PE_KEY_RUNTIME:
        return 0; /* for people; what does not fit the program is found by its tensors */
    case PE_KEY_ROWS:
    case PE_KEY_BATCH:
        return decimal(value, INT64_MAX);
    case PE_KEY_SHUFFLE:
    case PE_KEY_FLIP:
        return decimal(value, 1);
    default:
        return decimal(value, key == PE_KEY_SEED ? UINT32_MAX : INT32_MAX);
    }
}

static pe_status visit_text(void *context, const char *key, const char *value, char *message) {
    loading *load = context;
    for (int i = 0; i < PE_KEYS; i++) {
        if (strcmp(pe_checkpoint_keys[i], key) != 0) {
            continue;
        }
        load->numbers[i] = i == PE_KEY_MILESTONES
                               ? pe_parse_milestones(value, load->milestones) ? 0 : UINT64_MAX
                               : number_of(i, value);
        if (load->numbers[i] == UINT64_MAX || load->known[i]) {
            return pe_fail(message, PE_ERROR_FORMAT, "%s: %s is \"%s\", %s", load->path, key, value,
                           load->known[i] ? "a second time" : "which is no value of its kind");
        }
        load->known[i] = true;
    }
    return PE_OK;
}

static bool knows_any(const loading *load, int first) {
    for (int i = first; i < PE_KEYS; i++) {
        if (load->known[i]) {
            return true;
        }
    }
    return false;
}

static pe_schedule schedule_of(const loading *load) {
    const uint64_t *n = load->numbers;
    if (!load->known[PE_KEY_ROWS]) {
        return (pe_schedule){0};
    }
    pe_schedule schedule = {
        .kind = (pe_schedule_kind)n[PE_KEY_SCHEDULE],
        .warmup = (int64_t)n[PE_KEY_WARMUP],
        .total = (int64_t)n[PE_KEY_TOTAL],
        .rows = (int64_t)n[PE_KEY_ROWS],
        .batch = (int64_t)n[PE_KEY_BATCH],
        .flip = n[PE_KEY_FLIP] != 0,
        .crop = (int64_t)n[PE_KEY_CROP],
        .shuffled = n[PE_KEY_SHUFFLE] != 0,
        .period = (int64_t)n[PE_KEY_PERIOD],
    };
    memcpy(schedule.milestones, load->milestones, sizeof load->milestones);
    memcpy(&schedule.factor, &n[PE_KEY_FACTOR], sizeof schedule.factor);
    memcpy(&schedule.rate, &n[PE_KEY_RATE], sizeof schedule.rate);
    return schedule;
}

/* Checks that the texts of a checkpoint are all there, and of a version that we know. */
static pe_status check_texts(const loading *load, char *message) {
    const uint64_t version = load->numbers[PE_KEY_VERSION];
    if (!knows_any(load, 0)) {
        return PE_OK;
    }
    if (load->known[PE_KEY_VERSION] && (version < 1 || version > PE_CHECKPOINT_VERSION)) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s is a checkpoint of version %llu; this program reads versions 1 to %d",
                       load->path, (unsigned long long)version, PE_CHECKPOINT_VERSION);
    }
    const bool scheduled = version > 2 && knows_any(load, PE_KEY_SCHEDULE);
    const bool factor = scheduled && (knows_any(load, PE_KEY_FACTOR) ||
                                      load->numbers[PE_KEY_SCHEDULE] >= PE_POLYNOMIAL);
    const int wanted = factor        ? PE_KEYS
                       : scheduled   ? PE_KEY_FACTOR
                       : version < 2 ? PE_KEY_CONTENT
                                     : PE_KEY_SCHEDULE;
    for (int i = 0; i < wanted; i++) {
        if (!load->known[i] && !(version < 4 && i >= PE_KEY_BATCH && i <= PE_KEY_CROP)) {
            return pe_fail(message, PE_ERROR_FORMAT, "checkpoint %s lacks %s", load->path,
                           pe_checkpoint_keys[i]);
        }
    }
    const pe_schedule schedule = schedule_of(load);
    const char *fault = pe_schedule_fault(&schedule);
    return fault ? pe_fail(message, PE_ERROR_FORMAT, "checkpoint %s: %s", load->path, fault)
                 : PE_OK;
}

static pe_status read_file(loading *load, char *message) {
    const pe_st_visitor visitor = {visit_param, visit_text, load};
    memset(load->known, 0, sizeof load->known);
    memset(load->numbers, 0, sizeof load->numbers);
    memset(load->milestones, 0, sizeof load->milestones);
    const pe_status status = pe_st_read(load->file, load->path, &visitor, message);
    return status == PE_OK ? check_texts(load, message) : status;
}

/* Checks the whole file, and that it holds PE_MARKS params from load->first on, each once. */
static pe_status check_file(loading *load, char *message) {
    const pe_program *program = load->session->program;
    memset(load->found, 0, sizeof load->found);
    const pe_status status = read_file(load, message);
    if (status != PE_OK) {
        return status;
    }
    for (int i = load->first; i < program->param_count && i < load->first + PE_MARKS; i++) {
        const bool wanted = !is_trained(load) || program->params[i].flags & PE_WRITTEN;
        if (wanted && !load->found[i - load->first]) {
            return pe_fail(message, PE_ERROR_MISMATCH,
                           "%s does not hold %s, which program %s needs", load->path,
                           program->params[i].name, program->name);
        }
    }
    return PE_OK;
}

/* Checks what a checkpoint needs besides its own bytes: checksums, and the weights below it. */
static pe_status check_ground(loading *load, bool sealed, char *message) {
    if (load->numbers[PE_KEY_VERSION] >= 2 && !sealed) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s has lost its checksums: something else than PockEngine wrote it again",
                       load->path);
    }
    if (is_trained(load) && load->numbers[PE_KEY_FROZEN] != pe_frozen_checksum(load->session)) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%s holds only what training wrote, on top of other frozen weights than "
                       "these; load the weights that its training began with first",
                       load->path);
    }
    return PE_OK;
}

/* Checks all that can be checked before anything is changed. */
static pe_status check(loading *load, char *message) {
    bool sealed;
    pe_status status = pe_st_verify(load->file, load->path, &sealed, message);
    for (; status == PE_OK; load->first += PE_MARKS) {
        status = check_file(load, message);
        if (load->first + PE_MARKS >= load->session->program->param_count) {
            break;
        }
    }
    return status == PE_OK ? check_ground(load, sealed, message) : status;
}

static void take_texts(const loading *load) {
    const uint64_t *n = load->numbers;
    pe_session *session = load->session;
    session->progress = (pe_progress){
        .steps = (int64_t)n[PE_KEY_STEPS],
        .updates = (int64_t)n[PE_KEY_UPDATES],
        .collected = (int64_t)n[PE_KEY_COLLECTED],
        .seed = (uint32_t)n[PE_KEY_SEED],
    };
    session->schedule = schedule_of(load);
}

pe_status pe_load_weights(pe_session *session, const char *path) {
    loading load = {.session = session, .path = path, .file = -1};
    pe_status status = pe_check_arguments(session, "pe_load_weights", path != NULL);
    if (status != PE_OK) {
        return status;
    }
    status = pe_st_open(path, &load.file, session->message);
    if (status != PE_OK) {
        return status;
    }
    status = check(&load, session->message);
    status = status == PE_OK ? pe_fetch_params(session) : status;
    if (status == PE_OK) {
        load.read = true;
        session->newer |= PE_PARAMS_HERE;
        load.mapped = load.frozen_at && !load.apart && !is_trained(&load) &&
                      pe_frozen_map(session, load.file, load.frozen_at);
        session->frozen_known = session->frozen_known && is_trained(&load);
        status = read_file(&load, session->message);
    }
    if (status == PE_OK) {
        take_texts(&load);
    }
    close(load.file);
    return status;
}
