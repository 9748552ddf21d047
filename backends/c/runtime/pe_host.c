/* Memory and measurements from the operating system. */
#include "pe_host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Memory of this size or more starts at a multiple of it and is offered huge pages. */
#define PE_HUGE_PAGE ((size_t)2 << 20)

/* Largest size whose mapping, with its alignment, a size_t can count. */
#define PE_LARGEST (SIZE_MAX / 2 - PE_HUGE_PAGE)

static size_t mapped_bytes(size_t bytes) {
    return bytes < PE_HUGE_PAGE ? bytes + PE_ALIGN : bytes + PE_HUGE_PAGE;
}

/* The aligned place inside of a mapping; the mapping's address is kept by the caller. */
static unsigned char *aligned_in(unsigned char *mapping, size_t bytes) {
    const uintptr_t alignment = bytes < PE_HUGE_PAGE ? PE_ALIGN : PE_HUGE_PAGE;
    const uintptr_t address = (uintptr_t)mapping;
    return mapping + ((address + alignment - 1) / alignment * alignment - address);
}

static unsigned char *map(size_t bytes) {
    if (bytes > PE_LARGEST) {
        errno = ENOMEM;
        return NULL;
    }
    void *mapping =
        mmap(NULL, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (bytes >= PE_HUGE_PAGE) {
        (void)madvise(aligned_in(mapping, bytes), bytes, MADV_HUGEPAGE);
    }
#endif
    return mapping;
}

static void unmap(unsigned char *mapping, size_t bytes) {
    if (mapping) {
        munmap(mapping, mapped_bytes(bytes));
    }
}

/* A session with the mappings that it lives in. */
typedef struct host {
    pe_session session;
    unsigned char *params;
    unsigned char *arena;
} host;

pe_session *pe_open(const pe_program *program, int threads, char *message) {
    host *h = (host *)map(sizeof *h); /* mappings are aligned to a page */
    unsigned char *params = map(program->params_bytes);
    unsigned char *arena = map(program->arena_bytes);
    pe_status status = PE_ERROR_SYSTEM;
    if (!h || !params || !arena) {
        pe_fail(message, status, "cannot map %zu bytes of params and %zu bytes of arena: %s",
                program->params_bytes, program->arena_bytes, strerror(errno));
    } else {
        h->params = params;
        h->arena = arena;
        status = pe_init(&h->session, program, aligned_in(params, program->params_bytes),
                         aligned_in(arena, program->arena_bytes), threads);
        if (status == PE_OK) {
            return &h->session;
        }
        memcpy(message, h->session.message, PE_MESSAGE_BYTES);
    }
    unmap(params, program->params_bytes);
    unmap(arena, program->arena_bytes);
    unmap((unsigned char *)h, sizeof *h);
    return NULL;
}

void pe_shut(pe_session *session) {
    host *h = (host *)session;
    pe_close(session);
    unmap(h->params, session->program->params_bytes);
    unmap(h->arena, session->program->arena_bytes);
    unmap((unsigned char *)h, sizeof *h);
}

const char *pe_specification(const pe_program *program) { return program->specification; }

/* Whether a caller has memory of the right size for each of these tensors. */
static pe_status check_sizes(pe_session *session, const pe_tensor *tensors, int count,
                             const size_t *sizes, int size_count) {
    if (size_count != count) {
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
    const pe_entry *found = pe_find_entry(session->program, entry);
    if (!found) {
        return pe_fail(session->message, PE_ERROR_NAME, "program %s has no entry \"%s\"",
                       session->program->name, entry);
    }
    pe_status status =
        check_sizes(session, found->inputs, found->input_count, sizes->inputs, sizes->input_count);
    if (status == PE_OK) {
        status = check_sizes(session, found->outputs, found->output_count, sizes->outputs,
                             sizes->output_count);
    }
    return status == PE_OK ? pe_run(session, found, inputs, outputs) : status;
}

void pe_get_progress(const pe_session *session, int64_t *numbers) {
    const pe_progress *p = &session->progress;
    const pe_schedule *s = &session->schedule;
    int64_t rate, factor;
    memcpy(&rate, &s->rate, sizeof rate);
    memcpy(&factor, &s->factor, sizeof factor);
    const int64_t first[] = {p->steps,    p->updates, p->collected, p->seed, (int64_t)s->kind,
                             rate,        s->warmup,  s->total,     s->rows, s->batch,
                             s->shuffled, factor,     s->period};
    memcpy(numbers, first, sizeof first);
    memcpy(numbers + sizeof first / sizeof *first, s->milestones, sizeof s->milestones);
}

void pe_set_progress(pe_session *session, const int64_t *numbers) {
    const int64_t *n = numbers;
    double rate, factor;
    memcpy(&rate, &n[5], sizeof rate);
    memcpy(&factor, &n[11], sizeof factor);
    session->progress = (pe_progress){n[0], n[1], n[2], (uint32_t)n[3]};
    session->schedule = (pe_schedule){.kind = (pe_schedule_kind)n[4],
                                      .rate = rate,
                                      .warmup = n[6],
                                      .total = n[7],
                                      .rows = n[8],
                                      .batch = n[9],
                                      .shuffled = n[10] != 0,
                                      .factor = factor,
                                      .period = n[12]};
    memcpy(session->schedule.milestones, n + 13, sizeof session->schedule.milestones);
}

const char *pe_message(const pe_session *session) { return session->message; }

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
