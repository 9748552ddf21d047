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
    bool mapped;        /* the frozen params are mapped, not read */
    bool apart;         /* the file's layout of the frozen params is not the program's */
    uint64_t frozen_at; /* else their offset in the file */
    int first;          /* the first param that is marked */
    bool found[PE_MARKS];
    bool known[PE_KEYS + PE_FIELDS]; /* the keys, then the fields */
    uint64_t numbers[PE_KEYS];
    pe_record record;
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

/* The number in the text of a key; UINT64_MAX if it is not valid for the key. */
static uint64_t number_of(int key, const char *value) {
    static const char *const contents[] = {"trained", "whole"};
    switch (key) {
    case PE_KEY_CONTENT:
        return pe_parse_choice(value, contents, 2);
    case PE_KEY_FROZEN:
        return pe_parse_hexadecimal(value, 8);
    case PE_KEY_VERSION:
        return pe_parse_decimal(value, INT32_MAX);
    default:
        return 0; /* for people; a mismatch with the program is found by its tensors */
    }
}

/* The name of a text by its place in `known`. */
static const char *name_of(int place) {
    return place < PE_KEYS ? pe_checkpoint_keys[place] : pe_fields[place - PE_KEYS].key;
}

static bool read_text(loading *load, int place, const char *value) {
    if (place >= PE_KEYS) {
        return pe_parse_field(&pe_fields[place - PE_KEYS], value, &load->record);
    }
    load->numbers[place] = number_of(place, value);
    return load->numbers[place] != UINT64_MAX;
}

static pe_status visit_text(void *context, const char *key, const char *value, char *message) {
    loading *load = context;
    for (int i = 0; i < PE_KEYS + PE_FIELDS; i++) {
        if (strcmp(name_of(i), key) != 0) {
            continue;
        }
        if (!read_text(load, i, value) || load->known[i]) {
            return pe_fail(message, PE_ERROR_FORMAT, "%s: %s is \"%s\", %s", load->path, key, value,
                           load->known[i] ? "a second time" : "which is no value of its kind");
        }
        load->known[i] = true;
    }
    return PE_OK;
}

/* Whether a text of a field's group, or of a later group, is present. */
static bool knows_any(const loading *load, pe_field_group group) {
    for (int i = 0; i < PE_FIELDS; i++) {
        if (load->known[PE_KEYS + i] && pe_fields[i].group >= group) {
            return true;
        }
    }
    return false;
}

/* The last group of fields that a checkpoint has. Before version 3 its schedule counted no rows,
 * and is left out. */
static pe_field_group last_group(const loading *load) {
    if (load->numbers[PE_KEY_VERSION] < 3 || !knows_any(load, PE_OF_SCHEDULE)) {
        return PE_OF_PROGRESS;
    }
    const bool factor =
        knows_any(load, PE_OF_FACTOR) || load->record.schedule.kind >= PE_POLYNOMIAL;
    return factor ? PE_OF_FACTOR : PE_OF_SCHEDULE;
}

/* Whether a checkpoint of this version must have a text. */
static bool is_needed(int place, uint64_t version, pe_field_group last) {
    if (place < PE_KEYS) {
        return place == PE_KEY_VERSION || version >= 2;
    }
    const pe_field *field = &pe_fields[place - PE_KEYS];
    return field->group <= last && field->since <= version;
}

/* Checks that the texts of a checkpoint are all there, and of a version that we know. */
static pe_status check_texts(loading *load, char *message) {
    const uint64_t version = load->numbers[PE_KEY_VERSION];
    const bool *end = load->known + PE_KEYS + PE_FIELDS;
    const bool *any = load->known;
    while (any < end && !*any) {
        any++;
    }
    if (any == end) {
        return PE_OK;
    }
    if (load->known[PE_KEY_VERSION] && (version < 1 || version > PE_CHECKPOINT_VERSION)) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s is a checkpoint of version %llu; this program reads versions 1 to %d",
                       load->path, (unsigned long long)version, PE_CHECKPOINT_VERSION);
    }
    const pe_field_group last = last_group(load);
    for (int i = 0; i < PE_KEYS + PE_FIELDS; i++) {
        if (!load->known[i] && is_needed(i, version, last)) {
            return pe_fail(message, PE_ERROR_FORMAT, "checkpoint %s lacks %s", load->path,
                           name_of(i));
        }
    }
    if (last == PE_OF_PROGRESS) {
        load->record.schedule = (pe_schedule){0};
    }
    const char *fault = pe_schedule_fault(&load->record.schedule);
    return fault ? pe_fail(message, PE_ERROR_FORMAT, "checkpoint %s: %s", load->path, fault)
                 : PE_OK;
}

static pe_status read_file(loading *load, char *message) {
    const pe_st_visitor visitor = {visit_param, visit_text, load};
    memset(load->known, 0, sizeof load->known);
    memset(load->numbers, 0, sizeof load->numbers);
    load->record = (pe_record){0};
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
    pe_session *session = load->session;
    session->progress = load->record.progress;
    if (session->schedule) {
        *session->schedule = load->record.schedule;
    }
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
