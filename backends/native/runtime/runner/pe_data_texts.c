/* Rows of tokens from texts. */
#include <string.h>
#include <strings.h>

#include "pe_data_source.h"

bool pe_is_texts(const char *path) {
    static const char *const endings[] = {".jsonl", ".ndjson", ".json"};
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < 3; i++) {
        if (strcasecmp(dot, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The rows of an input, which is i64 [B, L], or NULL. */
static const int64_t *rows_for(const pe_texts *texts, const pe_tensor *input) {
    const bool fits =
        input->rank == 2 && input->dtype == PE_I64 && input->shape[1] == texts->length;
    return !fits                                      ? NULL
           : strcmp(input->name, "input_ids") == 0    ? texts->ids
           : strcmp(input->name, "labels") == 0       ? texts->labels
           : strcmp(input->name, "position_ids") == 0 ? texts->positions
                                                      : NULL;
}

static int64_t length_of(const pe_entry *entry) {
    for (int i = 0; i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (input->rank == 2 && strcmp(input->name, "input_ids") == 0) {
            return input->shape[1];
        }
    }
    return 0;
}

pe_status pe_texts_open(pe_data *data, const char *path, const pe_row_form *form, char *message) {
    if (!form || !form->tokenizer) {
        return pe_fail(message, PE_ERROR_ARGUMENT,
                       "%.200s has texts, which need --tokenizer to become tokens", path);
    }
    pe_row_form own = *form;
    own.length = length_of(data->entry);
    if (!own.length) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%.200s has texts; entry %s reads none: it has no input input_ids [B, L]",
                       path, data->name);
    }
    const pe_status status = pe_texts_read(&data->texts, path, &own, message);
    for (int i = 0; status == PE_OK && i < data->entry->input_count; i++) {
        const int64_t *rows = rows_for(&data->texts, &data->entry->inputs[i]);
        if (rows) {
            data->columns[i] = (pe_column){.offset = 1, .rows = data->texts.rows, .memory = rows};
        }
    }
    return status;
}
