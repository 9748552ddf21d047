/* The chunks of a PNG file. Only those that define pixels are passed to the decoder; their
 * checksums are verified here. */
#include <string.h>

#include "pe_crc.h"
#include "pe_picture.h"

enum { SIGNATURE = 8, AROUND = 12 /* bytes of a chunk beside its data */ };

static uint32_t number(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is(const unsigned char *chunk, const char *type) {
    return memcmp(chunk + 4, type, 4) == 0;
}

/* Whether a decoder needs a chunk. Transparency is ignored, and so are empty pixel chunks, which
 * stb_image would copy to NULL. */
static bool is_needed(const unsigned char *chunk) {
    return is(chunk, "IHDR") || is(chunk, "PLTE") || is(chunk, "IEND") ||
           (is(chunk, "IDAT") && number(chunk) > 0);
}

/* Handles one chunk; the first has the size. */
static const char *take(const unsigned char *chunk, size_t length, bool first,
                        pe_picture_header *header) {
    if (first != is(chunk, "IHDR") || (first && length != 13)) {
        return "it has no header, or two";
    }
    if (first) {
        header->width = number(chunk + 8);
        header->height = number(chunk + 12);
    } else if (is(chunk, "eXIf")) {
        header->turn = pe_picture_turn(chunk + 8, length);
    } else if (!is_needed(chunk) && !is(chunk, "IDAT") && !(chunk[4] & 0x20)) {
        return "it has a part that a decoder must know, and this one does not";
    }
    return NULL;
}

const char *pe_png_clean(unsigned char *file, size_t *bytes, pe_picture_header *header) {
    size_t at = SIGNATURE, made = SIGNATURE, pixels = 0;
    for (;;) {
        unsigned char *chunk = file + at;
        if (*bytes - at < AROUND || number(chunk) > *bytes - at - AROUND) {
            return "it ends too early";
        }
        const size_t length = number(chunk), whole = length + AROUND;
        if (pe_crc32(PE_CRC_EMPTY, chunk + 4, length + 4) != number(chunk + 8 + length)) {
            return "a checksum is wrong";
        }
        const char *fault = take(chunk, length, at == SIGNATURE, header);
        if (fault) {
            return fault;
        }
        const bool last = is(chunk, "IEND");
        pixels += is(chunk, "IDAT") ? length : 0;
        if (is_needed(chunk)) {
            memmove(file + made, chunk, whole);
            made += whole;
        }
        at += whole;
        if (last) {
            *bytes = made;
            return pixels ? NULL : "it has no pixels";
        }
    }
}
