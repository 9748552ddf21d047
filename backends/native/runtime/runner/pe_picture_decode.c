/* stb_image, with only the required formats, and bounded memory. Compiled with -fwrapv, as
 * sums of a hostile JPEG overflow. */
#include "pe_picture.h"

#if __has_include("stb_image.h")

#include <stdlib.h>
#include <string.h>

/* Bytes that the decoder may still allocate for the current picture. */
static _Thread_local size_t left;

enum { HEAD = 16 /* keeps blocks aligned; holds their sizes */ };

/* Zeroed memory, so that no picture shows data of another. */
static void *allocate(size_t bytes) {
    unsigned char *block = bytes <= left ? calloc(1, bytes + HEAD) : NULL;
    if (!block) {
        return NULL;
    }
    left -= bytes;
    memcpy(block, &bytes, sizeof bytes);
    return block + HEAD;
}

static void release(void *memory) {
    size_t bytes = 0;
    if (memory) {
        memcpy(&bytes, (unsigned char *)memory - HEAD, sizeof bytes);
        left += bytes;
        free((unsigned char *)memory - HEAD);
    }
}

static void *resize(void *memory, size_t before, size_t bytes) {
    void *larger = allocate(bytes);
    if (larger && memory) {
        memcpy(larger, memory, before < bytes ? before : bytes);
        release(memory);
    }
    return larger;
}

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_MAX_DIMENSIONS 65535
#define STBI_ASSERT(fact) ((void)0) /* a fault of the file is not a bug of the runner */
#define STBI_MALLOC(bytes) allocate(bytes)
#define STBI_REALLOC_SIZED(memory, before, bytes) resize(memory, before, bytes)
#define STBI_FREE(memory) release(memory)
#pragma GCC diagnostic ignored "-Wunused-function"
#include "stb_image.h"

bool pe_picture_decodes(void) { return true; }

const char *pe_picture_decode(const unsigned char *file, size_t bytes,
                              const pe_picture_header *header, pe_picture *picture) {
    /* The maximum is an incompressible PNG with 16 bits and four channels: 24 bytes per pixel.
     * Blocks of a JPEG extend beyond its edges. */
    left = 32 * (size_t)(header->height + 64) * (size_t)(header->width + 64) + ((size_t)1 << 20);
    int width = 0, height = 0, channels = 0;
    unsigned char *samples = stbi_load_from_memory(file, (int)bytes, &width, &height, &channels, 0);
    if (!samples) {
        const char *reason = stbi_failure_reason();
        return strcmp(reason, "outofmem") == 0 ? "it takes more memory than its size needs"
                                               : reason;
    }
    const size_t size = (size_t)width * (size_t)height * (size_t)channels;
    *picture = (pe_picture){height, width, channels, malloc(size)};
    if (picture->samples) {
        memcpy(picture->samples, samples, size);
    }
    release(samples);
    return picture->samples ? NULL : "there is no memory for it";
}

#else

bool pe_picture_decodes(void) { return false; }

const char *pe_picture_decode(const unsigned char *file, size_t bytes,
                              const pe_picture_header *header, pe_picture *picture) {
    (void)file, (void)bytes, (void)header, (void)picture;
    return "this runner was compiled without a decoder";
}

#endif
