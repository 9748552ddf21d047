/* Strict reader and writer of safetensors files, in constant memory and without allocation.
 *
 * The reader streams the header through a small buffer and visits one tensor after the other. It
 * refuses what the writers of this format never produce: tensors that do not follow each other
 * without gaps in the header's order (so they cannot overlap), sizes that disagree with dtype and
 * shape, a file longer or shorter than its header says, a header above PE_ST_HEADER_LIMIT.
 */
#ifndef PE_SAFETENSORS_H
#define PE_SAFETENSORS_H

#include <sys/types.h>

#include "pe.h"

_Static_assert(sizeof(off_t) == 8, "files may exceed 2 GiB: compile with -D_FILE_OFFSET_BITS=64");

#define PE_ST_HEADER_LIMIT ((uint64_t)16 << 20)
#define PE_ST_NAME_BYTES 512
#define PE_ST_PATH_BYTES 4096
#define PE_ST_TEXT_BYTES 64

/* A tensor of a file. `dtype` is the file's spelling; `offset` is from the start of the file. */
typedef struct pe_st_tensor {
    char name[PE_ST_NAME_BYTES];
    char dtype[16];
    int rank;
    int64_t shape[PE_MAX_RANK];
    uint64_t offset;
    uint64_t bytes;
} pe_st_tensor;

/* Is shown every tensor in order, and every pair of texts in `__metadata__` (cut off at
 * PE_ST_TEXT_BYTES) unless `text` is NULL. The first error ends the visit. */
typedef struct pe_st_visitor {
    pe_status (*tensor)(void *context, const pe_st_tensor *tensor, char *message);
    pe_status (*text)(void *context, const char *key, const char *value, char *message);
    void *context;
} pe_st_visitor;

/* Reads the header of an open file. */
pe_status pe_st_read(int file, const char *path, const pe_st_visitor *visitor, char *message);

/* Opens a file for reading; *file is its descriptor. */
pe_status pe_st_open(const char *path, int *file, char *message);

/* Reads exactly these bytes of the file. */
pe_status pe_st_read_at(int file, const char *path, uint64_t offset, void *data, size_t bytes,
                        char *message);

/* A file that is being written under another name. */
typedef struct pe_st_writer {
    int file;
    uint64_t data_start;
    const char *path;
    char target[PE_ST_PATH_BYTES]; /* the path, or what it is a link to */
    char partial[PE_ST_PATH_BYTES + 16];
} pe_st_writer;

/* Takes an empty partial file beside the path for this writer alone. A path that is there must be a
 * regular file, or a link to one, which stays a link. */
pe_status pe_st_take_place(pe_st_writer *writer, const char *path, char *message);

/* Whether a file could be written there now; leaves nothing behind. */
pe_status pe_st_try_place(const char *path, char *message);

/* A number of `__metadata__`, as text. */
typedef struct pe_st_number {
    const char *key;
    uint64_t value;
} pe_st_number;

/* What a file is to hold: numbers, and tensors that follow each other without gaps. With `lead` > 0
 * each tensor has a first dimension of that size more. */
typedef struct pe_st_content {
    const pe_tensor *tensors;
    const pe_st_number *numbers;
    int tensor_count, number_count;
    int64_t lead;
} pe_st_content;

/* Takes a place and writes the header; the data begin at writer->data_start. */
pe_status pe_st_create(pe_st_writer *writer, const char *path, const pe_st_content *content,
                       char *message);

/* Writes data at an offset from data_start. On an error the partial file is gone. */
pe_status pe_st_write_at(pe_st_writer *writer, uint64_t offset, const void *data, size_t bytes,
                         char *message);

/* Syncs the partial file and renames it to the target. On an error the partial file is gone. */
pe_status pe_st_commit(pe_st_writer *writer, char *message);

/* Removes the partial file. */
void pe_st_abandon(pe_st_writer *writer);

#endif
