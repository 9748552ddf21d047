/* Rows that cannot be trained on. */
#ifndef PE_DATA_BAD_H
#define PE_DATA_BAD_H

#include "pe_data.h"

/* The most rows that can be left out. */
#define PE_MAX_BAD_ROWS 1000

/* The rows that have been left out, each once. */
typedef struct pe_bad_rows {
    int64_t limit; /* -1: none is left out, and only indices are checked */
    int64_t count;
    int64_t rows[PE_MAX_BAD_ROWS];
    void (*notify)(int64_t row, const char *why); /* called for each */
} pe_bad_rows;

/* Puts others in the place of the rows of a batch in memory that hold a number which is not finite,
 * or an index outside its range: for each the next sound row of the epoch, wrapping around
 * after the last, so that the same data in the same order make the same batches. PE_ERROR_VALUE
 * beyond the limit. */
pe_status pe_data_mend(const pe_data *data, pe_session *session, int64_t epoch, int64_t batch,
                       pe_bad_rows *bad);

#endif
