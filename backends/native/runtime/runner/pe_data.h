/* The data of a command: rows for the inputs of an entry, cut into batches. docs/runner-data.md
 * lists the file formats.
 *
 * An input [B, ...] takes B rows a batch from an array [N, ...], an input of rank 0 one number a
 * batch from an array [N / B]. Where inputs differ in B, their arrays hold whole batches, and what
 * is called a row here is a batch. Where a size varies, a batch or a row may be smaller than its
 * memory, which is padded (pe_data_size.h). Rows are read on demand, never a whole file.
 * Controls (pe.h) are no data.
 */
#ifndef PE_DATA_H
#define PE_DATA_H

#include "pe_safetensors.h"
#include "pe_texts.h"

#define PE_MAX_INPUTS 32

/* The rows of one input. */
typedef struct pe_column {
    int file;           /* one of the data's */
    uint64_t offset;    /* in the file, of the first row; 0 where there are no rows */
    int64_t rows;       /* first dimension of the array */
    const void *memory; /* rows in memory instead of a file, with an offset of 1; or NULL */
} pe_column;

typedef struct pe_pictures pe_pictures; /* pe_data_pictures.h */

typedef struct pe_data {
    const pe_program *program;
    const char *name;      /* of the entry */
    const pe_entry *entry; /* its variant that the last batch was read for; the largest at first */
    const char *path;      /* from the command line */
    int file_count;
    int files[PE_MAX_INPUTS];
    pe_column columns[PE_MAX_INPUTS]; /* one for each input */
    pe_pictures *pictures;            /* rows decoded from pictures; or NULL */
    pe_texts texts;                   /* rows made from texts; empty if there are none */
    bool lenient;                     /* rows that cannot be decoded are left to pe_data_mend */
    int64_t rows;
    int64_t batch; /* rows of a batch, at least 1 */
    int64_t slots; /* rows that the entry has memory for: of a fixed batch as many */
    int64_t count; /* of these with data, the rest being padded */
    int64_t size;  /* that varies: of the last batch, or of all rows; 0 where none does */
    bool whole;    /* inputs differ in their rows: each row is a batch */
    bool shuffled; /* each epoch has an order of its own, by the seed (pe_row_order.h) */
    uint32_t seed;
} pe_data;

/* Opens the arrays of all inputs of an entry, and checks names, types and numbers of rows. Arrays
 * that only another entry of the program reads are skipped. `batch` is the rows of a batch where
 * they may vary, or -1 for the most. `texts` is how a .jsonl file becomes rows of the length that
 * the entry takes, or NULL. pe_data_close is called after an error too. */
pe_status pe_data_open(pe_data *data, const char *path, const pe_program *program, const char *name,
                       int64_t batch, const pe_row_form *texts, char *message);

/* Batches of an epoch; a short last one only where the program has a variant for it. */
int64_t pe_data_batches(const pe_data *data);

/* The row at a place of an epoch. */
int64_t pe_data_row(const pe_data *data, int64_t epoch, int64_t place);

/* Reads a batch of an epoch straight into the inputs' memory, of the variant that fits. The last
 * row is repeated to fill a batch if no variant is as small. */
pe_status pe_data_read(pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       char *message);

/* Reads one row into its place of the batch in memory. */
pe_status pe_data_read_row(const pe_data *data, const pe_session *session, int64_t row,
                           int64_t slot, char *message);

void pe_data_close(pe_data *data);

#endif
