/* Strict reader and writer of safetensors files, in constant memory and without allocation.
 *
 * The reader streams the header through a small buffer and visits the tensors one by one. It
 * rejects files that no writer of this format produces: tensors with gaps or out of the header's
 * order (so they cannot overlap), sizes that disagree with dtype and shape, a file longer or
 * shorter than its header says, a header above PE_ST_HEADER_LIMIT.
 */
#ifndef PE_SAFETENSORS_H
#define PE_SAFETENSORS_H

#include <sys/types.h>

#include "pe.h"

_Static_assert(sizeof(off_t) == 8, "files may exceed 2 GiB: compile with -D_FILE_OFFSET_BITS=64");

#define PE_ST_HEADER_LIMIT ((uint64_t)16 << 20)
#define PE_ST_NAME_BYTES 512
#define PE_ST_PATH_BYTES 4096
#define PE_ST_TEXT_BYTES 80
#define PE_ST_PREFIX 8 /* bytes of the header's length, at the start of a file */

/* The start of a file with checksums, after its header's length. 8 hexadecimal digits of the
 * header follow (of its length and itself, with '0' in their own place), then PE_ST_SUMS, then 8
 * digits for each tensor. */
#define PE_ST_SEAL "{\"__metadata__\":{\"pockengine.header\":\""
#define PE_ST_SUMS "\",\"pockengine.tensors\":\""
#define PE_ST_DIGITS 8
#define PE_ST_SEAL_AT (PE_ST_PREFIX + sizeof PE_ST_SEAL - 1)
#define PE_ST_SUMS_AT (PE_ST_SEAL_AT + PE_ST_DIGITS + sizeof PE_ST_SUMS - 1)

/* A tensor of a file. `dtype` is the file's spelling; `offset` is from the start of the file. */
typedef struct pe_st_tensor {
    char name[PE_ST_NAME_BYTES];
    char dtype[16];
    int rank;
    int64_t shape[PE_MAX_RANK];
    uint64_t offset;
    uint64_t bytes;
} pe_st_tensor;

/* Called with every tensor in order, and, unless `text` is NULL, with every pair of texts in
 * `__metadata__` (cut off at PE_ST_TEXT_BYTES). The first error ends the visit. */
typedef struct pe_st_visitor {
    pe_status (*tensor)(void *context, const pe_st_tensor *tensor, char *message);
    pe_status (*text)(void *context, const char *key, const char *value, char *message);
    void *context;
} pe_st_visitor;

/* Reads the header of an open file. */
pe_status pe_st_read(int file, const char *path, const pe_st_visitor *visitor, char *message);

/* Opens a file for reading; *file is its descriptor. */
pe_status pe_st_open(const char *path, int *file, char *message);

/* Checks the checksums of an open file: its header's, and those of all tensors. *sealed is
 * whether it has any; a file without checksums is valid. */
pe_status pe_st_verify(int file, const char *path, bool *sealed, char *message);

/* Size of an open file. */
pe_status pe_st_size(int file, const char *path, uint64_t *bytes, char *message);

/* Reads exactly these bytes of the file. */
pe_status pe_st_read_at(int file, const char *path, uint64_t offset, void *data, size_t bytes,
                        char *message);

/* Extends a CRC-32 by these bytes of the file. */
pe_status pe_st_sum(int file, const char *path, uint64_t at, uint64_t bytes, uint32_t *crc,
                    char *message);

/* A file that is being written under a temporary name. */
typedef struct pe_st_writer {
    int file;
    uint64_t data_start;
    const char *path;
    char partial[PE_ST_PATH_BYTES + 16];
} pe_st_writer;

/* Creates or takes over an empty partial file next to the path, for this writer only. An
 * existing path must be a regular file, or a link, which is itself replaced: its target is
 * unchanged. */
pe_status pe_st_take_place(pe_st_writer *writer, const char *path, char *message);

/* Whether a file of this size could be written there now; leaves no file. */
pe_status pe_st_try_place(const char *path, uint64_t bytes, char *message);

/* A text of `__metadata__`. */
typedef struct pe_st_text {
    const char *key;
    const char *value;
} pe_st_text;

/* Content of a file: texts, and tensors without gaps between them. With `batches` > 0 the tensors
 * are results of that many batches: a first dimension of `batch` becomes `rows`, and any other
 * tensor gains a first dimension of `batches`. With a `session`, whose params the tensors are, the
 * file begins with checksums. */
typedef struct pe_st_content {
    const pe_tensor *tensors;
    int tensor_count;
    bool (*takes)(const pe_tensor *tensor);       /* which of the tensors; NULL stands for all */
    pe_tensor (*shaped)(const pe_tensor *tensor); /* the shape in the file; NULL: as it is */
    const pe_st_text *texts;
    int text_count;
    int64_t batches, batch, rows;
    const pe_session *session;
} pe_st_content;

/* Whether the file holds this tensor by rows, not by batches. */
bool pe_st_has_rows(const pe_st_content *content, int tensor);

/* Whether the file holds this tensor. */
bool pe_st_takes(const pe_st_content *content, int tensor);

/* Size of the whole file. */
uint64_t pe_st_file_bytes(const pe_st_content *content);

/* Creates the partial file and writes the header; the data start at writer->data_start. */
pe_status pe_st_create(pe_st_writer *writer, const char *path, const pe_st_content *content,
                       char *message);

/* Writes data at an offset from data_start. On an error the partial file is removed. */
pe_status pe_st_write_at(pe_st_writer *writer, uint64_t offset, const void *data, size_t bytes,
                         char *message);

/* Syncs the partial file and renames it to the path. On an error the partial file is removed. */
pe_status pe_st_commit(pe_st_writer *writer, char *message);

/* Removes the partial file. */
void pe_st_abandon(pe_st_writer *writer);

#endif
