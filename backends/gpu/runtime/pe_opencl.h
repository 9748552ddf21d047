/* Runs programs with OpenCL: the functions of a pe_accelerator whose code is a pe_gpu_code.
 *
 * When a session opens, the driver builds the kernels from source, each memory becomes a buffer,
 * and each launch gets its own kernel object, whose arguments are set once: a buffer and an offset
 * for each place. An entry enqueues its launches in order, with no host work between them.
 */
#ifndef PE_OPENCL_H
#define PE_OPENCL_H

#include "pe_gpu.h"

pe_status pe_opencl_open(pe_session *session);
void pe_opencl_close(pe_session *session);
pe_status pe_opencl_run(pe_session *session, const pe_entry *entry);
pe_status pe_opencl_fetch(pe_session *session);

#endif
