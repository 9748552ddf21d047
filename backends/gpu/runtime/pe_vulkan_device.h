/* A Vulkan device, and its buffers. */
#ifndef PE_VULKAN_DEVICE_H
#define PE_VULKAN_DEVICE_H

#include "pe_gpu.h"
#include "pe_vulkan_driver.h"

/* Bytes of the buffer for copies to and from memory that the host cannot map. */
#define PE_VULKAN_STAGED 4194304

/* A buffer with its own memory. `mapped` is NULL if the host cannot map it; an empty buffer is all
 * zeros. */
typedef struct pe_vulkan_buffer {
    pe_vk_handle buffer, memory;
    uint64_t address;
    unsigned char *mapped;
} pe_vulkan_buffer;

typedef struct pe_vulkan_limits {
    uint32_t items, groups, shared_bytes;
    uint64_t allocation;
} pe_vulkan_limits;

/* `memory_type` is the type of the session's memories, `host_type` one that the host can map. */
typedef struct pe_vulkan_device {
    pe_vulkan_driver driver;
    void *instance, *physical, *device, *queue;
    char name[256];
    uint32_t family, memory_type, host_type;
    pe_vulkan_limits limits;
    uint64_t heap_bytes;
    bool maps; /* the host can map `memory_type` */
} pe_vulkan_device;

/* Calls a function of a device's driver; returns from the caller if it fails. */
#define PE_VULKAN_TRY(vulkan, out, name, ...)                                                      \
    do {                                                                                           \
        const int error_ = (vulkan)->driver.name(__VA_ARGS__);                                     \
        if (error_ < 0) {                                                                          \
            return pe_vulkan_fail(#name, error_, out);                                             \
        }                                                                                          \
    } while (0)

/* Opens the best device: a discrete GPU, else an integrated one, else any. Memory that the host can
 * map is used if `bytes`, the size of all memories, fit there. */
pe_status pe_vulkan_open_device(pe_vulkan_device *vulkan, uint64_t bytes, char *message);
void pe_vulkan_close_device(pe_vulkan_device *vulkan);

/* Allocates a buffer of a memory type; a failed one must be released too. */
pe_status pe_vulkan_make_buffer(const pe_vulkan_device *vulkan, size_t bytes, uint32_t type,
                                pe_vulkan_buffer *buffer, char *message);
void pe_vulkan_release_buffer(const pe_vulkan_device *vulkan, pe_vulkan_buffer *buffer);

#endif
