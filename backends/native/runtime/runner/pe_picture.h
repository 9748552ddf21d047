/* Pictures in JPEG and PNG files: decoded, rotated by EXIF, scaled to cover a size and cropped
 * around the center. Colors and scaling are Pillow's, bit for bit, except the decoding of JPEG.
 *
 * Files may come from anyone. The size that a file states is checked before any of it is decoded,
 * and memory is bounded by that size. stb_image decodes; if it was missing when the runtime was
 * compiled, every picture is rejected.
 */
#ifndef PE_PICTURE_H
#define PE_PICTURE_H

#include "pe.h"

/* Samples of 8 bits, line by line, the channels of a pixel side by side. */
typedef struct pe_picture {
    int64_t height, width, channels;
    unsigned char *samples; /* from malloc */
} pe_picture;

/* Destination of pictures: [channels, height, width] with `planes`, otherwise [height, width,
 * channels]. */
typedef struct pe_picture_shape {
    int64_t height, width, channels; /* 1 or 3 channels */
    bool planes;
} pe_picture_shape;

/* A picture's properties in its file. */
typedef struct pe_picture_header {
    int64_t height, width;
    int turn; /* EXIF's orientation, 1 to 8 */
} pe_picture_header;

/* Whether this runtime can decode pictures. */
bool pe_picture_decodes(void);

/* Reads a picture of at most `most` pixels into shape->height x width x channels samples. An
 * error names the file and the fault; `samples` is then undefined. */
pe_status pe_picture_read(const char *path, const pe_picture_shape *shape, int64_t most,
                          unsigned char *samples, char *message);

/* For pe_picture*.c only. A fault of a file is a text, or NULL for none. */

/* Checks the parts of a file in memory, and removes all that the decoder does not need.
 */
const char *pe_picture_clean(unsigned char *file, size_t *bytes, pe_picture_header *header);
const char *pe_jpeg_clean(unsigned char *file, size_t *bytes, pe_picture_header *header);
const char *pe_png_clean(unsigned char *file, size_t *bytes, pe_picture_header *header);

/* EXIF's orientation in a TIFF block; 1 if it is missing. */
int pe_picture_turn(const unsigned char *tiff, size_t bytes);

/* Decodes a cleaned file with all its channels, 1 to 4. */
const char *pe_picture_decode(const unsigned char *file, size_t bytes,
                              const pe_picture_header *header, pe_picture *picture);

/* Scales with triangle weights over the area of a new pixel, lines first; false if memory is
 * exhausted.
 */
bool pe_picture_fit(const pe_picture *picture, int64_t height, int64_t width,
                    unsigned char *samples);

#endif
