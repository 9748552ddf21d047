/* Argument checks of public functions. */
#ifndef PE_ARGUMENTS_H
#define PE_ARGUMENTS_H

#include "pe.h"

/* PE_ERROR_MISMATCH, with the caller's message, if the caller was compiled with another pe.h. In
 * that case only the message may be written. */
pe_status pe_check_caller(const pe_caller *caller, size_t session_bytes);

/* PE_ERROR_ARGUMENT if the session is NULL or not open, or if `complete` is false: a required
 * argument is NULL. The message names the function. */
pe_status pe_check_arguments(pe_session *session, const char *function, bool complete);

/* The same for an entry, which must belong to the session's program. */
pe_status pe_check_entry(pe_session *session, const char *function, const pe_entry *entry);

#endif
