/* Sessions by Vulkan: memories, pipelines, and a command buffer for each step. */
#include "pe_vulkan.h"

#include <stdlib.h>
#include <string.h>

#include "pe_vulkan_device.h"

/* Vulkan's enumerators. */
enum {
    SUBMIT_INFO = 4,
    MODULE_INFO = 16,
    STAGE_INFO = 18,
    PIPELINE_INFO = 29,
    LAYOUT_INFO = 30,
    POOL_INFO = 39,
    COMMANDS_INFO = 40,
    BEGIN_INFO = 42,
    BARRIER = 46,

    BIND_COMPUTE = 1,
    STAGE_COMPUTE = 32,
    RESET_EACH = 2,
    DEVICE_WORK = 2048 |
        4096, /* pipeline stages: kernels and copies; ALL_WORK has the host's too */
    ALL_WORK = 2048 | 4096 | 16384,
    DEVICE_WRITES = 64 | 4096,
    ALL_READS_WRITES = 32 | 64 | 2048 | 4096 | 8192,
};

/* A launch's push constants: pe_start of dialect/vulkan.h. */
typedef struct start {
    uint64_t pointers;
    uint32_t group, padding;
} start;

/* A session's objects of the driver. `pipelines` has one for each launch; the first launch of a
 * kernel owns it. `commands` has one buffer for each step, and one for copies. */
typedef struct vulkan {
    pe_vulkan_device device;
    pe_vulkan_buffer memories[PE_GPU_MEMORIES], pointers, staged;
    pe_vk_handle layout, pool, *pipelines;
    void **commands;
    bool busy; /* a submitted step has not been waited for */
} vulkan;

#define TRY(session, name, ...)                                                                    \
    PE_VULKAN_TRY(&vulkan_of(session)->device, (session)->message, name, __VA_ARGS__)

static vulkan *vulkan_of(const pe_session *session) { return session->accelerated; }

/* Fails if the memories do not fit. */
static pe_status check_memory(pe_session *session, uint64_t bytes) {
    const pe_vulkan_device *device = &vulkan_of(session)->device;
    const uint64_t total = device->heap_bytes, most = device->limits.allocation;
    bool fits = bytes <= total;
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        fits = fits && pe_gpu_bytes(session, (pe_gpu_memory)i) <= most;
    }
    if (fits) {
        return PE_OK;
    }
    const uint64_t fixed = bytes - pe_gpu_bytes(session, PE_GPU_ARENA);
    const uint64_t room = fixed < total ? total - fixed : 0;
    char capacity[PE_MESSAGE_BYTES];
    pe_fail(capacity, PE_OK, "%s has %zu, of which a buffer takes %zu at most", device->name,
            (size_t)total, (size_t)most);
    return pe_gpu_fail_memory(session, capacity, (size_t)(room < most ? room : most));
}

static int place_count(const pe_gpu_code *code) {
    int count = 0;
    for (int i = 0; i < code->launch_count; i++) {
        const int end = code->launches[i].first + code->launches[i].count;
        count = end > count ? end : count;
    }
    return count;
}

/* Allocates the memories, the table of pointers, and a buffer for copies if one is needed. */
static pe_status allocate_memory(pe_session *session, uint64_t bytes) {
    vulkan *v = vulkan_of(session);
    const pe_vulkan_device *device = &v->device;
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const int places = place_count(code);
    pe_status status = check_memory(session, bytes);
    for (int i = 0; status == PE_OK && i < PE_GPU_MEMORIES; i++) {
        status = pe_vulkan_make_buffer(device, pe_gpu_bytes(session, (pe_gpu_memory)i),
                                       device->memory_type, &v->memories[i], session->message);
    }
    if (status == PE_OK) {
        status = pe_vulkan_make_buffer(device, (size_t)places * sizeof(uint64_t), device->host_type,
                                       &v->pointers, session->message);
    }
    if (status == PE_OK && !device->maps) {
        status = pe_vulkan_make_buffer(device, PE_VULKAN_STAGED, device->host_type, &v->staged,
                                       session->message);
    }
    for (int i = 0; status == PE_OK && i < places; i++) {
        const pe_gpu_place *place = &code->places[i];
        const uint64_t address = v->memories[place->memory].address + place->offset;
        memcpy(v->pointers.mapped + (size_t)i * sizeof address, &address, sizeof address);
    }
    return status;
}

/* Fails for a launch that exceeds the device's limits. */
static pe_status check_launch(pe_session *session, const pe_gpu_launch *launch,
                              const pe_vulkan_module *module) {
    const pe_vulkan_device *device = &vulkan_of(session)->device;
    if ((uint32_t)launch->items > device->limits.items) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s runs groups of at most %u items, and %s has %d: compile for the "
                       "backend c",
                       device->name, device->limits.items, launch->function, launch->items);
    }
    if (module->shared_bytes > device->limits.shared_bytes) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s has %u bytes of shared memory, and a group of %s needs %zu: compile "
                       "for the backend c",
                       device->name, device->limits.shared_bytes, launch->function,
                       module->shared_bytes);
    }
    return PE_OK;
}

/* Makes the pipeline of a kernel. */
static pe_status make_pipeline(pe_session *session, const pe_vulkan_module *module,
                               pe_vk_handle *pipeline) {
    const vulkan *v = vulkan_of(session);
    void *device = v->device.device;
    const pe_vk_module_info info = {
        .type = MODULE_INFO, .bytes = module->bytes, .words = module->words};
    pe_vk_handle shader = 0;
    TRY(session, CreateShaderModule, device, &info, NULL, &shader);
    const pe_vk_stage_info stage = {
        .type = STAGE_INFO, .stage = STAGE_COMPUTE, .module = shader, .name = "main"};
    const pe_vk_pipeline_info pipeline_info = {
        .type = PIPELINE_INFO, .stage = stage, .layout = v->layout, .base_number = -1};
    const int error =
        v->device.driver.CreateComputePipelines(device, 0, 1, &pipeline_info, NULL, pipeline);
    v->device.driver.DestroyShaderModule(device, shader, NULL);
    return error < 0 ? pe_vulkan_fail("CreateComputePipelines", error, session->message) : PE_OK;
}

/* The first launch of the same kernel. */
static int owner_of(const pe_gpu_code *code, int launch) {
    int owner = 0;
    while (strcmp(code->launches[owner].function, code->launches[launch].function) != 0) {
        owner++;
    }
    return owner;
}

static pe_status make_pipelines(pe_session *session) {
    vulkan *v = vulkan_of(session);
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_vulkan_module *modules =
        (const pe_vulkan_module *)(const void *)pe_gpu_code_of(session)->image->code;
    const pe_vk_range range = {STAGE_COMPUTE, 0, sizeof(start)};
    const pe_vk_layout_info info = {.type = LAYOUT_INFO, .range_count = 1, .ranges = &range};
    pe_status status = PE_OK;
    TRY(session, CreatePipelineLayout, v->device.device, &info, NULL, &v->layout);
    for (int i = 0; status == PE_OK && i < code->launch_count; i++) {
        const int owner = owner_of(code, i);
        const pe_vulkan_module *module = modules;
        while (strcmp(module->function, code->launches[i].function) != 0) {
            module++;
        }
        v->pipelines[i] = v->pipelines[owner];
        if (owner == i) {
            status = check_launch(session, &code->launches[i], module);
            status = status == PE_OK ? make_pipeline(session, module, &v->pipelines[i]) : status;
        }
    }
    return status;
}

/* Commands after the barrier wait for those before it. */
static void record_barrier(const vulkan *v, void *commands) {
    const pe_vk_barrier barrier = {
        .type = BARRIER, .before = DEVICE_WRITES, .after = ALL_READS_WRITES};
    v->device.driver.CmdPipelineBarrier(commands, DEVICE_WORK, ALL_WORK, 0, 1, &barrier, 0, NULL, 0,
                                        NULL);
}

/* Records a launch, in parts if it has more groups than the device allows. */
static void record_launch(pe_session *session, void *commands, int number) {
    const vulkan *v = vulkan_of(session);
    const pe_vulkan_driver *driver = &v->device.driver;
    const pe_gpu_launch *launch = &pe_gpu_code_of(session)->launches[number];
    const uint32_t groups = (uint32_t)launch->groups, most = v->device.limits.groups;
    const uint64_t pointers = v->pointers.address + (uint64_t)launch->first * sizeof(uint64_t);
    driver->CmdBindPipeline(commands, BIND_COMPUTE, v->pipelines[number]);
    for (uint32_t first = 0; first < groups; first += most) {
        const uint32_t count = groups - first < most ? groups - first : most;
        const start from = {pointers, first, 0};
        driver->CmdPushConstants(commands, v->layout, STAGE_COMPUTE, 0, sizeof from, &from);
        driver->CmdDispatch(commands, count, 1, 1);
    }
    record_barrier(v, commands);
}

/* Records each step. */
static pe_status record_steps(pe_session *session) {
    vulkan *v = vulkan_of(session);
    void *device = v->device.device;
    const int steps = pe_gpu_step_count(session);
    const pe_vk_pool_info pool = {
        .type = POOL_INFO, .flags = RESET_EACH, .family = v->device.family};
    const pe_vk_begin_info begin = {.type = BEGIN_INFO};
    TRY(session, CreateCommandPool, device, &pool, NULL, &v->pool);
    const pe_vk_commands_info info = {
        .type = COMMANDS_INFO, .pool = v->pool, .count = (uint32_t)steps + 1};
    TRY(session, AllocateCommandBuffers, device, &info, v->commands);
    for (int i = 0; i < steps; i++) {
        const pe_gpu_step step = pe_gpu_step_of(session, i);
        void *commands = v->commands[i];
        TRY(session, BeginCommandBuffer, commands, &begin);
        record_barrier(v, commands);
        for (int j = step.first; j < step.first + step.count; j++) {
            record_launch(session, commands, j);
        }
        TRY(session, EndCommandBuffer, commands);
    }
    return PE_OK;
}

static pe_status submit(pe_session *session, int number) {
    vulkan *v = vulkan_of(session);
    const pe_vk_submit_info info = {
        .type = SUBMIT_INFO, .command_count = 1, .commands = &v->commands[number]};
    TRY(session, QueueSubmit, v->device.queue, 1, &info, 0);
    v->busy = true;
    return PE_OK;
}

static pe_status wait(pe_session *session) {
    vulkan *v = vulkan_of(session);
    if (v->busy) {
        v->busy = false;
        TRY(session, QueueWaitIdle, v->device.queue);
    }
    return PE_OK;
}

/* Copies between buffers of the device, and waits. */
static pe_status copy(pe_session *session, const pe_vulkan_buffer *from, const pe_vulkan_buffer *to,
                      const pe_vk_copy *part) {
    const vulkan *v = vulkan_of(session);
    const int number = pe_gpu_step_count(session);
    void *commands = v->commands[number];
    const pe_vk_begin_info begin = {.type = BEGIN_INFO};
    TRY(session, BeginCommandBuffer, commands, &begin);
    record_barrier(v, commands);
    v->device.driver.CmdCopyBuffer(commands, from->buffer, to->buffer, 1, part);
    record_barrier(v, commands);
    TRY(session, EndCommandBuffer, commands);
    const pe_status status = submit(session, number);
    return status == PE_OK ? wait(session) : status;
}

/* Copies to and from the host wait for the submitted step, which may use the memory. */
static pe_status copy_to_device(pe_session *session, pe_gpu_memory memory, size_t offset,
                                const void *from, size_t bytes) {
    const vulkan *v = vulkan_of(session);
    const pe_vulkan_buffer *to = &v->memories[memory];
    const unsigned char *data = from;
    pe_status status = wait(session);
    if (status == PE_OK && to->mapped) {
        memcpy(to->mapped + offset, from, bytes);
        return PE_OK;
    }
    for (size_t at = 0; status == PE_OK && at < bytes; at += PE_VULKAN_STAGED) {
        const size_t count = bytes - at < PE_VULKAN_STAGED ? bytes - at : PE_VULKAN_STAGED;
        memcpy(v->staged.mapped, data + at, count);
        status = copy(session, &v->staged, to, &(pe_vk_copy){0, offset + at, count});
    }
    return status;
}

static pe_status copy_to_host(pe_session *session, pe_gpu_memory memory, size_t offset, void *to,
                              size_t bytes) {
    const vulkan *v = vulkan_of(session);
    const pe_vulkan_buffer *from = &v->memories[memory];
    unsigned char *data = to;
    pe_status status = wait(session);
    if (status == PE_OK && from->mapped) {
        memcpy(to, from->mapped + offset, bytes);
        return PE_OK;
    }
    for (size_t at = 0; status == PE_OK && at < bytes; at += PE_VULKAN_STAGED) {
        const size_t count = bytes - at < PE_VULKAN_STAGED ? bytes - at : PE_VULKAN_STAGED;
        status = copy(session, from, &v->staged, &(pe_vk_copy){offset + at, 0, count});
        if (status == PE_OK) {
            memcpy(data + at, v->staged.mapped, count);
        }
    }
    return status;
}

static const pe_gpu_queue QUEUE = {copy_to_device, copy_to_host, submit, wait};

pe_status pe_vulkan_open(pe_session *session) {
    const size_t launches = (size_t)pe_gpu_code_of(session)->launch_count;
    const size_t commands = (size_t)pe_gpu_step_count(session) + 1;
    vulkan *v =
        calloc(1, sizeof *v + launches * sizeof *v->pipelines + commands * sizeof *v->commands);
    if (!v) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "no memory for a table of %zu launches",
                       launches);
    }
    v->pipelines = (pe_vk_handle *)(void *)(v + 1);
    v->commands = (void **)(void *)(v->pipelines + launches);
    session->accelerated = v;
    uint64_t bytes = 0;
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        bytes += pe_gpu_bytes(session, (pe_gpu_memory)i);
    }
    pe_status status = pe_vulkan_open_device(&v->device, bytes, session->message);
    status = status == PE_OK ? allocate_memory(session, bytes) : status;
    status = status == PE_OK ? make_pipelines(session) : status;
    status = status == PE_OK ? record_steps(session) : status;
    return status == PE_OK ? pe_gpu_prepare(session, &QUEUE) : status;
}

/* Destroys the device's objects. */
static void release(pe_session *session) {
    vulkan *v = vulkan_of(session);
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_vulkan_driver *driver = &v->device.driver;
    void *device = v->device.device;
    for (int i = 0; i < code->launch_count; i++) {
        if (v->pipelines[i] && owner_of(code, i) == i) {
            driver->DestroyPipeline(device, v->pipelines[i], NULL);
        }
    }
    driver->DestroyPipelineLayout(device, v->layout, NULL);
    driver->DestroyCommandPool(device, v->pool, NULL);
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        pe_vulkan_release_buffer(&v->device, &v->memories[i]);
    }
    pe_vulkan_release_buffer(&v->device, &v->pointers);
    pe_vulkan_release_buffer(&v->device, &v->staged);
}

void pe_vulkan_close(pe_session *session) {
    vulkan *v = vulkan_of(session);
    if (!v) {
        return;
    }
    if (v->device.device) {
        wait(session);
        release(session);
    }
    pe_vulkan_close_device(&v->device);
    free(v);
    session->accelerated = NULL;
}

pe_status pe_vulkan_run(pe_session *session, const pe_entry *entry) {
    return pe_gpu_run(session, entry, &QUEUE);
}

pe_status pe_vulkan_fetch(pe_session *session) { return pe_gpu_fetch(session, &QUEUE); }
