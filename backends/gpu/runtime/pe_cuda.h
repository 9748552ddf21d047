/* Runs programs by CUDA's driver: the functions of a pe_accelerator, whose code is a pe_gpu_code.
 *
 * Memory is taken once, when a session opens. An entry is captured as a graph when it first runs,
 * and replayed from then on: inputs go there, the graph is launched, outputs come back. Params go
 * there where they were changed here, and come back when they are asked for.
 */
#ifndef PE_CUDA_H
#define PE_CUDA_H

#include "pe_gpu.h"

pe_status pe_cuda_open(pe_session *session);
void pe_cuda_close(pe_session *session);
pe_status pe_cuda_run(pe_session *session, const pe_entry *entry);
pe_status pe_cuda_fetch(pe_session *session);

#endif
