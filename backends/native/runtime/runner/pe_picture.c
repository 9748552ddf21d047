#include "pe_picture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pe_safetensors.h"
#include "pe_text.h"

/* Maximum bytes of a file: a fixed part, and for each pixel 16 bits of four channels. */
enum { EXTRA_BYTES = 1 << 20, PIXEL_BYTES = 8 };

int pe_picture_turn(const unsigned char *tiff, size_t bytes) {
    enum { ENTRY = 12, ORIENTATION = 0x112, SHORT = 3, LONG = 4 };
    const bool little = bytes >= 8 && tiff[0] == 'I';
    if (bytes < 8 || memcmp(tiff, little ? "II*\0" : "MM\0*", 4) != 0) {
        return 1;
    }
#define TWO(at) (size_t)(little ? tiff[at] | tiff[(at) + 1] << 8 : tiff[at] << 8 | tiff[(at) + 1])
#define FOUR(at) (little ? TWO(at) | TWO((at) + 2) << 16 : TWO(at) << 16 | TWO((at) + 2))
    const size_t begin = FOUR(4);
    const size_t count = begin <= bytes - 2 ? TWO(begin) : 0;
    for (size_t i = 0; i < count && begin + 2 + (i + 1) * ENTRY <= bytes; i++) {
        const size_t entry = begin + 2 + i * ENTRY;
        const size_t type = TWO(entry + 2);
        if (TWO(entry) == ORIENTATION && (type == SHORT || type == LONG)) {
            const size_t turn = type == SHORT ? TWO(entry + 8) : FOUR(entry + 8);
            return turn >= 1 && turn <= 8 ? (int)turn : 1;
        }
    }
#undef FOUR
#undef TWO
    return 1;
}

const char *pe_picture_clean(unsigned char *file, size_t *bytes, pe_picture_header *header) {
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    *header = (pe_picture_header){.turn = 1};
    if (*bytes == 0) {
        return "it is empty";
    }
    if (*bytes > sizeof png && memcmp(file, png, sizeof png) == 0) {
        return pe_png_clean(file, bytes, header);
    }
    if (*bytes > 3 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF) {
        return pe_jpeg_clean(file, bytes, header);
    }
    return "it is neither JPEG nor PNG";
}

/* Reads a whole file, up to the largest size of its picture. */
static const char *read_file(const char *path, int64_t most, unsigned char **file, size_t *bytes,
                             char *message) {
    const int handle = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    const char *fault = NULL;
    if (handle < 0 || fstat(handle, &status) != 0) {
        fault = pe_reason(errno);
    } else if (!S_ISREG(status.st_mode)) {
        fault = "it is no file";
    } else if (status.st_size > PIXEL_BYTES * most + EXTRA_BYTES) {
        fault = "it is larger than pictures of as many pixels are";
    } else {
        *bytes = (size_t)status.st_size;
        *file = malloc(*bytes + 1);
        fault = !*file ? "there is no memory for it" : NULL;
    }
    if (!fault && pe_st_read_at(handle, path, 0, *file, *bytes, message) != PE_OK) {
        fault = "it cannot be read";
    }
    if (handle >= 0) {
        close(handle);
    }
    return fault;
}

/* Decodes the file to the picture. */
static const char *decode(const char *path, int64_t most, pe_picture *picture, int *turn,
                          char *message) {
    unsigned char *file = NULL;
    size_t bytes = 0;
    pe_picture_header header = {.turn = 1};
    const char *fault = read_file(path, most, &file, &bytes, message);
    if (!fault) {
        fault = pe_picture_clean(file, &bytes, &header);
    }
    if (!fault && (header.height < 1 || header.width < 1)) {
        fault = "it has no pixels";
    }
    if (!fault && (header.height > most || header.width > most / header.height)) {
        fault = "it has too many pixels; --megapixels says how many it may have";
    }
    if (!fault) {
        fault = pe_picture_decode(file, bytes, &header, picture);
    }
    *turn = header.turn;
    free(file);
    return fault;
}

/* A pixel as `to` channels; colors become gray by ITU-R 601, rounded as in Pillow. */
static void convert(const unsigned char *from, int64_t channels, unsigned char *to,
                    int64_t wanted) {
    const bool gray = channels < 3;
    if (wanted == 3) {
        to[0] = from[0];
        to[1] = from[gray ? 0 : 1];
        to[2] = from[gray ? 0 : 2];
    } else {
        to[0] =
            gray ? from[0]
                 : (unsigned char)((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >>
                                   16);
    }
}

/* Rotates a picture by its EXIF orientation, with 1 or 3 channels. */
static bool turn_upright(pe_picture *p, int turn, int64_t channels) {
    const bool over = turn >= 5;                                         /* lines become columns */
    const bool right = turn == 2 || turn == 3 || turn == 7 || turn == 8; /* from where x is read */
    const bool bottom = turn == 3 || turn == 4 || turn == 6 || turn == 7;
    const int64_t height = over ? p->width : p->height, width = over ? p->height : p->width;
    unsigned char *to = malloc((size_t)(height * width * channels)), *begin = to;
    for (int64_t y = 0; to && y < height; y++) {
        for (int64_t x = 0; x < width; x++, to += channels) {
            const int64_t i = over ? y : x, j = over ? x : y;
            const int64_t column = right ? p->width - 1 - i : i;
            const int64_t line = bottom ? p->height - 1 - j : j;
            convert(p->samples + (line * p->width + column) * p->channels, p->channels, to,
                    channels);
        }
    }
    free(p->samples);
    *p = (pe_picture){height, width, channels, begin};
    return begin != NULL;
}

pe_status pe_picture_read(const char *path, const pe_picture_shape *shape, int64_t most,
                          unsigned char *samples, char *message) {
    pe_picture picture = {.samples = NULL};
    int turn = 1;
    const char *fault = decode(path, most, &picture, &turn, message);
    if (!fault && (!turn_upright(&picture, turn, shape->channels) ||
                   !pe_picture_fit(&picture, shape->height, shape->width, samples))) {
        fault = "there is no memory for it";
    }
    free(picture.samples);
    return fault ? pe_fail(message, PE_ERROR_FORMAT, "the picture %.300s: %s", path, fault) : PE_OK;
}
