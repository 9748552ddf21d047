/* Runs programs with the CUDA driver API: the functions of a pe_accelerator whose code is a
 * pe_gpu_code.
 *
 * Device memory is allocated once, when a session opens. An entry is captured as a CUDA graph at
 * its first run and replayed afterwards: inputs are copied to the device, the graph is launched,
 * outputs are copied back. Params are copied to the device if the host changed them, and back on
 * request.
 */
#ifndef PE_CUDA_H
#define PE_CUDA_H

#include "pe_gpu.h"

pe_status pe_cuda_open(pe_session *session);
void pe_cuda_close(pe_session *session);
pe_status pe_cuda_run(pe_session *session, const pe_entry *entry);
pe_status pe_cuda_fetch(pe_session *session);

#endif
