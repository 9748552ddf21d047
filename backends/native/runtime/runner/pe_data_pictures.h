/* A folder of class folders with pictures, as rows: each picture is decoded when its row is read.
 *
 *     photos/cats/1.jpg  photos/cats/garden/2.png  photos/dogs/1.png
 *
 * Classes are the folders in the order of their names as bytes, and so are the files of each, those
 * of a folder within it where the folder's name stands. What begins with a dot, and files of other
 * endings than .jpg, .jpeg and .png, are passed over.
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
    int input, target;      /* of the entry; a target of -1 where it reads no labels */
    int64_t most;           /* pixels of a file */
    float numbers[3][256];  /* of each sample, by its channel */
    unsigned char *samples; /* of one picture */
};

/* The only input of more than two dimensions, where it holds pictures, f32 [B, C, H, W] or [B, H,
 * W, C] with 1 or 3 channels; else -1. */
int pe_find_pictures(const pe_entry *entry, pe_picture_shape *shape);

/* Whether a folder has folders. */
bool pe_has_folders(const char *path);

/* Lists the pictures of a folder; pe_drop_pictures is called after an error too. */
pe_status pe_list_pictures(const char *folder, pe_picture_list *list, char *message);
void pe_drop_pictures(pe_picture_list *list);

/* Opens a folder as the data's rows: pixels, and the number of each class where labels are read. */
pe_status pe_pictures_open(pe_data *data, const char *folder, char *message);
void pe_pictures_close(pe_data *data);

/* A sample p becomes (p / 255 - mean) / spread; `mean` and `spread` are texts with one number or
 * one for each channel, or NULL for 0 and 1. `megapixels` of -1 is 50. PE_ERROR_ARGUMENT where one
 * is given and the data are no pictures. */
pe_status pe_pictures_settle(pe_data *data, const char *mean, const char *spread,
                             int64_t megapixels, char *message);

/* Reads rows of an input into their slots. Where `data->lenient`, a picture that cannot be decoded
 * becomes NaN, which pe_data_mend finds. */
pe_status pe_pictures_rows(const pe_data *data, const pe_session *session, int input, int64_t row,
                           int64_t count, int64_t slot, char *message);

/* Why the picture of a row cannot be decoded; PE_OK where it can. */
pe_status pe_pictures_fault(const pe_data *data, int64_t row, char *message);

#endif
