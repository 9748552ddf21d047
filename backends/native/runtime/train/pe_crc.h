/* CRC-32 of ISO 3309, as in zlib and gzip: every flipped byte changes it. */
#ifndef PE_CRC_H
#define PE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Of no bytes. */
#define PE_CRC_EMPTY ((uint32_t)0)

/* The checksum of the bytes so far, and of these after them. */
uint32_t pe_crc32(uint32_t crc, const void *data, size_t bytes);

/* Writes 8 hexadecimal digits and a NUL. */
void pe_crc_digits(uint32_t crc, char *digits);

#endif
