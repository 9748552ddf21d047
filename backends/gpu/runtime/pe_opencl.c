/* Sessions on OpenCL: a device, its buffers, the built kernels, and steps as launches in order. */
#include "pe_opencl.h"

#include <stdlib.h>
#include <string.h>

#include "pe_opencl_driver.h"

/* Constants of the OpenCL API, and limits on the items read from its lists. */
enum {
    KIND_GPU = 4,
    READ_WRITE = 1,
    MOST_OF_BUFFER = 0x1010,
    MEMORY_BYTES = 0x101F,
    DEVICE_NAME = 0x102B,
    BUILD_LOG = 0x1183,
    MOST_ITEMS = 0x11B0,
    PLATFORMS = 8,
    NAME_BYTES = 192,
};

static const pe_opencl_bits KIND_ANY = 0xFFFFFFFF;

/* A session's OpenCL objects, with a kernel for each launch. */
typedef struct opencl {
    pe_opencl_driver driver;
    void *device, *context, *queue, *program;
    char name[NAME_BYTES];
    void *memories[PE_GPU_MEMORIES]; /* NULL for an empty memory */
    void **kernels;
} opencl;

/* Calls a driver function; returns from the caller if it fails. */
#define TRY(session, name, ...)                                                                    \
    do {                                                                                           \
        const int error_ = opencl_of(session)->driver.name(__VA_ARGS__);                           \
        if (error_) {                                                                              \
            return pe_opencl_fail(#name, error_, (session)->message);                              \
        }                                                                                          \
    } while (0)

/* As TRY, for a function that creates an object. */
#define MAKE(session, made, name, ...)                                                             \
    do {                                                                                           \
        int error_ = 0;                                                                            \
        (made) = opencl_of(session)->driver.name(__VA_ARGS__, &error_);                            \
        if (error_) {                                                                              \
            (made) = NULL;                                                                         \
            return pe_opencl_fail(#name, error_, (session)->message);                              \
        }                                                                                          \
    } while (0)

static opencl *opencl_of(const pe_session *session) { return session->accelerated; }

/* Finds the first device of a kind on any platform; the device stays NULL if there is none. */
static pe_status find_kind(pe_session *session, pe_opencl_bits kind) {
    opencl *c = opencl_of(session);
    void *platforms[PLATFORMS];
    unsigned count = 0;
    TRY(session, platforms, PLATFORMS, platforms, &count);
    for (unsigned i = 0; !c->device && i < count && i < PLATFORMS; i++) {
        void *device = NULL;
        const int error = c->driver.devices(platforms[i], kind, 1, &device, NULL);
        c->device = error ? NULL : device; /* one failing driver does not hide another's devices */
    }
    return PE_OK;
}

/* Opens the first GPU, else the first device of any kind. */
static pe_status open_device(pe_session *session) {
    opencl *c = opencl_of(session);
    pe_status status = find_kind(session, KIND_GPU);
    status = status == PE_OK && !c->device ? find_kind(session, KIND_ANY) : status;
    if (status != PE_OK) {
        return status;
    }
    if (!c->device) {
        return pe_fail(session->message, PE_ERROR_SYSTEM,
                       "this machine's OpenCL has no device: see what clinfo lists, install the "
                       "GPU's driver, or compile for the backend c");
    }
    TRY(session, device_info, c->device, DEVICE_NAME, sizeof c->name - 1, c->name, NULL);
    MAKE(session, c->context, context_make, NULL, 1, &c->device, NULL, NULL);
    MAKE(session, c->queue, queue_make, c->context, c->device, 0);
    return PE_OK;
}

/* Checks that the memories fit: a driver may allocate a buffer only when it is first written. */
static pe_status check_memory(pe_session *session) {
    opencl *c = opencl_of(session);
    uint64_t total = 0, most = 0, bytes = 0;
    bool fits = true;
    TRY(session, device_info, c->device, MEMORY_BYTES, sizeof total, &total, NULL);
    TRY(session, device_info, c->device, MOST_OF_BUFFER, sizeof most, &most, NULL);
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        const uint64_t size = pe_gpu_bytes(session, (pe_gpu_memory)i);
        fits = fits && size <= most;
        bytes += size;
    }
    if (fits && bytes <= total) {
        return PE_OK;
    }
    const uint64_t kept = bytes - pe_gpu_bytes(session, PE_GPU_ARENA);
    const uint64_t room = kept < total ? total - kept : 0;
    char has[PE_MESSAGE_BYTES];
    pe_fail(has, PE_OK, "%s has %zu, of which a buffer takes %zu at most", c->name, (size_t)total,
            (size_t)most);
    return pe_gpu_fail_memory(session, has, (size_t)(room < most ? room : most));
}

static pe_status take_memory(pe_session *session) {
    opencl *c = opencl_of(session);
    pe_status status = check_memory(session);
    for (int i = 0; status == PE_OK && i < PE_GPU_MEMORIES; i++) {
        const size_t bytes = pe_gpu_bytes(session, (pe_gpu_memory)i);
        if (bytes) {
            MAKE(session, c->memories[i], memory_make, c->context, READ_WRITE, bytes, NULL);
        }
    }
    return status;
}

/* Fails with the first line of the log that mentions an error, or with the first line. */
static pe_status fail_build(pe_session *session, int error) {
    const opencl *c = opencl_of(session);
    size_t bytes = 0;
    c->driver.program_log(c->program, c->device, BUILD_LOG, 0, NULL, &bytes);
    char *log = calloc(1, bytes + 1);
    if (log) {
        c->driver.program_log(c->program, c->device, BUILD_LOG, bytes, log, NULL);
    }
    char *line = strstr(log ? log : "", "error");
    while (line && line > log && line[-1] != '\n') {
        line--;
    }
    line = line ? line : log;
    const size_t length = line ? strcspn(line, "\n") : 0;
    pe_fail(session->message, PE_ERROR_MISMATCH,
            "%s does not build the kernels of program %s (error %d): %.*s: update its driver, or "
            "compile for the backend c",
            c->name, session->program->name, error, (int)(length < 256 ? length : 256),
            length ? line : "its log is empty");
    free(log);
    return PE_ERROR_MISMATCH;
}

static pe_status build(pe_session *session) {
    opencl *c = opencl_of(session);
    const char *text = (const char *)pe_gpu_code_of(session)->image->code;
    MAKE(session, c->program, program_make, c->context, 1, &text, NULL);
    const int error =
        c->driver.program_build(c->program, 1, &c->device, "-cl-std=CL1.2 -w", NULL, NULL);
    return error ? fail_build(session, error) : PE_OK;
}

/* Creates a launch's kernel and sets its arguments: a buffer and an offset for each place. */
static pe_status make_kernel(pe_session *session, int number) {
    opencl *c = opencl_of(session);
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_gpu_launch *launch = &code->launches[number];
    size_t most = 0;
    MAKE(session, c->kernels[number], kernel_make, c->program, launch->function);
    void *kernel = c->kernels[number];
    TRY(session, kernel_group, kernel, c->device, MOST_ITEMS, sizeof most, &most, NULL);
    if ((size_t)launch->items > most) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s runs groups of %zu items of %s at most, and %d are launched: compile "
                       "for the backend c",
                       c->name, most, launch->function, launch->items);
    }
    for (int i = 0; i < launch->count; i++) {
        const pe_gpu_place *place = &code->places[launch->first + i];
        const uint64_t offset = place->offset;
        void *memory = c->memories[place->memory];
        const unsigned at = 2 * (unsigned)i;
        TRY(session, kernel_argument, kernel, at, sizeof memory, &memory);
        TRY(session, kernel_argument, kernel, at + 1, sizeof offset, &offset);
    }
    return PE_OK;
}

static pe_status copy_there(pe_session *session, pe_gpu_memory memory, size_t offset,
                            const void *from, size_t bytes) {
    const opencl *c = opencl_of(session);
    if (bytes) {
        TRY(session, copy_there, c->queue, c->memories[memory], 0, offset, bytes, from, 0, NULL,
            NULL);
    }
    return PE_OK;
}

static pe_status copy_here(pe_session *session, pe_gpu_memory memory, size_t offset, void *to,
                           size_t bytes) {
    const opencl *c = opencl_of(session);
    if (bytes) {
        TRY(session, copy_here, c->queue, c->memories[memory], 0, offset, bytes, to, 0, NULL, NULL);
    }
    return PE_OK;
}

/* Enqueues a step's launches. */
static pe_status launch(pe_session *session, int number) {
    const opencl *c = opencl_of(session);
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_gpu_step step = pe_gpu_step_of(session, number);
    for (int i = step.first; i < step.first + step.count; i++) {
        const size_t group = (size_t)code->launches[i].items;
        const size_t items = (size_t)code->launches[i].groups * group;
        TRY(session, launch, c->queue, c->kernels[i], 1, NULL, &items, &group, 0, NULL, NULL);
    }
    return PE_OK;
}

static pe_status wait(pe_session *session) {
    TRY(session, queue_finish, opencl_of(session)->queue);
    return PE_OK;
}

static const pe_gpu_queue QUEUE = {copy_there, copy_here, launch, wait};

pe_status pe_opencl_open(pe_session *session) {
    const int launches = pe_gpu_code_of(session)->launch_count;
    opencl *c = calloc(1, sizeof *c + (size_t)launches * sizeof(void *));
    if (!c) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "no memory for a table of %d launches",
                       launches);
    }
    c->kernels = (void **)(void *)(c + 1);
    session->accelerated = c;
    pe_status status = pe_opencl_load(&c->driver, session->message);
    status = status == PE_OK ? open_device(session) : status;
    status = status == PE_OK ? take_memory(session) : status;
    status = status == PE_OK ? build(session) : status;
    for (int i = 0; status == PE_OK && i < launches; i++) {
        status = make_kernel(session, i);
    }
    return status == PE_OK ? pe_gpu_prepare(session, &QUEUE) : status;
}

/* Releases an object unless it is NULL. */
static void release(int (*give_back)(void *), void *object) {
    if (object) {
        give_back(object);
    }
}

void pe_opencl_close(pe_session *session) {
    opencl *c = opencl_of(session);
    if (!c) {
        return;
    }
    for (int i = 0; i < pe_gpu_code_of(session)->launch_count; i++) {
        release(c->driver.kernel_release, c->kernels[i]);
    }
    release(c->driver.program_release, c->program);
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        release(c->driver.memory_release, c->memories[i]);
    }
    release(c->driver.queue_release, c->queue);
    release(c->driver.context_release, c->context);
    free(c);
    session->accelerated = NULL;
}

pe_status pe_opencl_run(pe_session *session, const pe_entry *entry) {
    return pe_gpu_run(session, entry, &QUEUE);
}

pe_status pe_opencl_fetch(pe_session *session) { return pe_gpu_fetch(session, &QUEUE); }
