/* Weights as the model has them: by its names, and in its order of dimensions. */
#include <string.h>

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

/* Where the element with this number in the model's order lies in ours. */
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

pe_status pe_export_weights(pe_session *session, const char *path, bool all) {
    pe_status status = pe_check_arguments(session, "pe_export_weights", path != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_program *program = session->program;
    const pe_st_content content = {
        .tensors = program->params,
        .tensor_count = program->param_count,
        .takes = all ? is_weight : is_trained_weight,
        .shaped = in_model_order,
    };
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
