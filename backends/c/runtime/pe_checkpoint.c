/* Params and progress from and to safetensors files.
 *
 * The progress is in `__metadata__`, as texts of decimal numbers. pockengine.checkpoint is the
 * version of their form; a file without it holds params only.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pe_safetensors.h"

/* Params that one reading of a header marks as found. */
#ifndef PE_MARKS
#define PE_MARKS 512
#endif

#define PE_CHECKPOINT_VERSION 1

enum { VERSION, STEPS, UPDATES, COLLECTED, SEED, NUMBERS };

static const char *const keys[NUMBERS] = {"pockengine.checkpoint", "pockengine.steps",
                                          "pockengine.updates", "pockengine.collected",
                                          "pockengine.seed"};

/* A file's params are visited several times: first only checked, PE_MARKS of the program's at a
 * time, then read. */
typedef struct loading {
    pe_session *session;
    const char *path;
    int file;
    bool read;
    int first; /* the first param that is marked */
    bool found[PE_MARKS];
    bool known[NUMBERS];
    uint64_t numbers[NUMBERS];
} loading;

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
        return pe_st_read_at(load->file, load->path, tensor->offset,
                             load->session->params + param->offset, pe_tensor_bytes(param),
                             message);
    }
    return mark_found(load, index, message);
}

static pe_status visit_text(void *context, const char *key, const char *value, char *message) {
    loading *load = context;
    for (int i = 0; i < NUMBERS; i++) {
        if (strcmp(keys[i], key) != 0) {
            continue;
        }
        char *end;
        const uint64_t limit = i == SEED ? UINT32_MAX : INT32_MAX;
        const bool digits = *value && strspn(value, "0123456789") == strlen(value);
        load->numbers[i] = digits && strlen(value) <= 10 ? strtoull(value, &end, 10) : UINT64_MAX;
        if (load->numbers[i] > limit || load->known[i]) {
            return pe_fail(message, PE_ERROR_FORMAT, "%s: %s is \"%s\", %s", load->path, key, value,
                           load->known[i] ? "a second time" : "which is no number of its kind");
        }
        load->known[i] = true;
    }
    return PE_OK;
}

/* Checks that the numbers of a checkpoint are all there, and of the version that we know. */
static pe_status check_numbers(const loading *load, char *message) {
    if (!load->known[VERSION]) {
        return PE_OK;
    }
    if (load->numbers[VERSION] != PE_CHECKPOINT_VERSION) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s is a checkpoint of version %llu; this program reads version %d",
                       load->path, (unsigned long long)load->numbers[VERSION],
                       PE_CHECKPOINT_VERSION);
    }
    for (int i = 0; i < NUMBERS; i++) {
        if (!load->known[i]) {
            return pe_fail(message, PE_ERROR_FORMAT, "checkpoint %s lacks %s", load->path, keys[i]);
        }
    }
    return PE_OK;
}

static pe_status read_file(loading *load, char *message) {
    const pe_st_visitor visitor = {visit_param, visit_text, load};
    memset(load->known, 0, sizeof load->known);
    const pe_status status = pe_st_read(load->file, load->path, &visitor, message);
    return status == PE_OK ? check_numbers(load, message) : status;
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
        if (!load->found[i - load->first]) {
            return pe_fail(message, PE_ERROR_MISMATCH,
                           "%s does not hold %s, which program %s needs", load->path,
                           program->params[i].name, program->name);
        }
    }
    return PE_OK;
}

static pe_progress progress_of(const loading *load) {
    const uint64_t *n = load->numbers;
    return load->known[VERSION] ? (pe_progress){(int64_t)n[STEPS], (int64_t)n[UPDATES],
                                                (int64_t)n[COLLECTED], (uint32_t)n[SEED]}
                                : (pe_progress){0};
}

pe_status pe_load_weights(pe_session *session, const char *path) {
    loading load = {.session = session, .path = path, .file = -1};
    pe_status status = pe_st_open(path, &load.file, session->message);
    if (status != PE_OK) {
        return status;
    }
    do {
        status = check_file(&load, session->message);
        load.first += PE_MARKS;
    } while (status == PE_OK && load.first < session->program->param_count);
    if (status == PE_OK) {
        load.read = true;
        status = read_file(&load, session->message);
    }
    if (status == PE_OK) {
        session->progress = progress_of(&load);
    }
    close(load.file);
    return status;
}

/* Checks the params that must be finite. */
static pe_status check_finite(const pe_session *session, char *message) {
    for (int i = 0; i < session->program->param_count; i++) {
        const pe_tensor *param = &session->program->params[i];
        const float *data = (const float *)(const void *)(session->params + param->offset);
        const size_t count = param->finite ? pe_tensor_bytes(param) / sizeof *data : 0;
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

pe_status pe_save_checkpoint(pe_session *session, const char *path) {
    const pe_program *program = session->program;
    const pe_progress *p = &session->progress;
    const pe_st_number numbers[NUMBERS] = {
        [VERSION] = {keys[VERSION], PE_CHECKPOINT_VERSION},
        [STEPS] = {keys[STEPS], (uint64_t)p->steps},
        [UPDATES] = {keys[UPDATES], (uint64_t)p->updates},
        [COLLECTED] = {keys[COLLECTED], (uint64_t)p->collected},
        [SEED] = {keys[SEED], p->seed},
    };
    const pe_st_content content = {program->params, numbers, program->param_count, NUMBERS, 0};
    pe_st_writer writer;
    pe_status status = check_finite(session, session->message);
    if (status == PE_OK) {
        status = pe_st_create(&writer, path, &content, session->message);
    }
    uint64_t offset = 0;
    for (int i = 0; status == PE_OK && i < program->param_count; i++) {
        const pe_tensor *param = &program->params[i];
        const size_t bytes = pe_tensor_bytes(param);
        status = pe_st_write_at(&writer, offset, session->params + param->offset, bytes,
                                session->message);
        offset += bytes;
    }
    return status == PE_OK ? pe_st_commit(&writer, session->message) : status;
}
