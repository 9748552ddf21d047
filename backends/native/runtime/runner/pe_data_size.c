#include "pe_data_size.h"

#include <string.h>

const pe_size_axis *pe_find_axis(const pe_program *program, const char *input) {
    for (int i = 0; program->sizes && i < program->sizes->axis_count; i++) {
        if (strcmp(program->sizes->axes[i].input, input) == 0) {
            return &program->sizes->axes[i];
        }
    }
    return NULL;
}

bool pe_batch_varies(const pe_program *program) {
    return program->sizes && program->sizes->axes[0].axis == 0;
}

/* Ranges that the runner cannot split into batches. */
static const char *find_fault(const pe_data *data) {
    const bool batch = pe_batch_varies(data->program);
    for (int i = 0; i < data->program->sizes->axis_count; i++) {
        if ((data->program->sizes->axes[i].axis == 0) != batch) {
            return "is the first dimension of some inputs and another one of others";
        }
    }
    return batch && data->whole ? "is the batch of some inputs, and others have another batch"
                                : NULL;
}

pe_status pe_settle_batch(pe_data *data, int64_t rows, char *message) {
    const pe_size_range *sizes = data->program->sizes;
    const char *fault = sizes ? find_fault(data) : NULL;
    if (fault) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%s %s: run such batches one by one, from C or Python", sizes->name, fault);
    }
    if (!pe_batch_varies(data->program)) {
        return rows < 0 || rows == data->batch
                   ? PE_OK
                   : pe_fail(message, PE_ERROR_ARGUMENT,
                             "program %s takes %lld rows a batch, not --batch %lld; compile it for "
                             "a range of sizes",
                             data->program->name, (long long)data->batch, (long long)rows);
    }
    if (rows >= 0 && (rows < sizes->low || rows > sizes->high)) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "--batch is %lld; program %s takes %lld to %lld",
                       (long long)rows, data->program->name, (long long)sizes->low,
                       (long long)sizes->high);
    }
    data->batch = rows < 0 ? sizes->high : rows;
    return PE_OK;
}

void pe_take_variant(pe_data *data, pe_session *session, int64_t left) {
    const pe_size_range *sizes = data->program->sizes;
    if (!sizes) {
        return;
    }
    if (pe_batch_varies(data->program)) {
        const int64_t rows = left < data->batch ? left : data->batch;
        data->count = rows > sizes->low ? rows : sizes->low;
        data->size = data->count;
    }
    session->size = data->size;
    data->entry = pe_find_variant(data->program, data->name, data->size);
    if (pe_batch_varies(data->program)) {
        int bucket = 0;
        while (sizes->buckets[bucket] < data->size) {
            bucket++;
        }
        data->slots = sizes->buckets[bucket];
    }
}

/* Elements of a tensor's dimensions from `first` to before `last`. */
static size_t product(const pe_tensor *tensor, int first, int last) {
    size_t count = 1;
    for (int i = first; i < last; i++) {
        count *= (size_t)tensor->shape[i];
    }
    return count;
}

/* The dimension within a row that varies, or 0. */
static int axis_in_row(const pe_data *data, int input) {
    const pe_size_axis *axis = pe_find_axis(data->program, data->entry->inputs[input].name);
    return axis ? axis->axis : 0;
}

size_t pe_row_bytes(const pe_data *data, int input) {
    const pe_tensor *tensor = &data->entry->inputs[input];
    const size_t bytes = pe_tensor_bytes(tensor) / (size_t)data->slots;
    const int axis = axis_in_row(data, input);
    return axis ? bytes / (size_t)tensor->shape[axis] * (size_t)data->size : bytes;
}

/* Writes a number to all elements from one byte to before another. */
static void fill(unsigned char *data, size_t begin, size_t end, pe_dtype dtype, double number) {
    const float f32 = (float)number;
    const int32_t i32 = (int32_t)number;
    const int64_t i64 = (int64_t)number;
    const bool truth = number != 0;
    const void *element = dtype == PE_F32   ? (const void *)&f32
                          : dtype == PE_I32 ? (const void *)&i32
                          : dtype == PE_I64 ? (const void *)&i64
                                            : (const void *)&truth;
    const size_t bytes = pe_dtype_bytes(dtype);
    for (; begin < end; begin += bytes) {
        memcpy(data + begin, element, bytes);
    }
}

void pe_pad_row(const pe_data *data, const pe_session *session, int input, int64_t slot) {
    const pe_tensor *tensor = &data->entry->inputs[input];
    const int axis = axis_in_row(data, input);
    if (!axis || tensor->shape[axis] == data->size) {
        return;
    }
    const double pad = pe_find_axis(data->program, tensor->name)->pad;
    const size_t inner = product(tensor, axis + 1, tensor->rank) * pe_dtype_bytes(tensor->dtype);
    const size_t has = (size_t)data->size * inner, takes = (size_t)tensor->shape[axis] * inner;
    const size_t row = pe_tensor_bytes(tensor) / (size_t)data->slots;
    unsigned char *memory = (unsigned char *)pe_tensor_data(session, tensor) + (size_t)slot * row;
    for (size_t i = row / takes; i-- > 0;) { /* from the last: each moves away from the first */
        memmove(memory + i * takes, memory + i * has, has);
        fill(memory + i * takes, has, takes, tensor->dtype, pad);
    }
}

void pe_pad_batch(const pe_data *data, const pe_session *session, int input) {
    const pe_tensor *tensor = &data->entry->inputs[input];
    const pe_size_axis *axis = pe_find_axis(data->program, tensor->name);
    if (axis && axis->axis == 0) {
        const size_t row = pe_tensor_bytes(tensor) / (size_t)data->slots;
        fill(pe_tensor_data(session, tensor), (size_t)data->count * row, (size_t)data->slots * row,
             tensor->dtype, axis->pad);
    }
}

int pe_varying_axis(const pe_data *data, int output) {
    const pe_size_range *sizes = data->program->sizes;
    if (!sizes || sizes->bucket_count < 2) {
        return -1;
    }
    const int64_t below = sizes->buckets[sizes->bucket_count - 2];
    const pe_tensor *large = &pe_find_variant(data->program, data->name, 0)->outputs[output];
    const pe_tensor *small = &pe_find_variant(data->program, data->name, below)->outputs[output];
    for (int i = 0; i < large->rank; i++) {
        if (large->shape[i] != small->shape[i]) {
            return i;
        }
    }
    return -1;
}

void pe_cut_output(const pe_data *data, const pe_session *session, int output, int axis) {
    const pe_tensor *tensor = &data->entry->outputs[output];
    const size_t inner = product(tensor, axis + 1, tensor->rank) * pe_dtype_bytes(tensor->dtype);
    const size_t has = (size_t)tensor->shape[axis] * inner, keeps = (size_t)data->size * inner;
    unsigned char *memory = pe_tensor_data(session, tensor);
    for (size_t i = 0; i < product(tensor, 0, axis); i++) {
        memmove(memory + i * keeps, memory + i * has, keeps);
    }
}
