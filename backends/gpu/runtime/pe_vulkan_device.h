/* A Vulkan device, and its buffers. */
#ifndef PE_VULKAN_DEVICE_H
#define PE_VULKAN_DEVICE_H

#include "pe_gpu.h"
#include "pe_vulkan_driver.h"

/* Bytes of the buffer through which copies go where the host cannot map the device's memory. */
#define PE_VULKAN_STAGED 4194304

/* A buffer with memory of its own. `mapped` is NULL if the host cannot access it, and all are 0 for
 * no bytes. */
typedef struct pe_vulkan_buffer {
    pe_vk_handle buffer, memory;
    uint64_t address;
    unsigned char *mapped;
} pe_vulkan_buffer;

typedef struct pe_vulkan_limits {
    uint32_t items, groups, shared_bytes;
    uint64_t allocation;
} pe_vulkan_limits;

/* `memory_type` is that of the memories, `host_type` one that the host can map. */
typedef struct pe_vulkan_device {
    pe_vulkan_driver driver;
    void *instance, *physical, *device, *queue;
    char name[256];
    uint32_t family, memory_type, host_type;
    pe_vulkan_limits limits;
    uint64_t heap_bytes;
    bool maps; /* the host can map `memory_type` */
} pe_vulkan_device;

/* Calls a function of a device's driver; returns from the caller where it fails. */
#define PE_VULKAN_TRY(vulkan, out, name, ...)                                                      \
    do {                                                                                           \
        const int error_ = (vulkan)->driver.name(__VA_ARGS__);                                     \
        if (error_ < 0) {                                                                          \
            return pe_vulkan_fail(#name, error_, out);                                             \
        }                                                                                          \
    } while (0)

/* Opens a GPU, else what there is. `bytes` are those of all memories: the host maps them only where
 * they fit. The message says what is missing. */
pe_status pe_vulkan_open_device(pe_vulkan_device *vulkan, uint64_t bytes, char *message);
void pe_vulkan_close_device(pe_vulkan_device *vulkan);

/* Makes a buffer of a memory type. */
pe_status pe_vulkan_make_buffer(const pe_vulkan_device *vulkan, size_t bytes, uint32_t type,
                                pe_vulkan_buffer *made, char *message);
void pe_vulkan_release_buffer(const pe_vulkan_device *vulkan, pe_vulkan_buffer *buffer);

#endif
