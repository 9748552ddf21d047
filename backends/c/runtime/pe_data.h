/* A data file: batches for the inputs of an entry.
 *
 * A safetensors file with one tensor for each input, of the input's dtype and of its shape with one
 * leading dimension more, the number of batches, equal for all. Controls (pe.h) are no data.
 */
#ifndef PE_DATA_H
#define PE_DATA_H

#include "pe_safetensors.h"

#define PE_MAX_INPUTS 32

typedef struct pe_data {
    const pe_entry *entry;
    const char *path;
    int file;
    int64_t batches;
    uint64_t offsets[PE_MAX_INPUTS]; /* in the file, of each input's first batch; 0 if absent */
} pe_data;

/* Opens a data file and checks it against the entry's inputs. */
pe_status pe_data_open(pe_data *data, const char *path, const pe_entry *entry, char *message);

/* Reads batch `index` (modulo the number of batches) straight into the inputs' memory. */
pe_status pe_data_read(const pe_data *data, const pe_session *session, int64_t index,
                       char *message);

void pe_data_close(pe_data *data);

#endif
