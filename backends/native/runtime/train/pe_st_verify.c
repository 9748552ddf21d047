/* Verifies a file's checksums: of its header, which contains those of its tensors. */
#include <string.h>

#include "pe_crc.h"
#include "pe_safetensors.h"

/* A file whose tensors are compared one by one with the header's checksums. */
typedef struct verifying {
    int file;
    const char *path;
    uint64_t next; /* offset of the next tensor's digits */
} verifying;

/* Whether the file has this text at a position; also false if the file is too short. */
static bool holds(int file, const char *path, uint64_t at, const char *text) {
    char found[64], ignored[PE_MESSAGE_BYTES];
    const size_t length = strlen(text);
    return pe_st_read_at(file, path, at, found, length, ignored) == PE_OK &&
           memcmp(found, text, length) == 0;
}

pe_status pe_st_sum(int file, const char *path, uint64_t at, uint64_t bytes, uint32_t *crc,
                    char *message) {
    unsigned char buffer[8192];
    pe_status status = PE_OK;
    while (status == PE_OK && bytes > 0) {
        const size_t count = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        status = pe_st_read_at(file, path, at, buffer, count, message);
        if (status == PE_OK) {
            *crc = pe_crc32(*crc, buffer, count);
        }
        at += count;
        bytes -= count;
    }
    return status;
}

/* Compares a checksum with its digits in the header. */
static pe_status compare(const verifying *v, uint32_t crc, uint64_t digits_at, const char *what,
                         char *message) {
    char digits[PE_ST_DIGITS + 1];
    pe_crc_digits(crc, digits);
    return holds(v->file, v->path, digits_at, digits)
               ? PE_OK
               : pe_fail(message, PE_ERROR_FORMAT,
                         "%s is damaged: the checksum of %s does not fit; take an older "
                         "checkpoint",
                         v->path, what);
}

/* Checks the header, whose own digits count as '0'. */
static pe_status verify_header(const verifying *v, char *message) {
    unsigned char prefix[PE_ST_PREFIX];
    uint32_t crc = PE_CRC_EMPTY;
    uint64_t length = 0;
    const uint64_t behind = PE_ST_SEAL_AT + PE_ST_DIGITS;
    pe_status status = pe_st_read_at(v->file, v->path, 0, prefix, sizeof prefix, message);
    for (int i = PE_ST_PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    length = length < PE_ST_HEADER_LIMIT ? length : PE_ST_HEADER_LIMIT;
    if (status == PE_OK) {
        status = pe_st_sum(v->file, v->path, 0, PE_ST_SEAL_AT, &crc, message);
    }
    crc = pe_crc32(crc, "00000000", PE_ST_DIGITS);
    if (status == PE_OK && PE_ST_PREFIX + length > behind) {
        status = pe_st_sum(v->file, v->path, behind, PE_ST_PREFIX + length - behind, &crc, message);
    }
    return status == PE_OK ? compare(v, crc, PE_ST_SEAL_AT, "its header", message) : status;
}

static pe_status visit(void *context, const pe_st_tensor *tensor, char *message) {
    verifying *v = context;
    const uint64_t digits_at = v->next;
    uint32_t crc = PE_CRC_EMPTY;
    v->next += PE_ST_DIGITS;
    const pe_status status =
        pe_st_sum(v->file, v->path, tensor->offset, tensor->bytes, &crc, message);
    return status == PE_OK ? compare(v, crc, digits_at, tensor->name, message) : status;
}

pe_status pe_st_verify(int file, const char *path, bool *sealed, char *message) {
    verifying v = {file, path, PE_ST_SUMS_AT};
    const pe_st_visitor visitor = {.tensor = visit, .context = &v};
    *sealed = holds(file, path, PE_ST_PREFIX, PE_ST_SEAL);
    const pe_status status = *sealed ? verify_header(&v, message) : PE_OK;
    return status == PE_OK && *sealed ? pe_st_read(file, path, &visitor, message) : status;
}
