/* Sessions: memory, entries and params. Files are pe_checkpoint.c's, threads pe_pool.c's. */
#include "pe.h"

#include <stdarg.h>
#include <string.h>

#include "pe_arguments.h"
#include "pe_frozen.h"
#include "pe_pool.h"
#include "pe_text.h"

_Static_assert(sizeof(pe_team) <= PE_TEAM_BYTES, "a session has too little memory for a team");

static pe_team *team_of(pe_session *session) { return (pe_team *)(void *)session->team; }

pe_status pe_fail(char *message, pe_status status, const char *format, ...) {
    if (!message || !format) {
        return status;
    }
    va_list arguments;
    va_start(arguments, format);
    pe_print_list(message, PE_MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    for (unsigned char *c = (unsigned char *)message; *c; c++) {
        /* names from files must not reach a terminal as control codes, including U+0080 to U+009F
         */
        const bool wide = *c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0;
        if (*c < ' ' || *c == 127 || wide) {
            c[wide] = '?';
            *c = '?';
        }
    }
    return status;
}

size_t pe_dtype_bytes(pe_dtype dtype) {
    static const size_t bytes[] = {[PE_F32] = 4,  [PE_I32] = 4, [PE_I64] = 8, [PE_BOOL] = 1,
                                   [PE_BF16] = 2, [PE_F16] = 2, [PE_I8] = 1,  [PE_U8] = 1};
    return (unsigned)dtype < sizeof bytes / sizeof *bytes ? bytes[dtype] : 0;
}

const char *pe_dtype_name(pe_dtype dtype) {
    static const char *const names[] = {[PE_F32] = "F32",   [PE_I32] = "I32",   [PE_I64] = "I64",
                                        [PE_BOOL] = "BOOL", [PE_BF16] = "BF16", [PE_F16] = "F16",
                                        [PE_I8] = "I8",     [PE_U8] = "U8"};
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "?";
}

size_t pe_tensor_bytes(const pe_tensor *tensor) {
    if (!tensor) {
        return 0;
    }
    size_t bytes = pe_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) {
        bytes *= (size_t)tensor->shape[i];
    }
    return bytes;
}

static bool misaligned(const void *memory) { return (uintptr_t)memory % PE_ALIGN != 0; }

/* Checks the arguments of a new session. */
static pe_status check_program(pe_session *session, const pe_program *program, const void *params,
                               const void *arena, int threads) {
    if (!program || threads < 1 || threads > PE_MOST_THREADS) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "a session needs a program and from 1 to %d threads, not %d",
                       PE_MOST_THREADS, threads);
    }
    if (misaligned(params) || misaligned(arena) || misaligned(session)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "session, params and arena must be aligned to %d bytes", PE_ALIGN);
    }
    if (program->abi != PE_ABI) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "the program was generated for interface %d of the runtime, which has %d; "
                       "compile both by one version of PockEngine",
                       program->abi, PE_ABI);
    }
    if ((!params && program->params_bytes) || (!arena && program->arena_bytes)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "program %s needs %zu bytes of params and %zu bytes of arena", program->name,
                       program->params_bytes, program->arena_bytes);
    }
    return PE_OK;
}

/* Initializes the fields of a new session. */
static void begin_session(pe_session *session, const pe_program *program, void *params,
                          void *arena) {
    session->program = program;
    session->params = params;
    session->arena = arena;
    session->progress = (pe_progress){0};
    session->schedule = NULL;
    session->size = 0;
    session->frozen_known = false;
    session->newer = PE_PARAMS_HERE | PE_FROZEN_HERE;
    session->accelerated = NULL;
    if (session->params) {
        memset(session->params, 0, program->params_bytes);
    }
    if (program->initial) {
        memcpy(session->params, program->initial, program->initial_bytes);
    }
}

pe_status pe_init_by(pe_session *session, const pe_program *program, void *params, void *arena,
                     int threads, const pe_caller *caller) {
    pe_status status = session ? pe_check_caller(caller, sizeof *session) : PE_ERROR_ARGUMENT;
    if (status != PE_OK) {
        return status;
    }
    session->message[0] = '\0';
    session->program = NULL; /* not open until all is done */
    status = check_program(session, program, params, arena, threads);
    if (status != PE_OK) {
        return status;
    }
    begin_session(session, program, params, arena);
    status = pe_frozen_start(session);
    if (status != PE_OK) {
        session->program = NULL;
        return status;
    }
    const int limit = program->accelerator ? 1 : program->max_threads;
    const int count = threads < limit ? threads : limit;
    const int error = pe_team_start(team_of(session), count);
    session->threads = team_of(session)->count;
    if (error) {
        pe_frozen_end(session);
        session->program = NULL;
        return pe_fail(session->message, PE_ERROR_SYSTEM, "cannot start %d threads: %s", count,
                       pe_reason(error));
    }
    status = program->accelerator ? program->accelerator->open(session) : PE_OK;
    if (status != PE_OK) {
        pe_close(session);
    }
    return status;
}

void pe_close(pe_session *session) {
    if (!session || !session->program) {
        return;
    }
    if (session->program->accelerator) {
        session->program->accelerator->close(session);
    }
    pe_team_stop(team_of(session));
    pe_frozen_end(session);
    session->program = NULL;
}

const pe_entry *pe_find_entry(const pe_program *program, const char *name) {
    for (int i = 0; program && name && i < program->entry_count; i++) {
        if (strcmp(program->entries[i].name, name) == 0) {
            return &program->entries[i];
        }
    }
    return NULL;
}

/* The size in an entry's name after `name` and '@'; -1 if it is not one of its variants. */
static int64_t variant_size(const char *entry, const char *name) {
    while (*name && *entry == *name) {
        entry++, name++;
    }
    if (*name || *entry != '@') {
        return -1;
    }
    int64_t size = 0;
    for (entry++; *entry >= '0' && *entry <= '9'; entry++) {
        size = size * 10 + (*entry - '0');
    }
    return size;
}

const pe_entry *pe_find_variant(const pe_program *program, const char *name, int64_t size) {
    const pe_size_range *sizes = program ? program->sizes : NULL;
    if (!sizes || !name) {
        return pe_find_entry(program, name);
    }
    int bucket = sizes->bucket_count - 1;
    while (size > 0 && bucket > 0 && sizes->buckets[bucket - 1] >= size) {
        bucket--;
    }
    for (int i = 0; i < program->entry_count; i++) {
        if (variant_size(program->entries[i].name, name) == sizes->buckets[bucket]) {
            return &program->entries[i];
        }
    }
    return NULL;
}

void *pe_tensor_data(const pe_session *session, const pe_tensor *tensor) {
    return session && session->program && tensor ? session->arena + tensor->offset : NULL;
}

/* A job's arguments, besides its worker. */
typedef struct run_argument {
    const pe_session *session;
    const pe_entry *entry;
} run_argument;

static void run_share(pe_worker *w, void *argument) {
    const run_argument *run = argument;
    const pe_session *session = run->session;
    run->entry->run(w, session->params, session->frozen, session->arena);
}

static void prepare_share(pe_worker *w, void *argument) {
    const pe_session *session = argument;
    session->program->prepare(w, session->params, session->frozen);
}

static pe_status run_entry(pe_session *session, const pe_entry *entry) {
    if (session->program->accelerator) {
        return session->program->accelerator->run(session, entry);
    }
    if (session->program->prepare && session->newer & PE_FROZEN_HERE) {
        pe_team_run(team_of(session), prepare_share, session);
        session->newer &= ~(unsigned)PE_FROZEN_HERE;
    }
    run_argument argument = {session, entry};
    pe_team_run(team_of(session), run_share, &argument);
    return PE_OK;
}

pe_status pe_run(pe_session *session, const pe_entry *entry, const void *const *inputs,
                 void *const *outputs) {
    pe_status status = pe_check_entry(session, "pe_run", entry);
    if (status != PE_OK) {
        return status;
    }
    for (int i = 0; inputs && i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (inputs[i]) {
            memcpy(pe_tensor_data(session, input), inputs[i], pe_tensor_bytes(input));
        }
    }
    status = pe_check_ranges(session, entry);
    status = status == PE_OK ? run_entry(session, entry) : status;
    if (status != PE_OK) {
        return status;
    }
    for (int i = 0; outputs && i < entry->output_count; i++) {
        const pe_tensor *output = &entry->outputs[i];
        if (outputs[i]) {
            memcpy(outputs[i], pe_tensor_data(session, output), pe_tensor_bytes(output));
        }
    }
    return PE_OK;
}

static pe_status no_entry(pe_session *session, const char *name) {
    return pe_fail(session->message, PE_ERROR_NAME, "program %s has no entry \"%s\"",
                   session->program->name, name);
}

bool pe_is_control(const pe_tensor *input) {
    return input && input->flags & (PE_RATE | PE_STEP | PE_SEED);
}

void pe_set_controls(pe_session *session, const pe_entry *entry, const pe_controls *controls) {
    const bool valid = controls && pe_check_entry(session, "pe_set_controls", entry) == PE_OK;
    for (int i = 0; valid && i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        if (pe_is_control(input)) {
            memcpy(pe_tensor_data(session, input),
                   input->flags & PE_RATE   ? (const void *)&controls->lr
                   : input->flags & PE_STEP ? (const void *)&controls->step
                                            : (const void *)&controls->seed,
                   4);
        }
    }
}

pe_status pe_train_step(pe_session *session, const void *const *inputs, const pe_controls *controls,
                        void *const *outputs) {
    const pe_status status = pe_check_arguments(session, "pe_train_step", controls != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_entry *entry = pe_find_variant(session->program, "train", session->size);
    if (!entry) {
        return no_entry(session, "train");
    }
    if (controls->step < 1) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "steps are counted from 1, not %ld",
                       (long)controls->step);
    }
    pe_set_controls(session, entry, controls);
    return pe_run(session, entry, inputs, outputs);
}

pe_status pe_predict(pe_session *session, const void *const *inputs, void *const *outputs) {
    const pe_status status = pe_check_arguments(session, "pe_predict", true);
    if (status != PE_OK) {
        return status;
    }
    const pe_entry *entry = pe_find_variant(session->program, "predict", session->size);
    return entry ? pe_run(session, entry, inputs, outputs) : no_entry(session, "predict");
}

pe_status pe_fetch_params(pe_session *session) {
    const pe_status status = pe_check_arguments(session, "pe_fetch_params", true);
    const bool there = status == PE_OK && session->newer & PE_PARAMS_THERE;
    return there ? session->program->accelerator->fetch(session) : status;
}

const void *pe_param_data(const pe_session *session, const pe_tensor *param) {
    if (!session || !session->program || !param) {
        return NULL;
    }
    return (param->flags & PE_WRITTEN ? session->params : session->frozen) + param->offset;
}

/* Finds a param and checks the size that the caller has for it. */
static pe_status find_param(pe_session *session, const char *name, const void *data, size_t bytes,
                            const pe_tensor **found) {
    const pe_status status = pe_check_arguments(session, "a copy of a param", name && data);
    if (status != PE_OK) {
        return status;
    }
    const pe_program *program = session->program;
    for (int i = 0; i < program->param_count; i++) {
        const pe_tensor *param = &program->params[i];
        if (strcmp(param->name, name) == 0) {
            const size_t size = pe_tensor_bytes(param);
            *found = param;
            return bytes == size ? PE_OK
                                 : pe_fail(session->message, PE_ERROR_ARGUMENT,
                                           "param %s has %zu bytes, not %zu", name, size, bytes);
        }
    }
    return pe_fail(session->message, PE_ERROR_NAME, "program %s has no param \"%s\"", program->name,
                   name);
}

pe_status pe_get_param(pe_session *session, const char *name, void *data, size_t bytes) {
    const pe_tensor *param;
    pe_status status = find_param(session, name, data, bytes, &param);
    if (status == PE_OK && param->flags & PE_WRITTEN) {
        status = pe_fetch_params(session);
    }
    if (status == PE_OK) {
        memcpy(data, pe_param_data(session, param), bytes);
    }
    return status;
}

pe_status pe_set_param(pe_session *session, const char *name, const void *data, size_t bytes) {
    const pe_tensor *param;
    pe_status status = find_param(session, name, data, bytes, &param);
    status = status == PE_OK ? pe_fetch_params(session) : status;
    if (status != PE_OK) {
        return status;
    }
    const bool written = (param->flags & PE_WRITTEN) != 0;
    unsigned char *place =
        written ? session->params + param->offset : pe_frozen_place(session, param);
    if (!place) {
        return PE_ERROR_ARGUMENT;
    }
    memcpy(place, data, bytes);
    session->newer |= written ? PE_PARAMS_HERE : PE_FROZEN_HERE;
    session->frozen_known = session->frozen_known && written;
    return PE_OK;
}
