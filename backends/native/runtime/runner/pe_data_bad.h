/* Rows that cannot be trained on. */
#ifndef PE_DATA_BAD_H
#define PE_DATA_BAD_H

#include "pe_data.h"

/* Maximum number of rows that can be skipped. */
#define PE_MAX_BAD_ROWS 1000

/* The skipped rows, each once. */
typedef struct pe_bad_rows {
    int64_t limit; /* -1: no row is skipped, and only indices are checked */
    int64_t count;
    int64_t rows[PE_MAX_BAD_ROWS];
    void (*notify)(int64_t row, const char *why); /* called for each */
} pe_bad_rows;

/* Replaces each row of a batch in memory that has a non-finite number or an index outside its
 * range. Its replacement is the next valid row of the epoch, wrapping around after the last, so
 * the same data in the same order give the same batches. PE_ERROR_VALUE beyond the limit. */
pe_status pe_data_mend(const pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       pe_bad_rows *bad);

#endif
