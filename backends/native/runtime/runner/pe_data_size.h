/* Data of a size that varies (pe_size_range): its checks, its padding to the program's variants,
 * and the cropping of results. */
#ifndef PE_DATA_SIZE_H
#define PE_DATA_SIZE_H

#include "pe_data.h"

/* The row of the program's table for an input, or NULL. */
const pe_size_axis *pe_find_axis(const pe_program *program, const char *input);

/* Whether the size that varies is the rows of a batch. */
bool pe_batch_varies(const pe_program *program);

/* Sets the rows of a batch; -1 selects the entry's maximum. */
pe_status pe_settle_batch(pe_data *data, int64_t rows, char *message);

/* Selects the variant for a batch when `left` rows of data remain: sets data->entry, slots and
 * count. */
void pe_take_variant(pe_data *data, pe_session *session, int64_t left);

/* Bytes of a row in the file, which lacks the padding of memory. */
size_t pe_row_bytes(const pe_data *data, int input);

/* Pads a row that was read to its slot in the file's form. */
void pe_pad_row(const pe_data *data, const pe_session *session, int input, int64_t slot);

/* Pads the slots of a batch after its rows. */
void pe_pad_batch(const pe_data *data, const pe_session *session, int input);

/* The dimension of an output that varies, or -1. */
int pe_varying_axis(const pe_data *data, int output);

/* Cuts the padding off an output in memory; its dimension then has data->size. */
void pe_cut_output(const pe_data *data, const pe_session *session, int output, int axis);

#endif
