/* The data of a command: rows for the inputs of an entry, split into batches. docs/runner-data.md
 * lists the file formats.
 *
 * An input [B, ...] takes B rows per batch from an array [N, ...], an input of rank 0 one number
 * per batch from an array [N / B]. If inputs differ in B, their arrays hold whole batches, and
 * "row" means batch here. If a size varies, a batch or a row may be smaller than its memory, which
 * is padded (pe_data_size.h). Rows are read on demand, never a whole file. Controls (pe.h) are not
 * data.
 */
#ifndef PE_DATA_H
#define PE_DATA_H

#include "pe_safetensors.h"
#include "pe_texts.h"

#define PE_MAX_INPUTS 32

/* The rows of one input. */
typedef struct pe_column {
    int file;           /* one of the data's */
    uint64_t offset;    /* of the first row in the file; 0 without rows */
    int64_t rows;       /* first dimension of the array */
    const void *memory; /* rows in memory instead of a file, with an offset of 1; or NULL */
} pe_column;

typedef struct pe_pictures pe_pictures; /* pe_data_pictures.h */

typedef struct pe_data {
    const pe_program *program;
    const char *name;      /* of the entry */
    const pe_entry *entry; /* its variant for the last batch; initially the largest */
    const char *path;      /* from the command line */
    int file_count;
    int files[PE_MAX_INPUTS];
    pe_column columns[PE_MAX_INPUTS]; /* one for each input */
    pe_pictures *pictures;            /* rows decoded from pictures; or NULL */
    pe_texts texts;                   /* rows made from texts; empty if there are none */
    bool lenient;                     /* rows that cannot be decoded are left to pe_data_mend */
    int64_t rows;
    int64_t batch; /* rows of a batch, at least 1 */
    int64_t slots; /* rows that fit the entry's memory; equal to `batch` if that is fixed */
    int64_t count; /* rows of these with data; the others are padding */
    int64_t size;  /* the varying size of the last batch, or of all rows; 0 if none varies */
    bool whole;    /* inputs differ in their rows: each row is a batch */
    bool shuffled; /* shuffled in each epoch, by the seed (pe_row_order.h) */
    uint32_t seed;
} pe_data;

/* Opens the arrays of all inputs of an entry, and checks names, types and numbers of rows.
 * Arrays that only another entry of the program reads are skipped. `batch` is the number of rows
 * per batch if it may vary, or -1 for the maximum. `texts` describes how a .jsonl file becomes
 * rows of the entry's length, or is NULL. Call pe_data_close after an error too. */
pe_status pe_data_open(pe_data *data, const char *path, const pe_program *program, const char *name,
                       int64_t batch, const pe_row_form *texts, char *message);

/* Batches of an epoch; includes a short last one only if the program has a variant for it. */
int64_t pe_data_batches(const pe_data *data);

/* The row at a place of an epoch. */
int64_t pe_data_row(const pe_data *data, int64_t epoch, int64_t place);

/* Reads a batch of an epoch directly into the memory of the inputs of the fitting variant. If
 * the smallest variant is larger than the batch, the last row is repeated. */
pe_status pe_data_read(pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       char *message);

/* Reads one row into its slot of the batch in memory. */
pe_status pe_data_read_row(const pe_data *data, const pe_session *session, int64_t row,
                           int64_t slot, char *message);

void pe_data_close(pe_data *data);

#endif
