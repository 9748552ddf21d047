#include "pe_data.h"

#include <string.h>
#include <unistd.h>

static bool fits(const pe_tensor *input, const pe_st_tensor *tensor) {
    return tensor->rank == input->rank + 1 && tensor->shape[0] > 0 &&
           strcmp(pe_dtype_name(input->dtype), tensor->dtype) == 0 &&
           memcmp(input->shape, tensor->shape + 1, (size_t)input->rank * sizeof input->shape[0]) ==
               0;
}

static pe_status visit(void *context, const pe_st_tensor *tensor, char *message) {
    pe_data *data = context;
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        if (pe_is_control(input) || strcmp(input->name, tensor->name) != 0) {
            continue;
        }
        if (data->offsets[i]) {
            return pe_fail(message, PE_ERROR_FORMAT, "%s holds %s twice", data->path, input->name);
        }
        if (!fits(input, tensor)) {
            return pe_fail(message, PE_ERROR_MISMATCH,
                           "%s: %s must be %s with %d dimensions: batches, then the input's shape",
                           data->path, input->name, pe_dtype_name(input->dtype), input->rank + 1);
        }
        if (data->batches && data->batches != tensor->shape[0]) {
            return pe_fail(message, PE_ERROR_MISMATCH, "%s: %s has %lld batches, others %lld",
                           data->path, input->name, (long long)tensor->shape[0],
                           (long long)data->batches);
        }
        data->batches = tensor->shape[0];
        data->offsets[i] = tensor->offset;
        return PE_OK;
    }
    return pe_fail(message, PE_ERROR_MISMATCH, "%s holds \"%s\", which entry %s does not read",
                   data->path, tensor->name, data->entry->name);
}

static pe_status check_complete(const pe_data *data, char *message) {
    for (int i = 0; i < data->entry->input_count; i++) {
        if (!pe_is_control(&data->entry->inputs[i]) && !data->offsets[i]) {
            return pe_fail(message, PE_ERROR_MISMATCH, "%s does not hold %s, which entry %s reads",
                           data->path, data->entry->inputs[i].name, data->entry->name);
        }
    }
    return PE_OK;
}

pe_status pe_data_open(pe_data *data, const char *path, const pe_entry *entry, char *message) {
    memset(data, 0, sizeof *data);
    data->entry = entry;
    data->path = path;
    if (entry->input_count > PE_MAX_INPUTS) {
        data->file = -1;
        return pe_fail(message, PE_ERROR_MISMATCH, "entry %s has more than %d inputs", entry->name,
                       PE_MAX_INPUTS);
    }
    pe_status status = pe_st_open(path, &data->file, message);
    if (status == PE_OK) {
        const pe_st_visitor visitor = {.tensor = visit, .context = data};
        status = pe_st_read(data->file, path, &visitor, message);
    }
    return status == PE_OK ? check_complete(data, message) : status;
}

pe_status pe_data_read(const pe_data *data, const pe_session *session, int64_t index,
                       char *message) {
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        if (!data->offsets[i]) {
            continue;
        }
        const size_t bytes = pe_tensor_bytes(input);
        const uint64_t offset = data->offsets[i] + (uint64_t)(index % data->batches) * bytes;
        const pe_status status = pe_st_read_at(data->file, data->path, offset,
                                               pe_tensor_data(session, input), bytes, message);
        if (status != PE_OK) {
            return status;
        }
    }
    return PE_OK;
}

void pe_data_close(pe_data *data) {
    if (data->file >= 0) {
        close(data->file);
    }
}
