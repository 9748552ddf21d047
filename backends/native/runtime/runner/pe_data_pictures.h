/* A folder of pictures by class, as rows. A picture is decoded when its row is read.
 *
 *     photos/cats/1.jpg  photos/cats/garden/2.png  photos/dogs/1.png
 *
 * Classes are the folders, sorted by name as bytes. The files of a class are sorted by path in the
 * same way. Names that begin with a dot, and files that do not end in .jpg, .jpeg or .png, are
 * skipped.
 */
#ifndef PE_DATA_PICTURES_H
#define PE_DATA_PICTURES_H

#include "pe_data.h"
#include "pe_picture.h"

typedef struct pe_picture_file {
    char *path; /* from malloc */
    int class;
} pe_picture_file;

typedef struct pe_picture_class {
    char *name; /* from malloc */
    int64_t pictures;
} pe_picture_class;

typedef struct pe_picture_list {
    pe_picture_file *files;
    pe_picture_class *classes;
    int64_t file_count, class_count;
} pe_picture_list;

struct pe_pictures {
    pe_picture_list list;
    pe_picture_shape shape;
    int input, target;      /* of the entry; the target is -1 if it reads no labels */
    int64_t most;           /* pixels of a file */
    float numbers[3][256];  /* of each sample, by channel */
    unsigned char *samples; /* of one picture */
};

/* The only input of more than two dimensions if it takes pictures, f32 [B, C, H, W] or [B, H, W,
 * C] with 1 or 3 channels; otherwise -1. */
int pe_find_pictures(const pe_entry *entry, pe_picture_shape *shape);

/* Whether a folder contains folders. */
bool pe_has_folders(const char *path);

/* Lists the pictures of a folder; call pe_drop_pictures after an error too. */
pe_status pe_list_pictures(const char *folder, pe_picture_list *list, char *message);
void pe_drop_pictures(pe_picture_list *list);

/* Opens a folder as the data's rows: pixels, and class numbers if labels are read. */
pe_status pe_pictures_open(pe_data *data, const char *folder, char *message);
void pe_pictures_close(pe_data *data);

/* A sample p becomes (p / 255 - mean) / spread. `mean` and `spread` are texts with one number or
 * one per channel, or NULL for 0 and 1. `megapixels` of -1 means 50. PE_ERROR_ARGUMENT if one is
 * set but the data are not pictures. */
pe_status pe_pictures_settle(pe_data *data, const char *mean, const char *spread,
                             int64_t megapixels, char *message);

/* Reads rows of an input into their slots. If `data->lenient`, a picture that cannot be decoded
 * becomes NaN, which pe_data_mend finds. */
pe_status pe_pictures_rows(const pe_data *data, const pe_session *session, int input, int64_t row,
                           int64_t count, int64_t slot, char *message);

/* The reason why the picture of a row cannot be decoded; PE_OK if it can. */
pe_status pe_pictures_fault(const pe_data *data, int64_t row, char *message);

#endif
