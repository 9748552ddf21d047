/* Params from and to safetensors files. */
#include <string.h>
#include <unistd.h>

#include "pe_safetensors.h"

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
    int first; /* the first param that is marked */
    bool found[PE_MARKS];
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

/* Checks the whole file, and that it holds PE_MARKS params from load->first on, each once. */
static pe_status check_file(loading *load, char *message) {
    const pe_program *program = load->session->program;
    memset(load->found, 0, sizeof load->found);
    const pe_status status = pe_st_read(load->file, load->path, visit_param, load, message);
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
        status = pe_st_read(load.file, path, visit_param, &load, session->message);
    }
    close(load.file);
    return status;
}

pe_status pe_save_checkpoint(pe_session *session, const char *path) {
    const pe_program *program = session->program;
    pe_st_writer writer;
    pe_status status =
        pe_st_create(&writer, path, program->params, program->param_count, 0, session->message);
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
