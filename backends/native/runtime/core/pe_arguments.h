/* Argument checks of public functions. */
#ifndef PE_ARGUMENTS_H
#define PE_ARGUMENTS_H

#include "pe.h"

/* PE_ERROR_MISMATCH, with the caller's message, where the caller was compiled with another pe.h;
 * nothing but the message may be written then. */
pe_status pe_check_caller(const pe_caller *caller, size_t session_bytes);

/* PE_ERROR_ARGUMENT for a session that is NULL or not open, and where `given` is false: something
 * that the function needs is NULL. The message names the function. */
pe_status pe_check_arguments(pe_session *session, const char *function, bool given);

/* The same of an entry, which must be one of the session's program. */
pe_status pe_check_entry(pe_session *session, const char *function, const pe_entry *entry);

#endif
