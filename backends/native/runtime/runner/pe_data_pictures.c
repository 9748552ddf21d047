#include "pe_data_pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pe_data_size.h"

enum { SAMPLES = 256, MEGAPIXELS = 50, MILLION = 1000000 };

static bool is_channels(int64_t size) { return size == 1 || size == 3; }

/* Reads the shape of an input; false if it does not take pictures. */
static bool read_shape(const pe_tensor *input, pe_picture_shape *shape) {
    const int64_t *size = input->shape;
    if (input->dtype != PE_F32 || input->rank != 4) {
        return false;
    }
    const bool planes = is_channels(size[1]);
    *shape = planes ? (pe_picture_shape){size[2], size[3], size[1], true}
                    : (pe_picture_shape){size[1], size[2], size[3], false};
    return planes || is_channels(size[3]);
}

int pe_find_pictures(const pe_entry *entry, pe_picture_shape *shape) {
    int found = -1;
    *shape = (pe_picture_shape){.height = 0};
    for (int i = 0; i < entry->input_count; i++) {
        if (entry->inputs[i].rank > 2) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    return found >= 0 && read_shape(&entry->inputs[found], shape) ? found : -1;
}

/* The first input of one integer for each picture; -1 if there is none. */
static int find_labels(const pe_entry *entry) {
    for (int i = 0; i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (input->rank == 1 && (input->dtype == PE_I64 || input->dtype == PE_I32) &&
            !pe_is_control(input)) {
            return i;
        }
    }
    return -1;
}

pe_status pe_pictures_open(pe_data *data, const char *folder, char *message) {
    pe_picture_shape shape;
    const int input = pe_find_pictures(data->entry, &shape);
    const pe_size_axis *axis =
        input < 0 ? NULL : pe_find_axis(data->program, data->entry->inputs[input].name);
    if (input < 0 || (axis && axis->axis > 0)) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%.200s has folders and no NAME.npy; entry %s reads no pictures from class "
                       "folders: it has no input f32 [B, C, H, W] or [B, H, W, C] of one size with "
                       "1 or 3 channels, or another one of three dimensions",
                       folder, data->name);
    }
    if (!pe_picture_decodes()) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%.200s: this runner was compiled where stb_image.h was missing; install "
                       "libstb-dev there and compile again, or bring rows made by `pockengine "
                       "pictures`",
                       folder);
    }
    pe_pictures *p = calloc(1, sizeof *p);
    data->pictures = p;
    if (p) {
        p->samples = malloc((size_t)(shape.height * shape.width * shape.channels));
    }
    if (!p || !p->samples) {
        return pe_fail(message, PE_ERROR_SYSTEM, "there is no memory for pictures");
    }
    p->shape = shape;
    p->input = input;
    p->target = find_labels(data->entry);
    const pe_status status = pe_list_pictures(folder, &p->list, message);
    data->columns[input] = (pe_column){.offset = 1, .rows = p->list.file_count};
    if (p->target >= 0) {
        data->columns[p->target] = data->columns[input];
    }
    return status == PE_OK ? pe_pictures_settle(data, NULL, NULL, -1, message) : status;
}

void pe_pictures_close(pe_data *data) {
    if (data->pictures) {
        pe_drop_pictures(&data->pictures->list);
        free(data->pictures->samples);
        free(data->pictures);
        data->pictures = NULL;
    }
}

/* Reads one number, or one for each channel. */
static bool read_numbers(const char *text, int64_t channels, bool positive, float *numbers) {
    int64_t count = 0;
    for (char *end; count < channels; text = end + 1) {
        numbers[count] = strtof(text, &end);
        if (end == text || !isfinite(numbers[count]) || (positive && !(numbers[count] > 0))) {
            return false;
        }
        count++;
        if (*end != ',') {
            for (int64_t i = 1; count == 1 && i < channels; i++) {
                numbers[i] = numbers[0];
            }
            return *end == '\0' && (count == 1 || count == channels);
        }
    }
    return false;
}

pe_status pe_pictures_settle(pe_data *data, const char *mean, const char *spread,
                             int64_t megapixels, char *message) {
    pe_pictures *p = data->pictures;
    float means[3], spreads[3];
    if (!p) {
        return !mean && !spread && megapixels < 0
                   ? PE_OK
                   : pe_fail(message, PE_ERROR_ARGUMENT,
                             "--mean, --std and --megapixels are for folders of pictures; %.200s "
                             "is none",
                             data->path);
    }
    const int64_t channels = p->shape.channels;
    if (!read_numbers(mean ? mean : "0", channels, false, means) ||
        !read_numbers(spread ? spread : "1", channels, true, spreads)) {
        return pe_fail(message, PE_ERROR_ARGUMENT,
                       "--mean and --std take one number, or %lld with commas between them; --std "
                       "more than 0",
                       (long long)channels);
    }
    for (int64_t c = 0; c < channels; c++) {
        for (int i = 0; i < SAMPLES; i++) {
            p->numbers[c][i] = ((float)i / 255.0F - means[c]) / spreads[c];
        }
    }
    p->most = (megapixels < 0 ? MEGAPIXELS : megapixels) * MILLION;
    return PE_OK;
}

pe_status pe_pictures_fault(const pe_data *data, int64_t row, char *message) {
    const pe_pictures *p = data->pictures;
    return pe_picture_read(p->list.files[row].path, &p->shape, p->most, p->samples, message);
}

/* Writes the samples of one picture as normalized numbers. */
static void write_numbers(const pe_pictures *p, float *to) {
    const pe_picture_shape *s = &p->shape;
    const int64_t pixels = s->height * s->width;
    for (int64_t i = 0; i < pixels; i++) {
        for (int64_t c = 0; c < s->channels; c++) {
            to[s->planes ? c * pixels + i : i * s->channels + c] =
                p->numbers[c][p->samples[i * s->channels + c]];
        }
    }
}

static pe_status read_picture(const pe_data *data, float *to, size_t numbers, int64_t row,
                              char *message) {
    const pe_status status = pe_pictures_fault(data, row, message);
    if (status == PE_OK) {
        write_numbers(data->pictures, to);
        return PE_OK;
    }
    for (size_t i = 0; i < numbers; i++) {
        to[i] = NAN;
    }
    return data->lenient ? PE_OK : status;
}

pe_status pe_pictures_rows(const pe_data *data, const pe_session *session, int input, int64_t row,
                           int64_t count, int64_t slot, char *message) {
    const pe_pictures *p = data->pictures;
    const pe_tensor *tensor = &data->entry->inputs[input];
    const size_t bytes = pe_tensor_bytes(tensor) / (size_t)data->slots;
    unsigned char *memory = (unsigned char *)pe_tensor_data(session, tensor) + (size_t)slot * bytes;
    pe_status status = PE_OK;
    for (int64_t i = 0; status == PE_OK && i < count; i++, memory += bytes) {
        if (input == p->input) {
            status = read_picture(data, (float *)memory, bytes / sizeof(float), row + i, message);
        } else {
            const int32_t narrow = p->list.files[row + i].class;
            const int64_t wide = narrow;
            const bool is_wide = tensor->dtype == PE_I64;
            memcpy(memory, is_wide ? (const void *)&wide : (const void *)&narrow, bytes);
        }
    }
    return status;
}
