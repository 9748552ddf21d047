#include "pe_frozen.h"

#include "pe_memory.h"
#include "pe_text.h"

pe_status pe_frozen_start(pe_session *session) {
    const pe_program *program = session->program;
    session->frozen_memory = (pe_mapping){NULL, 0};
    session->frozen = program->frozen;
    if (!session->frozen && program->frozen_bytes) {
        session->frozen = pe_map(&session->frozen_memory, program->frozen_bytes);
        if (!session->frozen) {
            return pe_fail(session->message, PE_ERROR_SYSTEM,
                           "cannot map %zu bytes of frozen params: %s", program->frozen_bytes,
                           pe_reason(pe_map_error()));
        }
    }
    return PE_OK;
}

bool pe_frozen_map(pe_session *session, int file, uint64_t offset) {
    pe_mapping mapping;
    const unsigned char *frozen =
        offset % PE_ALIGN || session->program->frozen
            ? NULL
            : pe_map_file(&mapping, file, offset, session->program->frozen_bytes);
    if (frozen) {
        pe_unmap(&session->frozen_memory);
        session->frozen_memory = mapping;
        session->frozen = frozen;
        session->newer |= PE_FROZEN_HERE;
    }
    return frozen != NULL;
}

unsigned char *pe_frozen_place(pe_session *session, const pe_tensor *param) {
    if (session->program->frozen) {
        pe_fail(session->message, PE_ERROR_ARGUMENT,
                "param %s is frozen, and program %s has it compiled in: it cannot be replaced",
                param->name, session->program->name);
        return NULL;
    }
    if (!pe_map_writable(&session->frozen_memory)) {
        pe_fail(session->message, PE_ERROR_SYSTEM, "cannot write frozen param %s: %s", param->name,
                pe_reason(pe_map_error()));
        return NULL;
    }
    session->newer |= PE_FROZEN_HERE;
    unsigned char *begin = session->frozen_memory.address;
    return begin + (session->frozen - begin) + param->offset;
}

void pe_frozen_end(pe_session *session) { pe_unmap(&session->frozen_memory); }
