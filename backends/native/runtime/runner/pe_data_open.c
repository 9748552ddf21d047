/* Finds the arrays of data in files, and matches them with the inputs of an entry. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pe_data_pictures.h"
#include "pe_data_size.h"
#include "pe_data_source.h"

/* State of a visit of one file's arrays. */
typedef struct visit_context {
    pe_data *data;
    int file;
    const char *path;
} visit_context;

static bool is_data(const pe_data *data, int input) {
    return !pe_is_control(&data->entry->inputs[input]);
}

/* Rows that an input takes in a batch. */
static int64_t rows_of(const pe_tensor *input) { return input->rank > 0 ? input->shape[0] : 1; }

static bool fits(const pe_program *program, const pe_tensor *input, const pe_st_tensor *array) {
    const int rank = input->rank > 0 ? input->rank : 1;
    const pe_size_axis *axis = pe_find_axis(program, input->name);
    bool same = array->rank == rank && array->shape[0] > 0 && rows_of(input) > 0 &&
                strcmp(pe_dtype_name(input->dtype), array->dtype) == 0;
    for (int i = 1; same && i < rank; i++) {
        const int64_t size = array->shape[i];
        same = axis && axis->axis == i ? program->sizes->low <= size && size <= program->sizes->high
                                       : size == input->shape[i];
    }
    return same;
}

/* Writes a shape as [2, 3]; with `rows` in place of its first dimension, if it is a text. */
static void describe_shape(const int64_t *shape, int rank, const char *rows, char *text,
                           size_t size) {
    size_t length = (size_t)snprintf(text, size, "[%s", rows ? rows : "");
    for (int i = rows ? 1 : 0; i < rank && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%lld", i ? ", " : "",
                                   (long long)shape[i]);
    }
    if (length < size) {
        snprintf(text + length, size - length, "]");
    }
}

static pe_status refuse(const visit_context *c, const pe_tensor *input, const pe_st_tensor *array,
                        char *message) {
    char has[128], wants[128], range[128] = "";
    const pe_program *program = c->data->program;
    const pe_size_axis *axis = pe_find_axis(program, input->name);
    if (axis && axis->axis > 0) {
        snprintf(range, sizeof range, ", and %.60s of %lld to %lld", program->sizes->name,
                 (long long)program->sizes->low, (long long)program->sizes->high);
    }
    describe_shape(array->shape, array->rank, NULL, has, sizeof has);
    describe_shape(input->shape, input->rank, "N", wants, sizeof wants);
    return pe_fail(message, PE_ERROR_MISMATCH,
                   "%s: %s is %s %s; entry %s takes rows of it as %s %s, with N of at least 1%s",
                   c->path, input->name, array->dtype, has, c->data->name,
                   pe_dtype_name(input->dtype), wants, range);
}

/* Reads the size that varies within rows; it must be the same in all arrays. */
static pe_status take_size(pe_data *data, const pe_tensor *input, const pe_st_tensor *array,
                           char *message) {
    const pe_size_axis *axis = pe_find_axis(data->program, input->name);
    const int64_t size = axis && axis->axis > 0 ? array->shape[axis->axis] : data->size;
    if (data->size && data->size != size) {
        return pe_fail(message, PE_ERROR_MISMATCH, "%s: %s has a %s of %lld, others %lld",
                       data->path, input->name, data->program->sizes->name, (long long)size,
                       (long long)data->size);
    }
    data->size = size;
    return PE_OK;
}

/* Whether any entry of the program reads rows of this name. */
static bool is_known(const pe_program *program, const char *name) {
    for (int i = 0; i < program->entry_count; i++) {
        for (int j = 0; j < program->entries[i].input_count; j++) {
            const pe_tensor *input = &program->entries[i].inputs[j];
            if (!pe_is_control(input) && strcmp(input->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static pe_status visit(void *context, const pe_st_tensor *array, char *message) {
    const visit_context *c = context;
    pe_data *data = c->data;
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        if (!is_data(data, i) || strcmp(input->name, array->name) != 0) {
            continue;
        }
        if (data->columns[i].offset) {
            return pe_fail(message, PE_ERROR_FORMAT, "%s holds %s twice", c->path, input->name);
        }
        if (!fits(data->program, input, array)) {
            return refuse(c, input, array, message);
        }
        data->columns[i] = (pe_column){c->file, array->offset, array->shape[0], NULL};
        return take_size(data, input, array, message);
    }
    return is_known(data->program, array->name)
               ? PE_OK
               : pe_fail(message, PE_ERROR_MISMATCH,
                         "%s holds \"%s\", which program %s does not read", c->path, array->name,
                         data->program->name);
}

/* The only input that holds data, or NULL. */
static const char *only_input(const pe_data *data) {
    const char *name = NULL;
    for (int i = 0; i < data->entry->input_count; i++) {
        if (is_data(data, i)) {
            if (name) {
                return NULL;
            }
            name = data->entry->inputs[i].name;
        }
    }
    return name;
}

/* Reads a file with one array, the rows of the input named by the command or the entry. */
static pe_status open_array(visit_context *c, const char *name, char *message) {
    pe_st_tensor array = {.rank = 0};
    uint64_t bytes = 0;
    name = name ? name : only_input(c->data);
    if (!name) {
        return pe_fail(message, PE_ERROR_ARGUMENT,
                       "%s holds one array, and entry %s reads several: give NAME=FILE for each, "
                       "with commas between them",
                       c->path, c->data->name);
    }
    snprintf(array.name, sizeof array.name, "%s", name);
    pe_status status = pe_st_size(c->file, c->path, &bytes, message);
    if (status == PE_OK) {
        status = pe_npy_read(c->file, c->path, 0, bytes, &array, message);
    }
    return status == PE_OK ? visit(c, &array, message) : status;
}

/* Whether a file has neither the name of a safetensors file nor the brace that begins one's
 * header. */
static bool is_foreign(const char *path, char brace) {
    const char *dot = strrchr(path, '.');
    return brace != '{' && !(dot && strcmp(dot, ".safetensors") == 0);
}

/* Reads a file of any format, recognized by its first bytes. With a name it must be one array. */
static pe_status open_file(pe_data *data, const char *path, const char *name, char *message) {
    visit_context c = {.data = data, .path = path};
    const pe_st_visitor visitor = {.tensor = visit, .context = &c};
    char start[9] = "";
    if (data->file_count == PE_MAX_INPUTS) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "%s: more than %d files", path, PE_MAX_INPUTS);
    }
    pe_status status = pe_st_open(path, &c.file, message);
    if (status != PE_OK) {
        return status;
    }
    data->files[data->file_count++] = c.file;
    const ssize_t count = pread(c.file, start, sizeof start, 0);
    if (count >= 4) {
        if (name || memcmp(start, "\x93NUM", 4) == 0) {
            return open_array(&c, name, message);
        }
        if (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "PK\5\6", 4) == 0) {
            return pe_npz_read(c.file, path, &visitor, message);
        }
    }
    if (count >= 0 && is_foreign(path, start[8])) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s is no file of rows: give .safetensors, .npz or .npy, or texts in .jsonl",
                       path);
    }
    return pe_st_read(c.file, path, &visitor, message);
}

/* Whether a folder has a file NAME.npy for any input. */
static bool has_arrays(const pe_data *data, const char *path) {
    for (int i = 0; i < data->entry->input_count; i++) {
        char file[PATH_MAX];
        struct stat status;
        const int length =
            snprintf(file, sizeof file, "%s/%s.npy", path, data->entry->inputs[i].name);
        if (length > 0 && (size_t)length < sizeof file && stat(file, &status) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads a folder that has a file NAME.npy for each input. */
static pe_status open_arrays(pe_data *data, const char *path, char *message) {
    pe_status status = PE_OK;
    for (int i = 0; status == PE_OK && i < data->entry->input_count; i++) {
        const char *name = data->entry->inputs[i].name;
        char file[PATH_MAX];
        if (is_data(data, i)) {
            const int length = snprintf(file, sizeof file, "%s/%s.npy", path, name);
            status =
                length > 0 && (size_t)length < sizeof file
                    ? open_file(data, file, name, message)
                    : pe_fail(message, PE_ERROR_ARGUMENT, "the path %.100s... is too long", path);
        }
    }
    return status;
}

/* Reads a folder of arrays, or one of folders with pictures. */
static pe_status open_folder(pe_data *data, const char *path, char *message) {
    return has_arrays(data, path) || !pe_has_folders(path) ? open_arrays(data, path, message)
                                                           : pe_pictures_open(data, path, message);
}

/* Reads a list NAME=FILE,NAME=FILE. */
static pe_status open_list(pe_data *data, const char *list, char *message) {
    pe_status status = PE_OK;
    while (status == PE_OK && *list) {
        char part[PATH_MAX];
        const size_t length = strcspn(list, ",");
        if (length >= sizeof part) {
            return pe_fail(message, PE_ERROR_ARGUMENT, "the path %.100s... is too long", list);
        }
        memcpy(part, list, length);
        part[length] = '\0';
        char *equals = strchr(part, '=');
        if (!equals) {
            return pe_fail(message, PE_ERROR_ARGUMENT,
                           "--data has \"%.100s\" in a list of NAME=FILE", part);
        }
        *equals = '\0';
        status = open_file(data, equals + 1, part, message);
        list += length + (list[length] == ',');
    }
    return status;
}

/* Reads the path's arrays, whatever is there. */
static pe_status open_path(pe_data *data, const char *path, const pe_row_form *texts,
                           char *message) {
    struct stat status;
    const bool there = stat(path, &status) == 0;
    if (there && pe_is_texts(path)) {
        return pe_texts_open(data, path, texts, message);
    }
    return there && S_ISDIR(status.st_mode)      ? open_folder(data, path, message)
           : !there && strchr(path, '=') != NULL ? open_list(data, path, message)
                                                 : open_file(data, path, NULL, message);
}

/* Determines the number of rows: inputs that take different numbers of rows share only whole
 * batches. */
static void settle_whole(pe_data *data) {
    data->batch = 0;
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        if (is_data(data, i) && input->rank > 0) {
            data->whole = data->whole || (data->batch && data->batch != rows_of(input));
            data->batch = rows_of(input);
        }
    }
    data->whole = data->whole || !data->batch;
    data->batch = data->whole ? 1 : data->batch;
    data->slots = data->batch;
    data->count = data->batch;
}

/* Rows of the data that an array has, or -1 if it ends within one. */
static int64_t count_rows(const pe_data *data, int input) {
    const int64_t take = rows_of(&data->entry->inputs[input]);
    const int64_t rows = data->columns[input].rows;
    return !data->whole ? rows : rows % take ? -1 : rows / take;
}

/* Checks that all arrays exist and have the same number of rows, which is that of the data. */
static pe_status settle_rows(pe_data *data, char *message) {
    const pe_entry *entry = data->entry;
    for (int i = 0; i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (!is_data(data, i)) {
            continue;
        }
        if (!data->columns[i].offset) {
            return pe_fail(message, PE_ERROR_MISMATCH, "%s does not hold %s, which entry %s reads",
                           data->path, input->name, data->name);
        }
        const int64_t rows = count_rows(data, i);
        if (rows < 0) {
            return pe_fail(message, PE_ERROR_MISMATCH,
                           "%s: %s has %lld rows; inputs of entry %s differ in their rows a batch, "
                           "so that each needs whole batches, of %lld",
                           data->path, input->name, (long long)data->columns[i].rows, data->name,
                           (long long)rows_of(input));
        }
        if (input->rank > 0 || data->whole) {
            if (data->rows && data->rows != rows) {
                return pe_fail(message, PE_ERROR_MISMATCH, "%s: %s has %lld %s, others %lld",
                               data->path, input->name, (long long)rows,
                               data->whole ? "batches" : "rows", (long long)data->rows);
            }
            data->rows = rows;
        }
    }
    return PE_OK;
}

/* Checks the inputs that have one number per batch, including a short last one. */
static pe_status check_numbers(const pe_data *data, char *message) {
    const int64_t batches = (data->rows + data->batch - 1) / data->batch;
    for (int i = 0; i < data->entry->input_count; i++) {
        const pe_tensor *input = &data->entry->inputs[i];
        if (is_data(data, i) && input->rank == 0 && data->columns[i].rows != batches) {
            return pe_fail(message, PE_ERROR_MISMATCH,
                           "%s: %s has %lld numbers; it takes one for each of %lld batches",
                           data->path, input->name, (long long)data->columns[i].rows,
                           (long long)batches);
        }
    }
    return PE_OK;
}

pe_status pe_data_open(pe_data *data, const char *path, const pe_program *program, const char *name,
                       int64_t batch, const pe_row_form *texts, char *message) {
    const pe_entry *entry = pe_find_variant(program, name, 0);
    *data = (pe_data){.program = program, .name = name, .entry = entry, .path = path, .batch = 1};
    if (!entry) {
        return pe_fail(message, PE_ERROR_NAME, "program %s has no entry \"%s\"", program->name,
                       name);
    }
    if (entry->input_count > PE_MAX_INPUTS) {
        return pe_fail(message, PE_ERROR_MISMATCH, "entry %s has more than %d inputs", name,
                       PE_MAX_INPUTS);
    }
    pe_status status = open_path(data, path, texts, message);
    if (status == PE_OK) {
        settle_whole(data);
        status = data->pictures && data->whole
                     ? pe_fail(message, PE_ERROR_MISMATCH,
                               "inputs of entry %s differ in their rows a batch, which rows from "
                               "folders of pictures cannot",
                               data->name)
                     : settle_rows(data, message);
    }
    if (status == PE_OK) {
        status = pe_settle_batch(data, batch, message);
    }
    return status == PE_OK ? check_numbers(data, message) : status;
}
