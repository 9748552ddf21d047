/* Chooses a Vulkan device that can run the kernels, and allocates its buffers. */
#include "pe_vulkan_device.h"

#include <string.h>

/* Vulkan's enumerators, offsets in its structures, and the lengths of lists that are read. */
enum {
    APPLICATION = 0,
    INSTANCE_INFO = 1,
    QUEUE_INFO = 2,
    DEVICE_INFO = 3,
    MEMORY_INFO = 5,
    BUFFER_INFO = 12,
    FEATURES_1_1 = 49,
    FEATURES_1_2 = 51,
    FEATURES = 1000059000,
    PROPERTIES = 1000059001,
    FLAGS_INFO = 1000060000,
    LARGEST = 1000168000,
    FLOAT_CONTROLS = 1000197000,
    ADDRESS_INFO = 1000244001,

    VERSION_1_2 = 1 << 22 | 2 << 12,
    COMPUTE = 2,
    DEVICE_LOCAL = 1,
    HOST_COHERENT = 2 | 4,
    ADDRESSED = 2,
    USED_AS = 1 | 2 | 32 |
        131072, /* a source and target of copies, a storage buffer, with an address */

    KEEPS_NAN = 3, /* words of structures */
    SHARED_BYTES = 54,
    GROUPS = 55,
    ITEMS = 58,
    ITEMS_X = 59,

    LIMITS = 126, /* words */
    DEVICES = 16,
    FAMILIES = 16,
};

/* Features that the kernels need: the structure (of Vulkan 1.0, 1.1 or 1.2) and the word in it. */
static const struct {
    int version, word;
    const char *name;
} NEEDED[] = {
    {0, 40, "shaderInt64"},
    {0, 41, "shaderInt16"},
    {1, 0, "storageBuffer16BitAccess"},
    {1, 7, "variablePointersStorageBuffer"},
    {1, 8, "variablePointers"},
    {2, 2, "storageBuffer8BitAccess"},
    {2, 8, "shaderInt8"},
    {2, 38, "bufferDeviceAddress"},
};

enum { NEEDED_COUNT = sizeof NEEDED / sizeof *NEEDED };

/* Chains the structures of features of three versions. */
static void chain_features(pe_vk_features features[3]) {
    static const int types[] = {FEATURES, FEATURES_1_1, FEATURES_1_2};
    memset(features, 0, 3 * sizeof *features);
    for (int i = 0; i < 3; i++) {
        features[i].type = types[i];
        features[i].next = i < 2 ? &features[i + 1] : NULL;
    }
}

/* The index of a device's first queue family for compute, or -1. */
static int family_of(const pe_vulkan_driver *driver, void *physical) {
    pe_vk_family families[FAMILIES];
    uint32_t count = FAMILIES;
    driver->GetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (families[i].flags & COMPUTE) {
            return (int)i;
        }
    }
    return -1;
}

/* The rank of a kind of device: discrete GPUs, then integrated ones, virtual ones, others. */
static int rank_of(uint32_t kind) { return kind == 2 ? 3 : kind == 1 ? 2 : kind == 3 ? 1 : 0; }

/* Chooses a device of Vulkan 1.2, or fails. */
static pe_status choose(pe_vulkan_device *vulkan, char *message) {
    const pe_vulkan_driver *driver = &vulkan->driver;
    void *devices[DEVICES];
    uint32_t count = DEVICES;
    int best = -1;
    PE_VULKAN_TRY(vulkan, message, EnumeratePhysicalDevices, vulkan->instance, &count, devices);
    for (uint32_t i = 0; i < count; i++) {
        pe_vk_properties properties = {.type = PROPERTIES};
        driver->GetPhysicalDeviceProperties2(devices[i], &properties);
        const int family = family_of(driver, devices[i]), rank = rank_of(properties.kind);
        if (properties.api_version >= VERSION_1_2 && family >= 0 && rank > best) {
            best = rank;
            vulkan->physical = devices[i];
            vulkan->family = (uint32_t)family;
        }
    }
    return vulkan->physical
               ? PE_OK
               : pe_fail(message, PE_ERROR_SYSTEM,
                         "this machine has no Vulkan 1.2 device with a compute queue: see what "
                         "vulkaninfo lists, install the GPU's driver, or compile for the "
                         "backend c");
}

/* Reads the device's limits; returns the name of a feature that it lacks, or NULL. */
static const char *read_limits(pe_vulkan_device *vulkan) {
    pe_vk_float_controls controls = {.type = FLOAT_CONTROLS};
    pe_vk_largest largest = {.type = LARGEST, .next = &controls};
    pe_vk_properties properties = {.type = PROPERTIES, .next = &largest};
    uint32_t limits[LIMITS];
    pe_vk_features features[3];
    chain_features(features);
    vulkan->driver.GetPhysicalDeviceProperties2(vulkan->physical, &properties);
    vulkan->driver.GetPhysicalDeviceFeatures2(vulkan->physical, features);
    memcpy(limits, properties.limits, sizeof limits);
    memcpy(vulkan->name, properties.name, sizeof vulkan->name);
    const uint32_t items = limits[ITEMS], items_x = limits[ITEMS_X];
    vulkan->limits = (pe_vulkan_limits){items < items_x ? items : items_x, limits[GROUPS],
                                        limits[SHARED_BYTES], largest.allocation};
    for (int i = 0; i < NEEDED_COUNT; i++) {
        if (!features[NEEDED[i].version].words[NEEDED[i].word]) {
            return NEEDED[i].name;
        }
    }
    return controls.words[KEEPS_NAN] ? NULL : "shaderSignedZeroInfNanPreserveFloat32";
}

/* The first memory type with all flags whose heap has at least `bytes`, or -1. */
static int type_with(const pe_vk_memories *memories, uint32_t flags, uint64_t bytes) {
    for (uint32_t i = 0; i < memories->type_count; i++) {
        const bool has = (memories->types[i].flags & flags) == flags;
        if (has && memories->heaps[memories->types[i].heap].bytes >= bytes) {
            return (int)i;
        }
    }
    return -1;
}

/* Chooses device-local memory, if possible of a type that the host can map. */
static void choose_types(pe_vulkan_device *vulkan, uint64_t bytes) {
    pe_vk_memories memories;
    vulkan->driver.GetPhysicalDeviceMemoryProperties(vulkan->physical, &memories);
    const int both = type_with(&memories, DEVICE_LOCAL | HOST_COHERENT, bytes);
    vulkan->maps = both >= 0;
    vulkan->memory_type = (uint32_t)(vulkan->maps ? both : type_with(&memories, DEVICE_LOCAL, 0));
    vulkan->host_type = (uint32_t)type_with(&memories, HOST_COHERENT, 0);
    vulkan->heap_bytes = memories.heaps[memories.types[vulkan->memory_type].heap].bytes;
}

static pe_status open_instance(pe_vulkan_device *vulkan, char *message) {
    const pe_vk_application application = {.type = APPLICATION, .api_version = VERSION_1_2};
    const pe_vk_instance_info info = {.type = INSTANCE_INFO, .application = &application};
    PE_VULKAN_TRY(vulkan, message, CreateInstance, &info, NULL, &vulkan->instance);
    return PE_OK;
}

static pe_status open_queue(pe_vulkan_device *vulkan, char *message) {
    const float priority = 1.0f;
    const pe_vk_queue_info queue = {
        .type = QUEUE_INFO, .family = vulkan->family, .count = 1, .priorities = &priority};
    pe_vk_features features[3];
    chain_features(features);
    for (int i = 0; i < NEEDED_COUNT; i++) {
        features[NEEDED[i].version].words[NEEDED[i].word] = 1;
    }
    const pe_vk_device_info info = {
        .type = DEVICE_INFO, .next = features, .queue_count = 1, .queues = &queue};
    PE_VULKAN_TRY(vulkan, message, CreateDevice, vulkan->physical, &info, NULL, &vulkan->device);
    vulkan->driver.GetDeviceQueue(vulkan->device, vulkan->family, 0, &vulkan->queue);
    return PE_OK;
}

pe_status pe_vulkan_open_device(pe_vulkan_device *vulkan, uint64_t bytes, char *message) {
    pe_status status = pe_vulkan_load(&vulkan->driver, message);
    status = status == PE_OK ? open_instance(vulkan, message) : status;
    status = status == PE_OK ? choose(vulkan, message) : status;
    if (status != PE_OK) {
        return status;
    }
    const char *lacking = read_limits(vulkan);
    if (lacking) {
        return pe_fail(
            message, PE_ERROR_MISMATCH,
            "%s lacks Vulkan's %s, which the kernels need: update its driver, or compile "
            "for the backend c",
            vulkan->name, lacking);
    }
    choose_types(vulkan, bytes);
    return open_queue(vulkan, message);
}

void pe_vulkan_close_device(pe_vulkan_device *vulkan) {
    if (vulkan->device) {
        vulkan->driver.DestroyDevice(vulkan->device, NULL);
    }
    if (vulkan->instance) {
        vulkan->driver.DestroyInstance(vulkan->instance, NULL);
    }
}

pe_status pe_vulkan_make_buffer(const pe_vulkan_device *vulkan, size_t bytes, uint32_t type,
                                pe_vulkan_buffer *buffer, char *message) {
    void *device = vulkan->device;
    const pe_vk_buffer_info info = {.type = BUFFER_INFO, .bytes = bytes, .usage = USED_AS};
    if (bytes == 0) {
        return PE_OK;
    }
    PE_VULKAN_TRY(vulkan, message, CreateBuffer, device, &info, NULL, &buffer->buffer);
    pe_vk_requirements needs;
    vulkan->driver.GetBufferMemoryRequirements(device, buffer->buffer, &needs);
    if (!(needs.types >> type & 1)) {
        return pe_fail(message, PE_ERROR_MISMATCH,
                       "%s allows no buffers in its memory of type %u: compile for the backend c",
                       vulkan->name, type);
    }
    const pe_vk_flags_info flags = {.type = FLAGS_INFO, .flags = ADDRESSED};
    const pe_vk_memory_info memory = {
        .type = MEMORY_INFO, .next = &flags, .bytes = needs.bytes, .memory_type = type};
    PE_VULKAN_TRY(vulkan, message, AllocateMemory, device, &memory, NULL, &buffer->memory);
    PE_VULKAN_TRY(vulkan, message, BindBufferMemory, device, buffer->buffer, buffer->memory, 0);
    const pe_vk_address_info address = {.type = ADDRESS_INFO, .buffer = buffer->buffer};
    buffer->address = vulkan->driver.GetBufferDeviceAddress(device, &address);
    if (type == vulkan->host_type || vulkan->maps) {
        void *mapped = NULL;
        PE_VULKAN_TRY(vulkan, message, MapMemory, device, buffer->memory, 0, bytes, 0, &mapped);
        buffer->mapped = mapped;
    }
    return PE_OK;
}

void pe_vulkan_release_buffer(const pe_vulkan_device *vulkan, pe_vulkan_buffer *buffer) {
    if (buffer->buffer) {
        vulkan->driver.DestroyBuffer(vulkan->device, buffer->buffer, NULL);
    }
    if (buffer->memory) {
        vulkan->driver.FreeMemory(vulkan->device, buffer->memory, NULL);
    }
}
