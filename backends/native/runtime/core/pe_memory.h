/* Memory from the operating system, and files mapped into it. A freestanding build has neither. */
#ifndef PE_MEMORY_H
#define PE_MEMORY_H

#include "pe.h"

/* Maps zeros, aligned to PE_ALIGN; NULL when that fails. Untouched pages take no
 * memory. Large ones begin at a huge page. */
unsigned char *pe_map(pe_mapping *mapping, size_t bytes);

/* Maps these bytes of a file read-only; all mappings of a file share the pages of the system's
 * cache. NULL when that fails. */
const unsigned char *pe_map_file(pe_mapping *mapping, int file, uint64_t offset, size_t bytes);

/* Lets a mapping be written: pages of a file are copied at the first write, and the file is
 * unchanged. False when that fails. */
bool pe_map_writable(const pe_mapping *mapping);

/* Returns the memory to the system, if there is any. */
void pe_unmap(pe_mapping *mapping);

/* Why the last of these failed, as an errno value. */
int pe_map_error(void);

#endif
