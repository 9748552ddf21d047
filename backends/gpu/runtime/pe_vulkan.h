/* Runs programs by Vulkan: the functions of a pe_accelerator, whose code is a pe_gpu_code and whose
 * image is an array of pe_vulkan_module.
 *
 * When a session opens, each kernel becomes a pipeline, each memory a buffer, and each entry a
 * command buffer of its launches, with a barrier after each. A kernel gets the address of its table
 * of pointers as a push constant, so there are no descriptors. A step submits one command buffer;
 * the host does no work between launches.
 */
#ifndef PE_VULKAN_H
#define PE_VULKAN_H

#include "pe_gpu.h"

/* The SPIR-V of one kernel, whose entry point is "main". An array ends with a NULL function. */
typedef struct pe_vulkan_module {
    const char *function;
    const void *words;
    size_t bytes;
    size_t shared_bytes; /* of a group */
} pe_vulkan_module;

pe_status pe_vulkan_open(pe_session *session);
void pe_vulkan_close(pe_session *session);
pe_status pe_vulkan_run(pe_session *session, const pe_entry *entry);
pe_status pe_vulkan_fetch(pe_session *session);

#endif
