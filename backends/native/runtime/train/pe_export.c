/* Weights with the model's names and order of dimensions. */
#include <string.h>
#include <unistd.h>

#include "pe_adapter.h"
#include "pe_arguments.h"
#include "pe_safetensors.h"

enum { BUFFER = 4096 };

static bool is_weight(const pe_tensor *param) { return !(param->flags & (PE_STATE | PE_CONSTANT)); }

static bool is_trained_weight(const pe_tensor *param) {
    return is_weight(param) && (param->flags & PE_WRITTEN);
}

static bool is_reordered(const pe_tensor *param) {
    for (int i = 0; i < param->rank; i++) {
        if (param->order[i]) {
            return true;
        }
    }
    return false;
}

/* A param with the model's shape. */
static pe_tensor in_model_order(const pe_tensor *param) {
    pe_tensor result = *param;
    for (int i = 0; i < param->rank && is_reordered(param); i++) {
        result.shape[i] = param->shape[param->order[i]];
    }
    return result;
}

/* The index in the program's order of an element of the model's order. */
static size_t place_of(const pe_tensor *param, const pe_tensor *result, size_t number) {
    int64_t index[PE_MAX_RANK];
    size_t place = 0;
    for (int i = param->rank - 1; i >= 0; i--) {
        index[param->order[i]] = (int64_t)(number % (size_t)result->shape[i]);
        number /= (size_t)result->shape[i];
    }
    for (int i = 0; i < param->rank; i++) {
        place = place * (size_t)param->shape[i] + (size_t)index[i];
    }
    return place;
}

static pe_status write_param(pe_session *session, pe_st_writer *writer, const pe_tensor *param,
                             uint64_t offset) {
    const unsigned char *data = pe_param_data(session, param);
    const size_t size = pe_dtype_bytes(param->dtype), bytes = pe_tensor_bytes(param);
    if (!is_reordered(param)) {
        return pe_st_write_at(writer, offset, data, bytes, session->message);
    }
    const pe_tensor result = in_model_order(param);
    unsigned char buffer[BUFFER];
    size_t fill = 0;
    pe_status status = PE_OK;
    for (size_t i = 0; status == PE_OK && i < bytes / size; i++) {
        memcpy(buffer + fill, data + place_of(param, &result, i) * size, size);
        fill += size;
        if (fill == BUFFER || i + 1 == bytes / size) {
            status = pe_st_write_at(writer, offset, buffer, fill, session->message);
            offset += fill;
            fill = 0;
        }
    }
    return status;
}

static pe_st_content content_of(const pe_program *program, bool all) {
    return (pe_st_content){
        .tensors = program->params,
        .tensor_count = program->param_count,
        .takes = all ? is_weight : is_trained_weight,
        .shaped = in_model_order,
    };
}

pe_status pe_try_export(pe_session *session, const char *path, bool all) {
    const pe_status status = pe_check_arguments(session, "pe_try_export", path != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_st_content content = content_of(session->program, all);
    return pe_st_try_place(path, pe_st_file_bytes(&content), session->message);
}

pe_status pe_export_weights(pe_session *session, const char *path, bool all) {
    pe_status status = pe_check_arguments(session, "pe_export_weights", path != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_program *program = session->program;
    const pe_st_content content = content_of(program, all);
    pe_st_writer writer;
    status = pe_fetch_params(session);
    if (status == PE_OK) {
        status = pe_st_create(&writer, path, &content, session->message);
    }
    uint64_t offset = 0;
    for (int i = 0; status == PE_OK && i < program->param_count; i++) {
        if (pe_st_takes(&content, i)) {
            status = write_param(session, &writer, &program->params[i], offset);
            offset += pe_tensor_bytes(&program->params[i]);
        }
    }
    return status == PE_OK ? pe_st_commit(&writer, session->message) : status;
}

/* A file that is checked first, and read only if all of it fits. */
typedef struct adapter {
    pe_session *session;
    const char *path;
    int file, found;
    bool read;
} adapter;

static const pe_tensor *find(const pe_program *program, const char *name) {
    for (int i = 0; i < program->param_count; i++) {
        const pe_tensor *param = &program->params[i];
        if (is_trained_weight(param) && strcmp(param->name, name) == 0) {
            return param;
        }
    }
    return NULL;
}

static bool fits(const pe_tensor *param, const pe_st_tensor *tensor) {
    const pe_tensor result = in_model_order(param);
    bool same =
        param->rank == tensor->rank && strcmp(pe_dtype_name(param->dtype), tensor->dtype) == 0;
    for (int i = 0; same && i < param->rank; i++) {
        same = result.shape[i] == tensor->shape[i];
    }
    return same;
}

static pe_status read_param(const adapter *a, const pe_tensor *param, uint64_t offset,
                            char *message) {
    unsigned char *data = a->session->params + param->offset, buffer[BUFFER];
    const pe_tensor result = in_model_order(param);
    const size_t size = pe_dtype_bytes(param->dtype), bytes = pe_tensor_bytes(param);
    if (!is_reordered(param)) {
        return pe_st_read_at(a->file, a->path, offset, data, bytes, message);
    }
    pe_status status = PE_OK;
    for (size_t at = 0; status == PE_OK && at < bytes; at += BUFFER) {
        const size_t part = bytes - at < BUFFER ? bytes - at : BUFFER;
        status = pe_st_read_at(a->file, a->path, offset + at, buffer, part, message);
        for (size_t i = 0; status == PE_OK && i < part / size; i++) {
            const size_t place = place_of(param, &result, at / size + i);
            memcpy(data + place * size, buffer + i * size, size);
        }
    }
    return status;
}

static pe_status visit(void *context, const pe_st_tensor *tensor, char *message) {
    adapter *a = context;
    const pe_tensor *param = find(a->session->program, tensor->name);
    if (!param || !fits(param, tensor)) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%s has %s, which is no trained weight of program %s, or of another shape; "
                       "give one that its finetune --output wrote",
                       a->path, tensor->name, a->session->program->name);
    }
    a->found++;
    return a->read ? read_param(a, param, tensor->offset, message) : PE_OK;
}

static int count_trained(const pe_program *program) {
    int count = 0;
    for (int i = 0; i < program->param_count; i++) {
        count += is_trained_weight(&program->params[i]);
    }
    return count;
}

pe_status pe_load_adapter(pe_session *session, const char *path) {
    pe_status status = pe_check_arguments(session, "pe_load_adapter", path != NULL);
    adapter a = {.session = session, .path = path};
    const pe_st_visitor visitor = {visit, NULL, &a};
    if (status == PE_OK) {
        status = pe_st_open(path, &a.file, session->message);
    }
    if (status != PE_OK) {
        return status;
    }
    status = pe_st_read(a.file, path, &visitor, session->message);
    if (status == PE_OK && a.found != count_trained(session->program)) {
        status = pe_fail(session->message, PE_ERROR_MISMATCH,
                         "%s has %d of the %d trained weights of program %s; give one that its "
                         "finetune --output wrote",
                         path, a.found, count_trained(session->program), session->program->name);
    }
    status = status == PE_OK ? pe_fetch_params(session) : status;
    if (status == PE_OK) {
        a.read = true;
        session->newer |= PE_PARAMS_HERE;
        status = pe_st_read(a.file, path, &visitor, session->message);
    }
    close(a.file);
    return status;
}
