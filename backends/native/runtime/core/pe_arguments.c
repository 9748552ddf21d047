#include "pe_arguments.h"

#include "pe_text.h"

pe_status pe_check_caller(const pe_caller *caller, size_t session_bytes) {
    if (!caller) {
        return PE_ERROR_ARGUMENT;
    }
    if (caller->abi != PE_ABI || caller->session_bytes != session_bytes) {
        if (caller->message) {
            pe_print(caller->message, caller->message_bytes,
                     "the caller was compiled for interface %d of the runtime with sessions of %zu "
                     "bytes, and the library has interface %d with sessions of %zu; compile the "
                     "caller with the headers that lie beside the library",
                     caller->abi, caller->session_bytes, PE_ABI, session_bytes);
        }
        return PE_ERROR_MISMATCH;
    }
    if (caller->message && caller->message_bytes < PE_MESSAGE_BYTES) {
        pe_print(caller->message, caller->message_bytes, "a message needs %d bytes, not %zu",
                 PE_MESSAGE_BYTES, caller->message_bytes);
        return PE_ERROR_ARGUMENT;
    }
    return PE_OK;
}

pe_status pe_check_arguments(pe_session *session, const char *function, bool complete) {
    if (!session) {
        return PE_ERROR_ARGUMENT;
    }
    if (!session->program) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "%s: the session is not open; call pe_init first", function);
    }
    return complete ? PE_OK
                    : pe_fail(session->message, PE_ERROR_ARGUMENT,
                              "%s was given NULL in place of what it needs", function);
}

pe_status pe_check_entry(pe_session *session, const char *function, const pe_entry *entry) {
    pe_status status = pe_check_arguments(session, function, entry != NULL);
    if (status != PE_OK) {
        return status;
    }
    for (int i = 0; i < session->program->entry_count; i++) {
        if (entry == &session->program->entries[i]) {
            return PE_OK;
        }
    }
    return pe_fail(session->message, PE_ERROR_ARGUMENT, "%s was given an entry of another program",
                   function);
}
