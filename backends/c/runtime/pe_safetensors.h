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

#define PE_ST_HEADER_LIMIT ((uint64_t)16 << 20)
#define PE_ST_NAME_BYTES 512
#define PE_ST_PATH_BYTES 4096

/* A tensor of a file. `dtype` is the file's spelling; `offset` is from the start of the file. */
typedef struct pe_st_tensor {
    char name[PE_ST_NAME_BYTES];
    char dtype[16];
    int rank;
    int64_t shape[PE_MAX_RANK];
    uint64_t offset;
    uint64_t bytes;
} pe_st_tensor;

typedef pe_status pe_st_visit(void *context, const pe_st_tensor *tensor, char *message);

/* Reads the header of an open file and visits every tensor in order; stops at the first error. */
pe_status pe_st_read(int file, const char *path, pe_st_visit *visit, void *context, char *message);

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
    char partial[PE_ST_PATH_BYTES];
} pe_st_writer;

/* Creates path.partial with a header for these tensors; with `lead` > 0 each has a first dimension
 * of that size more. Their data follow each other without gaps after writer->data_start. */
pe_status pe_st_create(pe_st_writer *writer, const char *path, const pe_tensor *tensors, int count,
                       int64_t lead, char *message);

/* Writes data at an offset from data_start. On an error the partial file is gone. */
pe_status pe_st_write_at(pe_st_writer *writer, uint64_t offset, const void *data, size_t bytes,
                         char *message);

/* Syncs the partial file and renames it to the path. On an error the partial file is gone. */
pe_status pe_st_commit(pe_st_writer *writer, char *message);

/* Removes the partial file. */
void pe_st_abandon(pe_st_writer *writer);

#endif
