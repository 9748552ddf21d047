/* Memory and measurements from the operating system. */
#include "pe_host.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pe_arguments.h"
#include "pe_memory.h"
#include "pe_text.h"

#ifndef __wasi__
#include <sys/resource.h>
#endif

/* A session with its mappings. */
typedef struct host {
    pe_session session;
    pe_schedule schedule;
    pe_mapping self;
    pe_mapping params;
    pe_mapping arena;
} host;

static void give_back(host *h) {
    pe_mapping self = h->self;
    pe_unmap(&h->params);
    pe_unmap(&h->arena);
    pe_unmap(&self);
}

pe_session *pe_open_by(const pe_program *program, int threads, const pe_caller *caller) {
    const size_t known = caller ? caller->session_bytes : 0; /* 0: the caller reads no field */
    if (pe_check_caller(caller, known ? sizeof(pe_session) : 0) != PE_OK) {
        return NULL;
    }
    char *message = caller->message;
    pe_mapping self;
    const char *lacking = pe_cpu_lacks();
    if (lacking || !program) {
        pe_fail(message, PE_ERROR_ARGUMENT, "%s",
                lacking ? "this processor lacks an extension that the program was compiled for"
                        : "pe_open was given no program");
        return NULL;
    }
    host *h = (host *)(void *)pe_map(&self, sizeof *h);
    if (!h) {
        pe_fail(message, PE_ERROR_SYSTEM, "cannot map a session: %s", pe_reason(pe_map_error()));
        return NULL;
    }
    h->self = self;
    unsigned char *params = pe_map(&h->params, program->params_bytes);
    unsigned char *arena = params ? pe_map(&h->arena, program->arena_bytes) : NULL;
    if (!arena) {
        pe_fail(message, PE_ERROR_SYSTEM,
                "cannot map %zu bytes of params and %zu bytes of arena: %s", program->params_bytes,
                program->arena_bytes, pe_reason(pe_map_error()));
    } else if (pe_init(&h->session, program, params, arena, threads) == PE_OK) {
        h->session.schedule = &h->schedule;
        return &h->session;
    } else if (message) {
        memcpy(message, h->session.message, PE_MESSAGE_BYTES);
    }
    give_back(h);
    return NULL;
}

void pe_shut(pe_session *session) {
    if (session) {
        pe_close(session);
        give_back((host *)session);
    }
}

const char *pe_specification(const pe_program *program) {
    return program ? program->specification : NULL;
}

/* Whether a caller has memory of the right size for each of these tensors. */
static pe_status check_sizes(pe_session *session, const pe_tensor *tensors, int count,
                             const size_t *sizes, int size_count) {
    if (size_count != count || (!sizes && count)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "%d tensors are wanted, not %d", count,
                       size_count);
    }
    for (int i = 0; i < count; i++) {
        const size_t bytes = pe_tensor_bytes(&tensors[i]);
        if (sizes[i] != bytes) {
            return pe_fail(session->message, PE_ERROR_ARGUMENT, "tensor %s has %zu bytes, not %zu",
                           tensors[i].name, bytes, sizes[i]);
        }
    }
    return PE_OK;
}

pe_status pe_call(pe_session *session, const char *entry, const void *const *inputs,
                  void *const *outputs, const pe_sizes *sizes) {
    pe_status status = pe_check_arguments(session, "pe_call", entry && sizes);
    if (status != PE_OK) {
        return status;
    }
    const pe_entry *found = pe_find_entry(session->program, entry);
    if (!found) {
        return pe_fail(session->message, PE_ERROR_NAME, "program %s has no entry \"%s\"",
                       session->program->name, entry);
    }
    status =
        check_sizes(session, found->inputs, found->input_count, sizes->inputs, sizes->input_count);
    if (status == PE_OK) {
        status = check_sizes(session, found->outputs, found->output_count, sizes->outputs,
                             sizes->output_count);
    }
    return status == PE_OK ? pe_run(session, found, inputs, outputs) : status;
}

void pe_get_progress(const pe_session *session, pe_progress *progress, pe_schedule *schedule) {
    if (session && progress && schedule) {
        *progress = session->progress;
        *schedule = session->schedule ? *session->schedule : (pe_schedule){0};
    }
}

void pe_set_progress(pe_session *session, const pe_progress *progress,
                     const pe_schedule *schedule) {
    if (session && progress && schedule) {
        session->progress = *progress;
        if (session->schedule) {
            *session->schedule = *schedule;
        }
    }
}

const char *pe_message(const pe_session *session) {
    return session ? session->message : "the session is NULL";
}

#ifdef __wasi__

/* Linear memory never shrinks. */
long long pe_peak_rss_bytes(void) { return (long long)__builtin_wasm_memory_size(0) << 16; }

#else

/* VmHWM of /proc/self/status in bytes, or -1. Linux's getrusage is no substitute: a process starts
 * with the peak of the one that forked it. */
static long long peak_from_proc(void) {
    char text[4096];
    const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, "VmHWM:");
    return line ? strtoll(line + strlen("VmHWM:"), NULL, 10) * 1024 : -1;
}

long long pe_peak_rss_bytes(void) {
    const long long peak = peak_from_proc();
    struct rusage usage;
    if (peak >= 0 || getrusage(RUSAGE_SELF, &usage) != 0) {
        return peak;
    }
#ifdef __APPLE__
    return usage.ru_maxrss;
#else
    return (long long)usage.ru_maxrss * 1024;
#endif
}

#endif
