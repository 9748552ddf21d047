/* Sessions on a system with virtual memory: one mapping for params, one for the arena.
 *
 * The rules of pe.h on threads, errors and ownership apply here too. These functions suit callers
 * that do not know the runtime's structures and constants, such as Python's ctypes.
 */
#ifndef PE_HOST_H
#define PE_HOST_H

#include "pe_train.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The common name of the first instruction-set extension that the program needs and this
 * processor lacks; NULL if it has all. If one is missing, call no other function. */
const char *pe_cpu_lacks(void);

/* pe_open for languages that cannot call inline functions; the message is caller->message. A caller
 * that reads no field of a session may have 0 as its session_bytes. */
pe_session *pe_open_by(const pe_program *program, int threads, const pe_caller *caller);

/* Maps memory for a program and starts its session, which has a schedule. On failure returns
 * NULL, with a message of at most PE_MESSAGE_BYTES. */
static inline pe_session *pe_open(const pe_program *program, int threads, char *message) {
    const pe_caller caller = {PE_ABI, sizeof(pe_session), message, PE_MESSAGE_BYTES};
    return pe_open_by(program, threads, &caller);
}

/* Ends the session and gives its memory back. */
void pe_shut(pe_session *session);

/* The specification of a program. Callers compare it before they open a session, because the
 * memory of another program has other sizes. */
const char *pe_specification(const pe_program *program);

/* The sizes of the memory behind pe_run's pointers: one for each input, one for each output. */
typedef struct pe_sizes {
    const size_t *inputs;
    const size_t *outputs;
    int input_count;
    int output_count;
} pe_sizes;

/* Runs an entry by name like pe_run; fails if one of the sizes differs from the tensor's. */
pe_status pe_call(pe_session *session, const char *entry, const void *const *inputs,
                  void *const *outputs, const pe_sizes *sizes);

/* Copies the session's progress and schedule; all zeros if it has none. */
void pe_get_progress(const pe_session *session, pe_progress *progress, pe_schedule *schedule);
void pe_set_progress(pe_session *session, const pe_progress *progress, const pe_schedule *schedule);

/* Message of the last failed call. */
const char *pe_message(const pe_session *session);

/* Peak resident memory of this process, in bytes. */
long long pe_peak_rss_bytes(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
