/* Adapters: the trained weights alone, as pe_export_weights writes them. */
#ifndef PE_ADAPTER_H
#define PE_ADAPTER_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Replaces all trained weights by those of a file; nothing changes if it does not match. */
pe_status pe_load_adapter(pe_session *session, const char *path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
