/* A wrapper of Vulkan's library: calls are forwarded to the library at the path REAL.
 *
 * It counts operations, reports them at the end, and simulates a fault selected by a macro:
 * DEVICES of 0; FEATURES without shaderInt64; MEMORY and MOST, bytes of a device and of a buffer;
 * ITEMS and SHARED of a group; TYPES, the memory types that buffers allow; FAULT, the number of the
 * call of vkQueueWaitIdle that fails. With STAGED the host cannot map the device's memory.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pe_vulkan_driver.h"

enum { DEVICE_LOST = -4, INT64 = 40, SHARED_BYTES = 54, GROUP_ITEMS = 58 };

static struct {
    int submits, waits, copies, made, released;
} counts;

/* All arguments are integers or pointers, and no function has more than ten. */
typedef long word;
typedef word function(word, word, word, word, word, word, word, word, word, word);

static function *real(const char *name) {
    static void *library;
    library = library ? library : dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    return (function *)dlsym(library, name);
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "submits %d, waits %d, copies %d, made %d, released %d\n", counts.submits,
            counts.waits, counts.copies, counts.made, counts.released);
}

static bool starts(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* `second` is the object to destroy, which may be null, except for instances and devices. */
static void count(const char *name, word second) {
    const bool whole = starts(name, "vkDestroyInstance") || starts(name, "vkDestroyDevice");
    counts.submits += starts(name, "vkQueueSubmit");
    counts.waits += starts(name, "vkQueueWaitIdle");
    counts.copies += starts(name, "vkCmdCopyBuffer");
    counts.made += starts(name, "vkCreate") || starts(name, "vkAllocateMemory");
    counts.released += whole || ((starts(name, "vkDestroy") || starts(name, "vkFree")) && second);
}

#ifdef MEMORY
static void limit_memory(pe_vk_memories *memories) {
    for (uint32_t i = 0; i < memories->heap_count; i++) {
        memories->heaps[i].bytes = MEMORY;
    }
}
#endif

#ifdef STAGED
/* Two types in the place of the first: of the device alone, and of the host. */
static void split_memory(pe_vk_memories *memories) {
    memories->type_count = 2;
    memories->types[1] = memories->types[0];
    memories->types[0].flags = 1;
    memories->types[1].flags = 2 | 4;
}
#endif

static void limit_device(pe_vk_properties *properties) {
    uint32_t *limits = (uint32_t *)properties->limits;
    (void)limits;
#ifdef ITEMS
    limits[GROUP_ITEMS] = ITEMS;
#endif
#ifdef SHARED
    limits[SHARED_BYTES] = SHARED;
#endif
#ifdef MOST
    if (properties->next) {
        ((pe_vk_largest *)(size_t)properties->next)->allocation = MOST;
    }
#endif
}

/* Changes what a call writes to its second or third argument, or its result. */
static word changed(const char *name, word second, word third, word result) {
    (void)second, (void)third;
#ifdef DEVICES
    if (starts(name, "vkEnumeratePhysicalDevices")) {
        *(uint32_t *)second = DEVICES;
    }
#endif
#ifdef FEATURES
    if (starts(name, "vkGetPhysicalDeviceFeatures2")) {
        ((pe_vk_features *)second)->words[INT64] = 0;
    }
#endif
#ifdef MEMORY
    if (starts(name, "vkGetPhysicalDeviceMemoryProperties")) {
        limit_memory((pe_vk_memories *)second);
    }
#endif
#ifdef STAGED
    if (starts(name, "vkGetPhysicalDeviceMemoryProperties")) {
        split_memory((pe_vk_memories *)second);
    }
    if (starts(name, "vkGetBufferMemoryRequirements")) {
        ((pe_vk_requirements *)third)->types = 3;
    }
#endif
#ifdef TYPES
    if (starts(name, "vkGetBufferMemoryRequirements")) {
        ((pe_vk_requirements *)third)->types = TYPES;
    }
#endif
#ifdef FAULT
    if (starts(name, "vkQueueWaitIdle") && counts.waits == FAULT) {
        return DEVICE_LOST;
    }
#endif
    if (starts(name, "vkGetPhysicalDeviceProperties2")) {
        limit_device((pe_vk_properties *)second);
    }
    return result;
}

#ifdef STAGED
/* The two types of split_memory are one of the driver. */
static word allocated(word device, word info, word allocator, word memory) {
    pe_vk_memory_info first = *(const pe_vk_memory_info *)info;
    first.memory_type = 0;
    return real("vkAllocateMemory")(device, (word)&first, allocator, memory, 0, 0, 0, 0, 0, 0);
}
#define CALL(name) (starts(name, "vkAllocateMemory") ? allocated(a, b, c, d) : FORWARDED(name))
#else
#define CALL FORWARDED
#endif
#define FORWARDED(name) real(name)(a, b, c, d, e, f, g, h, i, j)

#define FORWARD(name, result, arguments)                                                           \
    word vk##name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j); \
    word vk##name(word a, word b, word c, word d, word e, word f, word g, word h, word i,          \
                  word j) {                                                                        \
        count("vk" #name, b);                                                                      \
        return changed("vk" #name, b, c, CALL("vk" #name));                                        \
    }
#define FORWARD_CALL(name, arguments) FORWARD(name, int, arguments)

PE_VULKAN_CALLS(FORWARD_CALL)
PE_VULKAN_ACTIONS(FORWARD)
