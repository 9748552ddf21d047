/* The memory of params that no entry writes: mapped from the weights file, or compiled in. */
#ifndef PE_FROZEN_H
#define PE_FROZEN_H

#include "pe.h"

/* Begins with the program's own, or with zeros. */
pe_status pe_frozen_start(pe_session *session);

/* Reads the frozen params where they are in a file: their memory is the file's from `offset` on. An
 * offset that is not aligned, or a file that cannot be mapped, is false, and nothing is changed. */
bool pe_frozen_map(pe_session *session, int file, uint64_t offset);

/* Where a frozen param may be written: in memory of the session's own, never in the file. NULL,
 * with a message, where the program has them compiled in. */
unsigned char *pe_frozen_place(pe_session *session, const pe_tensor *param);

/* Gives the memory back. */
void pe_frozen_end(pe_session *session);

#endif
