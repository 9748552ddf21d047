/* Batches of rows, read from their positions in the files. */
#include "pe_data.h"

#include <string.h>
#include <unistd.h>

#include "pe_data_pictures.h"
#include "pe_data_size.h"
#include "pe_row_order.h"

int64_t pe_data_batches(const pe_data *data) {
    const int64_t rest = data->rows % data->batch;
    const bool last = pe_batch_varies(data->program) && rest >= data->program->sizes->low;
    return data->rows / data->batch + last;
}

int64_t pe_data_row(const pe_data *data, int64_t epoch, int64_t place) {
    return data->shuffled ? pe_shuffled_row(data->rows, data->seed, epoch, place) : place;
}

/* Whether an input has one number per batch instead of rows. */
static bool is_of_batch(const pe_data *data, int input) {
    return data->entry->inputs[input].rank == 0;
}

/* Reads adjacent rows of the file into their slots of the batch; rows that need padding are read
 * one by one. */
static pe_status read_rows(const pe_data *data, const pe_session *session, int input, int64_t row,
                           int64_t count, int64_t slot, char *message) {
    if (data->pictures) {
        return pe_pictures_rows(data, session, input, row, count, slot, message);
    }
    const pe_column *column = &data->columns[input];
    const pe_tensor *tensor = &data->entry->inputs[input];
    const size_t bytes = pe_row_bytes(data, input);
    const size_t room = pe_tensor_bytes(tensor) / (size_t)data->slots;
    const int64_t piece = bytes == room ? count : 1;
    unsigned char *memory = pe_tensor_data(session, tensor);
    pe_status status = PE_OK;
    for (int64_t i = 0; status == PE_OK && i < count; i += piece) {
        unsigned char *target = memory + (size_t)(slot + i) * room;
        const uint64_t place = (uint64_t)(row + i) * bytes;
        if (column->memory) {
            memcpy(target, (const char *)column->memory + place, (size_t)piece * bytes);
        } else {
            status = pe_st_read_at(column->file, data->path, column->offset + place, target,
                                   (size_t)piece * bytes, message);
        }
        if (status == PE_OK) {
            pe_pad_row(data, session, input, slot + i);
        }
    }
    return status;
}

/* Reads one input's rows of a batch; adjacent rows in one piece. */
static pe_status read_column(const pe_data *data, const pe_session *session, int input,
                             int64_t epoch, int64_t batch, char *message) {
    const int64_t begin = batch * data->batch;
    pe_status status = PE_OK;
    for (int64_t slot = 0; status == PE_OK && slot < data->count;) {
        const int64_t left = data->rows - (begin + slot); /* 0 or less after the last row */
        const int64_t row = pe_data_row(data, epoch, left > 0 ? begin + slot : data->rows - 1);
        int64_t count = 1;
        while (count < left && slot + count < data->count &&
               pe_data_row(data, epoch, begin + slot + count) == row + count) {
            count++;
        }
        status = read_rows(data, session, input, row, count, slot, message);
        slot += count;
    }
    pe_pad_batch(data, session, input);
    return status;
}

pe_status pe_data_read(pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       char *message) {
    pe_status status = PE_OK;
    pe_take_variant(data, session, data->rows - batch * data->batch);
    for (int i = 0; status == PE_OK && i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        const pe_column *column = &data->columns[i];
        if (!column->offset) {
            continue;
        }
        if (is_of_batch(data, i)) {
            const size_t bytes = pe_tensor_bytes(input);
            status =
                pe_st_read_at(column->file, data->path, column->offset + (uint64_t)batch * bytes,
                              pe_tensor_data(session, input), bytes, message);
        } else {
            status = read_column(data, session, i, epoch, batch, message);
        }
    }
    return status;
}

pe_status pe_data_read_row(const pe_data *data, const pe_session *session, int64_t row,
                           int64_t slot, char *message) {
    pe_status status = PE_OK;
    for (int i = 0; status == PE_OK && i < data->entry->input_count; i++) {
        if (data->columns[i].offset && !is_of_batch(data, i)) {
            status = read_rows(data, session, i, row, 1, slot, message);
        }
    }
    return status;
}

void pe_data_close(pe_data *data) {
    for (int i = 0; i < data->file_count; i++) {
        close(data->files[i]);
    }
    data->file_count = 0;
    pe_pictures_close(data);
    pe_texts_free(&data->texts);
}
