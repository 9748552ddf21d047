#include "pe_data_augment.h"

#include <string.h>

#include "pe_data_pictures.h"
#include "pe_random.h"

/* Stream of an epoch's random numbers; lower ones belong to the order of rows. */
#define STREAM 6

/* Pictures of an input: `planes` of height x width pixels, `pixel` floats each. */
typedef struct pictures {
    int64_t planes, height, width;
    size_t pixel;
} pictures;

/* The pictures of an entry; false where it has none. */
static bool find(const pe_data *data, int *input, pictures *form) {
    pe_picture_shape shape;
    *input = pe_find_pictures(data->entry, &shape);
    *form = shape.planes ? (pictures){shape.channels, shape.height, shape.width, 1}
                         : (pictures){1, shape.height, shape.width, (size_t)shape.channels};
    return *input >= 0;
}

pe_status pe_check_augmentation(const pe_data *data, const pe_augmentation *how, char *message) {
    int input;
    pictures form;
    if (!how->flip && !how->crop) {
        return PE_OK;
    }
    if (!find(data, &input, &form) || data->whole) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "--flip and --crop are for one input of pictures, f32 [B, C, H, W] or [B, "
                       "H, W, C] with 1 or 3 channels, and no other of three dimensions; entry %s "
                       "has none such: augment where the data are made",
                       data->name);
    }
    return how->crop < form.height && how->crop < form.width
               ? PE_OK
               : pe_fail(message, PE_ERROR_ARGUMENT,
                         "--crop %lld may leave nothing of pictures of %lld x %lld",
                         (long long)how->crop, (long long)form.height, (long long)form.width);
}

/* Shifts a line to the left by `left` pixels and fills with zeros. */
static void move_line(const pictures *form, float *to, const float *from, int64_t left) {
    const int64_t kept = form->width - (left < 0 ? -left : left);
    const size_t bytes = (size_t)kept * form->pixel * sizeof *to;
    const size_t gap = (size_t)(form->width - kept) * form->pixel;
    if (left >= 0) {
        memmove(to, from + gap, bytes);
        memset(to + (size_t)kept * form->pixel, 0, gap * sizeof *to);
    } else {
        memmove(to + gap, from, bytes);
        memset(to, 0, gap * sizeof *to);
    }
}

/* Shifts a plane up and to the left in place, line by line in the order that overwrites no source.
 */
static void move_plane(const pictures *form, float *plane, int64_t up, int64_t left) {
    const size_t line = (size_t)form->width * form->pixel;
    for (int64_t i = 0; i < form->height; i++) {
        const int64_t y = up >= 0 ? i : form->height - 1 - i, from = y + up;
        float *to = plane + (size_t)y * line;
        if (from < 0 || from >= form->height) {
            memset(to, 0, line * sizeof *to);
        } else {
            move_line(form, to, plane + (size_t)from * line, left);
        }
    }
}

/* Mirrors every line of a plane. */
static void flip_plane(const pictures *form, float *plane) {
    for (int64_t y = 0; y < form->height; y++) {
        float *first = plane + (size_t)(y * form->width) * form->pixel;
        float *last = first + (size_t)(form->width - 1) * form->pixel;
        for (; first < last; first += form->pixel, last -= form->pixel) {
            for (size_t i = 0; i < form->pixel; i++) {
                const float other = first[i];
                first[i] = last[i];
                last[i] = other;
            }
        }
    }
}

/* Number i, of 24 random bits. */
static int64_t bits(uint32_t key, uint64_t i) { return pe_mix(pe_mix((uint32_t)i) + key) >> 8; }

void pe_augment(const pe_data *data, const pe_session *session, const pe_augmentation *how,
                int64_t epoch, int64_t batch) {
    const uint32_t of_epoch = pe_random_key((int32_t)data->seed, (uint32_t)epoch);
    const uint32_t key = pe_random_key((int32_t)of_epoch, STREAM);
    int input;
    pictures form;
    if ((!how->flip && !how->crop) || !find(data, &input, &form)) {
        return;
    }
    const size_t plane = (size_t)(form.height * form.width) * form.pixel;
    float *memory = pe_tensor_data(session, &data->entry->inputs[input]);
    for (int64_t slot = 0; slot < data->count; slot++) {
        const uint64_t first = 3 * (uint64_t)(batch * data->batch + slot);
        const int64_t choices = 2 * how->crop + 1;
        const int64_t up = (bits(key, first + 1) * choices >> 24) - how->crop;
        const int64_t left = (bits(key, first + 2) * choices >> 24) - how->crop;
        const bool mirrored = how->flip && bits(key, first) >> 23;
        for (int64_t i = 0; i < form.planes; i++, memory += plane) {
            move_plane(&form, memory, up, left);
            if (mirrored) {
                flip_plane(&form, memory);
            }
        }
    }
}
