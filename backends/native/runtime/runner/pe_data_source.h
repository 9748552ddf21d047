/* Arrays in files of data; private to pe_data*.c. */
#ifndef PE_DATA_SOURCE_H
#define PE_DATA_SOURCE_H

#include "pe_data.h"

/* The array of a .npy file, or of a part of a file from `begin` to `end`. The name of the tensor is
 * unchanged; an unsupported dtype keeps NumPy's spelling. */
pe_status pe_npy_read(int file, const char *path, uint64_t begin, uint64_t end,
                      pe_st_tensor *tensor, char *message);

/* Visits the arrays of a .npz file, which are stored and not deflated. */
pe_status pe_npz_read(int file, const char *path, const pe_st_visitor *visitor, char *message);

/* Whether a path names a file of texts. */
bool pe_is_texts(const char *path);

/* Uses the rows of a file of texts; `form` is NULL without a tokenizer. */
pe_status pe_texts_open(pe_data *data, const char *path, const pe_row_form *form, char *message);

#endif
