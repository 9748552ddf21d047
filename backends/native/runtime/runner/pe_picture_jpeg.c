/* The segments of a JPEG file. The decoder gets a file rewritten from the segments parsed here,
 * so both see the same segments. Tables of Huffman codes are checked: stb_image before 2.28
 * trusts their sizes. */
#include <string.h>

#include "pe_picture.h"

enum {
    SOF0 = 0xC0,
    SOF2 = 0xC2,
    DHT = 0xC4,
    RST0 = 0xD0,
    RST7 = 0xD7,
    EOI = 0xD9,
    SOS = 0xDA,
    DQT = 0xDB,
    DRI = 0xDD,
    APP0 = 0xE0,
    APP1 = 0xE1,
    APP14 = 0xEE,
    COM = 0xFE,
    MOST_SCANS = 500 /* progressive files have about ten; each takes time */
};

/* A file that is read and written in place: `made` is never beyond `at`. */
typedef struct stream {
    unsigned char *file;
    size_t bytes, at, made;
    pe_picture_header *header;
    int scans;
} stream;

static size_t number(const unsigned char *at) { return (size_t)at[0] << 8 | at[1]; }

static void emit(stream *s, const unsigned char *data, size_t bytes) {
    memmove(s->file + s->made, data, bytes);
    s->made += bytes;
}

/* Whether 16 counts of codes by length form a prefix code of at most 256 symbols. */
static bool is_code(const unsigned char *counts, size_t *symbols) {
    uint32_t code = 0;
    *symbols = 0;
    for (int i = 0; i < 16; i++) {
        *symbols += counts[i];
        code += counts[i];
        if (code > (uint32_t)2 << i) {
            return false;
        }
        code *= 2;
    }
    return *symbols <= 256;
}

static const char *check_codes(const unsigned char *data, size_t bytes) {
    while (bytes > 0) {
        size_t symbols = 0;
        if (bytes < 17 || !is_code(data + 1, &symbols) || symbols > bytes - 17) {
            return "a table of codes is wrong";
        }
        data += 17 + symbols;
        bytes -= 17 + symbols;
    }
    return NULL;
}

static const char *take_frame(stream *s, const unsigned char *data, size_t bytes) {
    if (s->header->width || bytes < 6) {
        return "it has two headers, or a short one";
    }
    s->header->height = (int64_t)number(data + 1);
    s->header->width = (int64_t)number(data + 3);
    return data[5] == 1 || data[5] == 3 ? NULL : "its channels are neither gray nor three colors";
}

/* Copies a scan's codes up to the next marker; a byte 0xFF followed by 0 is data. */
static const char *copy_codes(stream *s) {
    while (s->bytes - s->at >= 2) {
        const unsigned char *at = s->file + s->at;
        const bool plain = at[0] != 0xFF, filling = at[0] == 0xFF && at[1] == 0xFF;
        if (!plain && !filling && at[1] != 0 && (at[1] < RST0 || at[1] > RST7)) {
            return NULL;
        }
        const size_t bytes = plain || filling ? 1 : 2;
        s->at += bytes;
        if (!filling) {
            emit(s, at, bytes);
        }
    }
    return "it ends too early";
}

/* Handles the segment of a marker, with `bytes` bytes at `data`. */
static const char *take(stream *s, int marker, const unsigned char *data, size_t bytes) {
    static const char exif[] = "Exif\0";
    const bool frame = marker >= SOF0 && marker <= SOF2;
    const bool other = (marker >= APP0 && marker < APP0 + 16) || marker == COM;
    const char *fault = NULL;
    if (frame) {
        fault = take_frame(s, data, bytes);
    } else if (marker == DHT) {
        fault = check_codes(data, bytes);
    } else if (marker == SOS) {
        fault = !s->header->width          ? "a scan comes before the header"
                : s->scans++ >= MOST_SCANS ? "it has too many scans"
                                           : NULL;
    } else if (marker == APP1 && bytes > sizeof exif && memcmp(data, exif, sizeof exif) == 0) {
        s->header->turn = pe_picture_turn(data + sizeof exif, bytes - sizeof exif);
    } else if (!other && marker != DQT && marker != DRI) {
        fault = "it is of a kind that is not read, lossless or arithmetic";
    }
    if (!fault && (!other || marker == APP0 || marker == APP14)) {
        const unsigned char mark[] = {0xFF, (unsigned char)marker};
        const unsigned char *length = data - 2;
        emit(s, mark, sizeof mark);
        emit(s, length, bytes + 2);
    }
    return fault;
}

/* Reads one marker with its segment; `*done` at the end. */
static const char *step(stream *s, bool *done) {
    const unsigned char *file = s->file;
    if (s->at >= s->bytes || file[s->at] != 0xFF) {
        return s->at >= s->bytes ? "it ends too early" : "there is no marker where one must be";
    }
    while (s->at < s->bytes && file[s->at] == 0xFF) { /* any number of them may come before it */
        s->at++;
    }
    if (s->at < s->bytes && file[s->at] == EOI) {
        emit(s, (const unsigned char[]){0xFF, EOI}, 2);
        *done = true;
        return s->scans ? NULL : "it has no scan";
    }
    if (s->bytes - s->at < 3 || number(file + s->at + 1) > s->bytes - s->at - 1) {
        return "it ends too early";
    }
    const int marker = file[s->at];
    const size_t length = number(file + s->at + 1);
    if (length < 2) {
        return "the length of a segment is wrong";
    }
    const unsigned char *data = file + s->at + 3;
    s->at += 1 + length;
    const char *fault = take(s, marker, data, length - 2);
    return !fault && marker == SOS ? copy_codes(s) : fault;
}

const char *pe_jpeg_clean(unsigned char *file, size_t *bytes, pe_picture_header *header) {
    stream s = {.file = file, .bytes = *bytes, .at = 2, .made = 2, .header = header};
    const char *fault = NULL;
    for (bool done = false; !fault && !done;) {
        fault = step(&s, &done);
    }
    *bytes = s.made;
    return fault;
}
