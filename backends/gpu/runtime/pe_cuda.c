/* Sessions on an NVIDIA GPU: device memory, copies, and steps as captured graphs. */
#include "pe_cuda.h"

#include <stdlib.h>

#include "pe_cuda_driver.h"

/* Constants of the driver API. */
enum {
    OUT_OF_MEMORY = 2,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    MOST_ITEMS_OF = 0,  /* a function's maximum of threads per block */
    NON_BLOCKING = 1,   /* a stream that does not synchronize with the default stream */
    CAPTURE_THREAD = 1, /* calls of other threads do not affect a capture */
    DEVICE_NAME = 96,
};

/* A session's driver objects: a function for each launch, and a graph for each captured step. */
typedef struct cuda {
    pe_cuda_driver driver;
    int device;
    char name[DEVICE_NAME];
    void *context, *module, *stream;
    pe_cuda_address memory;
    size_t begins[PE_GPU_MEMORIES + 1]; /* the last is the total size */
    void **functions;
    void **graphs;
} cuda;

/* Calls a driver function; returns from the caller if it fails. */
#define TRY(session, name, ...)                                                                    \
    do {                                                                                           \
        const pe_cuda_driver *driver_ = &cuda_of(session)->driver;                                 \
        const int error_ = driver_->name(__VA_ARGS__);                                             \
        if (error_) {                                                                              \
            return pe_cuda_fail(driver_, #name, error_, (session)->message);                       \
        }                                                                                          \
    } while (0)

static cuda *cuda_of(const pe_session *session) { return session->accelerated; }

static size_t aligned(size_t bytes) {
    return (bytes + PE_GPU_ALIGN - 1) / PE_GPU_ALIGN * PE_GPU_ALIGN;
}

static void place_memories(cuda *c, const pe_session *session) {
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        c->begins[i + 1] = c->begins[i] + aligned(pe_gpu_bytes(session, (pe_gpu_memory)i));
    }
}

/* Finds the GPU, and makes its context current on this thread. */
static pe_status find_device(pe_session *session) {
    cuda *c = cuda_of(session);
    int count = 0, major = 0, minor = 0;
    TRY(session, init, 0);
    TRY(session, device_count, &count);
    TRY(session, device_get, &c->device, 0);
    TRY(session, device_name, c->name, DEVICE_NAME, c->device);
    TRY(session, device_attribute, &major, CAPABILITY_MAJOR, c->device);
    TRY(session, device_attribute, &minor, CAPABILITY_MINOR, c->device);
    const char *wanted = pe_gpu_code_of(session)->image->architecture;
    if (atoi(wanted + sizeof "sm_" - 1) != major * 10 + minor) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "program %s is compiled for %s, and %s is sm_%d: compile it for a device "
                       "whose file says architecture = \"sm_%d\" in [gpu]",
                       session->program->name, wanted, c->name, major * 10 + minor,
                       major * 10 + minor);
    }
    void *context = NULL;
    TRY(session, context_retain, &context, c->device);
    c->context = context;
    return PE_OK;
}

/* Reports the planned sizes and the free memory. */
static pe_status fail_memory(pe_session *session) {
    cuda *c = cuda_of(session);
    size_t free = 0, total = 0;
    TRY(session, memory_info, &free, &total);
    const size_t kept = c->begins[PE_GPU_ARENA];
    char has[PE_MESSAGE_BYTES];
    pe_fail(has, PE_OK, "%s has %zu free of %zu", c->name, free, total);
    return pe_gpu_fail_memory(session, has, free > kept ? free - kept : 0);
}

static pe_status take_memory(pe_session *session) {
    cuda *c = cuda_of(session);
    place_memories(c, session);
    const size_t bytes = c->begins[PE_GPU_MEMORIES];
    const int error = c->driver.memory_take(&c->memory, bytes ? bytes : PE_GPU_ALIGN);
    if (error) {
        c->memory = 0;
        return error == OUT_OF_MEMORY
                   ? fail_memory(session)
                   : pe_cuda_fail(&c->driver, "memory_take", error, session->message);
    }
    return PE_OK;
}

/* Loads the function of every launch here, because the driver must not load it within a capture. */
static pe_status find_functions(pe_session *session) {
    cuda *c = cuda_of(session);
    const pe_gpu_code *code = pe_gpu_code_of(session);
    TRY(session, module_load, &c->module, code->image->code);
    for (int i = 0; i < code->launch_count; i++) {
        int most = 0;
        const pe_gpu_launch *launch = &code->launches[i];
        TRY(session, module_function, &c->functions[i], c->module, launch->function);
        TRY(session, function_attribute, &most, MOST_ITEMS_OF, c->functions[i]);
        if (launch->items > most) {
            return pe_fail(session->message, PE_ERROR_MISMATCH,
                           "%s runs groups of %d items of %s at most, and %d are launched", c->name,
                           most, launch->function, launch->items);
        }
    }
    return PE_OK;
}

static pe_status copy_there(pe_session *session, pe_gpu_memory memory, size_t offset,
                            const void *from, size_t bytes) {
    const cuda *c = cuda_of(session);
    if (bytes) {
        TRY(session, copy_there, c->memory + c->begins[memory] + offset, from, bytes, c->stream);
    }
    return PE_OK;
}

static pe_status copy_here(pe_session *session, pe_gpu_memory memory, size_t offset, void *to,
                           size_t bytes) {
    const cuda *c = cuda_of(session);
    if (bytes) {
        TRY(session, copy_here, to, c->memory + c->begins[memory] + offset, bytes, c->stream);
    }
    return PE_OK;
}

/* Makes the context current on this thread for a call; leave() keeps an error in `status`. */
static pe_status enter(pe_session *session) {
    TRY(session, context_push, cuda_of(session)->context);
    return PE_OK;
}

static pe_status leave(pe_session *session, pe_status status) {
    void *context;
    const int error = cuda_of(session)->driver.context_pop(&context);
    return status == PE_OK && error
               ? pe_cuda_fail(&cuda_of(session)->driver, "context_pop", error, session->message)
               : status;
}

/* Adds one launch to the capture. */
static pe_status record(pe_session *session, int number) {
    const cuda *c = cuda_of(session);
    const pe_gpu_launch *each = &pe_gpu_code_of(session)->launches[number];
    pe_cuda_address addresses[PE_GPU_POINTERS];
    void *arguments[PE_GPU_POINTERS];
    for (int i = 0; i < each->count; i++) {
        const pe_gpu_place *place = &pe_gpu_code_of(session)->places[each->first + i];
        addresses[i] = c->memory + c->begins[place->memory] + place->offset;
        arguments[i] = &addresses[i];
    }
    TRY(session, launch, c->functions[number], (unsigned)each->groups, 1, 1, (unsigned)each->items,
        1, 1, 0, c->stream, arguments, NULL);
    return PE_OK;
}

/* Captures a step's launches as a graph. */
static pe_status capture(pe_session *session, int number) {
    cuda *c = cuda_of(session);
    const pe_gpu_step step = pe_gpu_step_of(session, number);
    pe_status status = PE_OK;
    void *graph = NULL;
    TRY(session, capture_begin, c->stream, CAPTURE_THREAD);
    for (int i = 0; status == PE_OK && i < step.count; i++) {
        status = record(session, step.first + i);
    }
    const int error = c->driver.capture_end(c->stream, &graph); /* a failed capture ends too */
    if (status == PE_OK && error) {
        status = pe_cuda_fail(&c->driver, "capture_end", error, session->message);
    }
    if (status == PE_OK) {
        const int failed = c->driver.graph_instantiate(&c->graphs[number], graph, 0);
        status = failed ? pe_cuda_fail(&c->driver, "graph_instantiate", failed, session->message)
                        : PE_OK;
    }
    if (graph) {
        c->driver.graph_destroy(graph);
    }
    return status;
}

/* Launches a step's graph, captured at the first run. */
static pe_status launch(pe_session *session, int number) {
    const cuda *c = cuda_of(session);
    const pe_status status = c->graphs[number] ? PE_OK : capture(session, number);
    if (status == PE_OK) {
        TRY(session, graph_launch, c->graphs[number], c->stream);
    }
    return status;
}

static pe_status wait(pe_session *session) {
    TRY(session, stream_synchronize, cuda_of(session)->stream);
    return PE_OK;
}

static const pe_gpu_queue QUEUE = {copy_there, copy_here, launch, wait};

static pe_status prepare(pe_session *session) {
    pe_status status = take_memory(session);
    status = status == PE_OK ? find_functions(session) : status;
    if (status == PE_OK) {
        TRY(session, stream_create, &cuda_of(session)->stream, NON_BLOCKING);
        status = pe_gpu_prepare(session, &QUEUE);
    }
    return status;
}

static pe_status start(pe_session *session) {
    cuda *c = cuda_of(session);
    pe_status status =
        pe_cuda_load(&c->driver, pe_gpu_code_of(session)->image->compiler, session->message);
    status = status == PE_OK ? find_device(session) : status;
    status = status == PE_OK ? enter(session) : status;
    return status == PE_OK ? leave(session, prepare(session)) : status;
}

pe_status pe_cuda_open(pe_session *session) {
    const size_t launches = (size_t)pe_gpu_code_of(session)->launch_count;
    const size_t steps = (size_t)pe_gpu_step_count(session);
    cuda *c = calloc(1, sizeof *c + (launches + steps) * sizeof(void *));
    if (!c) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "no memory for a table of %zu launches",
                       launches);
    }
    c->functions = (void **)(void *)(c + 1);
    c->graphs = c->functions + launches;
    session->accelerated = c;
    return start(session);
}

static void give_back(const pe_session *session) {
    cuda *c = cuda_of(session);
    const pe_cuda_driver *driver = &c->driver;
    for (int i = 0; i < pe_gpu_step_count(session); i++) {
        if (c->graphs[i]) {
            driver->graph_end(c->graphs[i]);
        }
    }
    if (c->stream) {
        driver->stream_destroy(c->stream);
    }
    if (c->module) {
        driver->module_unload(c->module);
    }
    if (c->memory) {
        driver->memory_free(c->memory);
    }
}

void pe_cuda_close(pe_session *session) {
    cuda *c = cuda_of(session);
    if (!c) {
        return;
    }
    if (c->context) {
        void *context;
        if (c->driver.context_push(c->context) == 0) {
            give_back(session);
            c->driver.context_pop(&context);
        }
        c->driver.context_release(c->device);
    }
    pe_cuda_unload(&c->driver);
    free(c);
    session->accelerated = NULL;
}

pe_status pe_cuda_run(pe_session *session, const pe_entry *entry) {
    const pe_status status = enter(session);
    return status == PE_OK ? leave(session, pe_gpu_run(session, entry, &QUEUE)) : status;
}

pe_status pe_cuda_fetch(pe_session *session) {
    const pe_status status = enter(session);
    return status == PE_OK ? leave(session, pe_gpu_fetch(session, &QUEUE)) : status;
}
