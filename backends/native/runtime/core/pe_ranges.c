/* Inputs that are read as indices: their numbers are checked before a step. */
#include <float.h>
#include <string.h>

#include "pe_arguments.h"
#include "pe_text.h"

static int64_t number_at(const unsigned char *data, pe_dtype dtype, int64_t place) {
    int32_t narrow;
    int64_t wide;
    if (dtype == PE_I64) {
        memcpy(&wide, data + place * (int64_t)sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, data + place * (int64_t)sizeof narrow, sizeof narrow);
    return narrow;
}

/* Writes the place as indices into the tensor's dimensions: "[3, 0]". */
static void describe_place(const pe_tensor *input, int64_t place, char *text, size_t size) {
    int64_t behind = 1;
    for (int i = 0; i < input->rank; i++) {
        behind *= input->shape[i];
    }
    size_t length = 0;
    for (int i = 0; i < input->rank && length < size; i++) {
        behind /= input->shape[i];
        const int count = pe_print(text + length, size - length, "%s%lld", i ? ", " : "",
                                   (long long)(place / behind % input->shape[i]));
        length += count > 0 ? (size_t)count : 0;
    }
}

static pe_status refuse(pe_session *session, const pe_entry *entry, const pe_index_range *range,
                        int64_t number, int64_t place) {
    const pe_tensor *input = &entry->inputs[range->input];
    char where[PE_MAX_RANK * 24] = "", also[32] = "";
    describe_place(input, place, where, sizeof where);
    if (range->also < range->low || range->also > range->high) {
        pe_print(also, sizeof also, " or %lld", (long long)range->also);
    }
    return pe_fail(session->message, PE_ERROR_VALUE,
                   "input %s holds %lld at [%s]; entry %s takes %lld to %lld%s there, and nothing "
                   "was computed",
                   input->name, (long long)number, where, entry->name, (long long)range->low,
                   (long long)range->high, also);
}

/* Checks the elements of an input from `first` to `last`. */
static pe_status check_range(pe_session *session, const pe_entry *entry,
                             const pe_index_range *range, int64_t first, int64_t last) {
    const pe_tensor *input = &entry->inputs[range->input];
    const unsigned char *data = pe_tensor_data(session, input);
    for (int64_t i = 0; i < range->rows; i++) {
        for (int64_t j = 0; j < range->count; j++) {
            const int64_t place = range->start + i * range->row_stride + j * range->stride;
            if (place < first || place >= last) {
                continue;
            }
            const int64_t number = number_at(data, input->dtype, place);
            if ((number < range->low || number > range->high) && number != range->also) {
                return refuse(session, entry, range, number, place);
            }
        }
    }
    return PE_OK;
}

/* A learning rate of NaN would destroy the weights. */
static pe_status check_rate(pe_session *session, const pe_entry *entry) {
    for (int i = 0; i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (input->flags & PE_RATE) {
            float rate;
            memcpy(&rate, pe_tensor_data(session, input), sizeof rate);
            if (!(rate >= 0.0f && rate <= FLT_MAX)) {
                return pe_fail(session->message, PE_ERROR_VALUE,
                               "%s must be a finite number of at least 0; nothing was computed",
                               input->name);
            }
        }
    }
    return PE_OK;
}

pe_status pe_check_part(pe_session *session, const pe_entry *entry, int64_t part, int64_t parts) {
    pe_status status = pe_check_entry(session, "pe_check_part", entry);
    if (status == PE_OK && (part < 0 || part >= parts)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "there is no part %lld of %lld",
                       (long long)part, (long long)parts);
    }
    for (int i = 0; status == PE_OK && i < entry->range_count; i++) {
        const pe_tensor *input = &entry->inputs[entry->ranges[i].input];
        const int64_t elements = (int64_t)(pe_tensor_bytes(input) / pe_dtype_bytes(input->dtype));
        const int64_t size = elements / parts;
        status = check_range(session, entry, &entry->ranges[i], part * size, (part + 1) * size);
    }
    return status;
}

pe_status pe_check_ranges(pe_session *session, const pe_entry *entry) {
    const pe_status status = pe_check_part(session, entry, 0, 1);
    return status == PE_OK ? check_rate(session, entry) : status;
}
