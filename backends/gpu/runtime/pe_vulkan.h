/* Runs programs by Vulkan: the functions of a pe_accelerator, whose code is a pe_gpu_code and whose
 * image is an array of pe_vulkan_module.
 *
 * When a session opens, each function becomes a pipeline, each memory a buffer, and each entry one
 * command buffer: its launches in order, with a barrier after each. A launch passes the address of
 * its pointers, so there are no descriptors. A step submits its command buffer, with no host work
 * between launches.
 */
#ifndef PE_VULKAN_H
#define PE_VULKAN_H

#include "pe_gpu.h"

/* SPIR-V of one function, whose entry point is "main"; the last of an array has no function. */
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
