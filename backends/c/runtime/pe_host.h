/* Sessions on a system with virtual memory: one mapping for params, one for the arena. */
#ifndef PE_HOST_H
#define PE_HOST_H

#include "pe.h"

/* Maps memory for the program that is linked in and starts its session; NULL with a message of at
 * most PE_MESSAGE_BYTES when that fails. */
pe_session *pe_open(int threads, char *message);

/* Ends the session and gives its memory back. */
void pe_shut(pe_session *session);

/* Runs an entry by name; arguments as pe_run's. */
pe_status pe_call(pe_session *session, const char *entry, const void *const *inputs,
                  void *const *outputs);

/* What went wrong in the last call that failed. */
const char *pe_message(const pe_session *session);

/* Largest resident size that this process has had, in bytes. */
long long pe_peak_rss_bytes(void);

#endif
