#include "pe_data_bad.h"

#include <math.h>
#include <string.h>

#include "pe_data_pictures.h"

/* Checks the floating-point numbers of one row of the batch in memory. */
static pe_status check_finite(const pe_data *data, pe_session *session, int64_t slot) {
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        const bool checked = input->dtype == PE_F32 && data->columns[i].offset && input->rank > 0;
        const size_t count = checked ? pe_tensor_bytes(input) / 4 / (size_t)data->slots : 0;
        const float *numbers = (const float *)pe_tensor_data(session, input) + (size_t)slot * count;
        for (size_t j = 0; j < count; j++) {
            if (!isfinite(numbers[j])) {
                return pe_fail(session->message, PE_ERROR_VALUE,
                               "input %s holds %g at element %zu of the row", input->name,
                               (double)numbers[j], j);
            }
        }
    }
    return PE_OK;
}

/* Checks a row in its slot of the batch; its indices only if they were not checked before. */
static pe_status check_row(const pe_data *data, pe_session *session, int64_t row, int64_t slot,
                           bool indices, const pe_bad_rows *bad) {
    const pe_status status = bad->limit >= 0 ? check_finite(data, session, slot) : PE_OK;
    if (status != PE_OK && data->pictures) {
        (void)pe_pictures_fault(data, row, session->message); /* why it cannot be read */
    }
    return status == PE_OK && indices ? pe_check_part(session, data->entry, slot, data->slots)
                                      : status;
}

/* Records a bad row, whose fault is in the session's message. */
static pe_status note(const pe_data *data, pe_session *session, int64_t row, pe_bad_rows *bad) {
    char why[PE_MESSAGE_BYTES];
    for (int64_t i = 0; i < bad->count; i++) {
        if (bad->rows[i] == row) {
            return PE_OK;
        }
    }
    memcpy(why, session->message, sizeof why);
    if (bad->count >= bad->limit) {
        return pe_fail(session->message, PE_ERROR_VALUE,
                       "%.100s: row %lld is bad, after %lld others: %.200s; mend it, or leave more "
                       "rows out by --skip-bad",
                       data->path, (long long)row, (long long)bad->count, why);
    }
    bad->rows[bad->count++] = row;
    bad->notify(row, why);
    return PE_OK;
}

/* Replaces the bad row of a place by the next valid row of the epoch. */
static pe_status replace_row(const pe_data *data, pe_session *session, int64_t epoch, int64_t place,
                             int64_t slot, pe_bad_rows *bad) {
    for (int64_t i = 0; i < data->rows; i++) {
        pe_status status = note(data, session, pe_data_row(data, epoch, place), bad);
        place = (place + 1) % data->rows;
        const int64_t row = pe_data_row(data, epoch, place);
        if (status == PE_OK) {
            status = pe_data_read_row(data, session, row, slot, session->message);
        }
        if (status != PE_OK || check_row(data, session, row, slot, true, bad) == PE_OK) {
            return status;
        }
    }
    return pe_fail(session->message, PE_ERROR_VALUE, "%s has no sound row", data->path);
}

pe_status pe_data_mend(const pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       pe_bad_rows *bad) {
    const bool indices = pe_check_ranges(session, data->entry) != PE_OK;
    pe_status status = PE_OK;
    for (int64_t slot = 0; (indices || bad->limit >= 0) && slot < data->count; slot++) {
        const int64_t place = batch * data->batch + slot;
        const int64_t row = pe_data_row(data, epoch, place % data->rows);
        if (check_row(data, session, row, slot, indices, bad) != PE_OK) {
            status = replace_row(data, session, epoch, place, slot, bad);
        }
        if (status != PE_OK) {
            return status;
        }
    }
    return PE_OK;
}
