/* Vulkan 1.2 as a table of functions that is loaded at run time, so a program builds without
 * Vulkan's headers and library. The structures are those parts of vulkan_core.h that are used. */
#ifndef PE_VULKAN_DRIVER_H
#define PE_VULKAN_DRIVER_H

#include "pe.h"

/* A non-dispatchable handle. */
typedef uint64_t pe_vk_handle;

/* The first two fields of most structures: its type, and a chained structure. */
#define PE_VK_HEAD                                                                                 \
    int type;                                                                                      \
    const void *next

typedef struct pe_vk_head {
    PE_VK_HEAD;
} pe_vk_head;

typedef struct pe_vk_application {
    PE_VK_HEAD;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api_version;
} pe_vk_application;

typedef struct pe_vk_instance_info {
    PE_VK_HEAD;
    uint32_t flags;
    const pe_vk_application *application;
    uint32_t layer_count;
    const char *const *layers;
    uint32_t extension_count;
    const char *const *extensions;
} pe_vk_instance_info;

/* `limits` is VkPhysicalDeviceLimits. */
typedef struct pe_vk_properties {
    PE_VK_HEAD;
    uint32_t api_version, driver_version, vendor, device, kind;
    char name[256];
    uint8_t cache[16];
    uint64_t limits[63];
    uint32_t sparse[6];
} pe_vk_properties;

typedef struct pe_vk_largest {
    PE_VK_HEAD;
    uint32_t descriptors;
    uint64_t allocation;
} pe_vk_largest;

typedef struct pe_vk_float_controls {
    PE_VK_HEAD;
    uint32_t words[17];
} pe_vk_float_controls;

/* Features of Vulkan 1.0 (55 words), 1.1 (12) or 1.2 (47). */
typedef struct pe_vk_features {
    PE_VK_HEAD;
    uint32_t words[56];
} pe_vk_features;

typedef struct pe_vk_family {
    uint32_t flags, count, bits, granularity[3];
} pe_vk_family;

typedef struct pe_vk_memories {
    uint32_t type_count;
    struct {
        uint32_t flags, heap;
    } types[32];
    uint32_t heap_count;
    struct {
        uint64_t bytes;
        uint32_t flags;
    } heaps[16];
} pe_vk_memories;

typedef struct pe_vk_queue_info {
    PE_VK_HEAD;
    uint32_t flags, family, count;
    const float *priorities;
} pe_vk_queue_info;

typedef struct pe_vk_device_info {
    PE_VK_HEAD;
    uint32_t flags, queue_count;
    const pe_vk_queue_info *queues;
    uint32_t layer_count;
    const char *const *layers;
    uint32_t extension_count;
    const char *const *extensions;
    const void *features;
} pe_vk_device_info;

typedef struct pe_vk_buffer_info {
    PE_VK_HEAD;
    uint32_t flags;
    uint64_t bytes;
    uint32_t usage, sharing, family_count;
    const uint32_t *families;
} pe_vk_buffer_info;

typedef struct pe_vk_requirements {
    uint64_t bytes, alignment;
    uint32_t types;
} pe_vk_requirements;

typedef struct pe_vk_flags_info {
    PE_VK_HEAD;
    uint32_t flags, mask;
} pe_vk_flags_info;

typedef struct pe_vk_memory_info {
    PE_VK_HEAD;
    uint64_t bytes;
    uint32_t memory_type;
} pe_vk_memory_info;

typedef struct pe_vk_address_info {
    PE_VK_HEAD;
    pe_vk_handle buffer;
} pe_vk_address_info;

typedef struct pe_vk_module_info {
    PE_VK_HEAD;
    uint32_t flags;
    size_t bytes;
    const void *words;
} pe_vk_module_info;

typedef struct pe_vk_range {
    uint32_t stages, offset, bytes;
} pe_vk_range;

typedef struct pe_vk_layout_info {
    PE_VK_HEAD;
    uint32_t flags, set_count;
    const pe_vk_handle *sets;
    uint32_t range_count;
    const pe_vk_range *ranges;
} pe_vk_layout_info;

typedef struct pe_vk_stage_info {
    PE_VK_HEAD;
    uint32_t flags, stage;
    pe_vk_handle module;
    const char *name;
    const void *constants;
} pe_vk_stage_info;

typedef struct pe_vk_pipeline_info {
    PE_VK_HEAD;
    uint32_t flags;
    pe_vk_stage_info stage;
    pe_vk_handle layout, base;
    int32_t base_number;
} pe_vk_pipeline_info;

typedef struct pe_vk_pool_info {
    PE_VK_HEAD;
    uint32_t flags, family;
} pe_vk_pool_info;

typedef struct pe_vk_commands_info {
    PE_VK_HEAD;
    pe_vk_handle pool;
    uint32_t level, count;
} pe_vk_commands_info;

typedef struct pe_vk_begin_info {
    PE_VK_HEAD;
    uint32_t flags;
    const void *inheritance;
} pe_vk_begin_info;

typedef struct pe_vk_barrier {
    PE_VK_HEAD;
    uint32_t before, after;
} pe_vk_barrier;

typedef struct pe_vk_copy {
    uint64_t from, to, bytes;
} pe_vk_copy;

typedef struct pe_vk_submit_info {
    PE_VK_HEAD;
    uint32_t wait_count;
    const pe_vk_handle *waits;
    const uint32_t *stages;
    uint32_t command_count;
    void *const *commands;
    uint32_t signal_count;
    const pe_vk_handle *signals;
} pe_vk_submit_info;

/* Functions that fail, whose result is an error below 0; and those that do not. */
#define PE_VULKAN_CALLS(F)                                                                         \
    F(CreateInstance, (const pe_vk_instance_info *, const void *, void **))                        \
    F(EnumeratePhysicalDevices, (void *, uint32_t *, void **))                                     \
    F(CreateDevice, (void *, const pe_vk_device_info *, const void *, void **))                    \
    F(CreateBuffer, (void *, const pe_vk_buffer_info *, const void *, pe_vk_handle *))             \
    F(AllocateMemory, (void *, const pe_vk_memory_info *, const void *, pe_vk_handle *))           \
    F(BindBufferMemory, (void *, pe_vk_handle, pe_vk_handle, uint64_t))                            \
    F(MapMemory, (void *, pe_vk_handle, uint64_t, uint64_t, uint32_t, void **))                    \
    F(CreateShaderModule, (void *, const pe_vk_module_info *, const void *, pe_vk_handle *))       \
    F(CreatePipelineLayout, (void *, const pe_vk_layout_info *, const void *, pe_vk_handle *))     \
    F(CreateComputePipelines,                                                                      \
      (void *, pe_vk_handle, uint32_t, const pe_vk_pipeline_info *, const void *, pe_vk_handle *)) \
    F(CreateCommandPool, (void *, const pe_vk_pool_info *, const void *, pe_vk_handle *))          \
    F(AllocateCommandBuffers, (void *, const pe_vk_commands_info *, void **))                      \
    F(BeginCommandBuffer, (void *, const pe_vk_begin_info *))                                      \
    F(EndCommandBuffer, (void *))                                                                  \
    F(QueueSubmit, (void *, uint32_t, const pe_vk_submit_info *, pe_vk_handle))                    \
    F(QueueWaitIdle, (void *))

#define PE_VULKAN_ACTIONS(F)                                                                       \
    F(DestroyInstance, void, (void *, const void *))                                               \
    F(GetPhysicalDeviceProperties2, void, (void *, pe_vk_properties *))                            \
    F(GetPhysicalDeviceFeatures2, void, (void *, pe_vk_features *))                                \
    F(GetPhysicalDeviceQueueFamilyProperties, void, (void *, uint32_t *, pe_vk_family *))          \
    F(GetPhysicalDeviceMemoryProperties, void, (void *, pe_vk_memories *))                         \
    F(DestroyDevice, void, (void *, const void *))                                                 \
    F(GetDeviceQueue, void, (void *, uint32_t, uint32_t, void **))                                 \
    F(DestroyBuffer, void, (void *, pe_vk_handle, const void *))                                   \
    F(GetBufferMemoryRequirements, void, (void *, pe_vk_handle, pe_vk_requirements *))             \
    F(FreeMemory, void, (void *, pe_vk_handle, const void *))                                      \
    F(GetBufferDeviceAddress, uint64_t, (void *, const pe_vk_address_info *))                      \
    F(DestroyShaderModule, void, (void *, pe_vk_handle, const void *))                             \
    F(DestroyPipelineLayout, void, (void *, pe_vk_handle, const void *))                           \
    F(DestroyPipeline, void, (void *, pe_vk_handle, const void *))                                 \
    F(DestroyCommandPool, void, (void *, pe_vk_handle, const void *))                              \
    F(CmdBindPipeline, void, (void *, int, pe_vk_handle))                                          \
    F(CmdPushConstants, void, (void *, pe_vk_handle, uint32_t, uint32_t, uint32_t, const void *))  \
    F(CmdDispatch, void, (void *, uint32_t, uint32_t, uint32_t))                                   \
    F(CmdPipelineBarrier, void,                                                                    \
      (void *, uint32_t, uint32_t, uint32_t, uint32_t, const pe_vk_barrier *, uint32_t,            \
       const void *, uint32_t, const void *))                                                      \
    F(CmdCopyBuffer, void, (void *, pe_vk_handle, pe_vk_handle, uint32_t, const pe_vk_copy *))

typedef struct pe_vulkan_driver {
    void *library;
#define PE_VULKAN_CALL(name, arguments) int(*name) arguments;
#define PE_VULKAN_ACTION(name, result, arguments) result(*name) arguments;
    PE_VULKAN_CALLS(PE_VULKAN_CALL)
    PE_VULKAN_ACTIONS(PE_VULKAN_ACTION)
#undef PE_VULKAN_CALL
#undef PE_VULKAN_ACTION
} pe_vulkan_driver;

/* Loads the library for the life of the process, because threads of drivers outlive their objects.
 * The message names a missing library or function. */
pe_status pe_vulkan_load(pe_vulkan_driver *driver, char *message);

/* Fails with the description of a function's error. */
pe_status pe_vulkan_fail(const char *call, int error, char *message);

#endif
