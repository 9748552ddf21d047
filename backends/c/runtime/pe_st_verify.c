/* The checksums of a file: of its header, which holds those of its tensors. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "pe_crc.h"
#include "pe_safetensors.h"

/* A file whose tensors are compared one after the other with the header's checksums. */
typedef struct verifying {
    int file;
    const char *path;
    uint64_t next; /* where the digits of the next tensor stand */
} verifying;

/* Whether these bytes of the file are the text; false also where the file is too short. */
static bool holds(int file, const char *path, uint64_t at, const char *text) {
    char found[64], ignored[PE_MESSAGE_BYTES];
    const size_t length = strlen(text);
    return pe_st_read_at(file, path, at, found, length, ignored) == PE_OK &&
           memcmp(found, text, length) == 0;
}

/* Extends a checksum by bytes of the file, with '0' for the header's own digits. */
static pe_status sum(int file, const char *path, uint64_t at, uint64_t bytes, uint32_t *crc,
                     char *message) {
    char buffer[8192];
    while (bytes > 0) {
        const size_t count = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        const pe_status status = pe_st_read_at(file, path, at, buffer, count, message);
        if (status != PE_OK) {
            return status;
        }
        if (at == 0 && count >= PE_ST_SEAL_AT + PE_ST_DIGITS) {
            memset(buffer + PE_ST_SEAL_AT, '0', PE_ST_DIGITS);
        }
        *crc = pe_crc32(*crc, buffer, count);
        at += count;
        bytes -= count;
    }
    return PE_OK;
}

/* Compares the sum of a part of the file with the digits that the header has for it. */
static pe_status compare(const verifying *v, uint64_t at, uint64_t bytes, uint64_t digits_at,
                         const char *what, char *message) {
    char digits[PE_ST_DIGITS + 1];
    uint32_t crc = PE_CRC_EMPTY;
    const pe_status status = sum(v->file, v->path, at, bytes, &crc, message);
    if (status != PE_OK) {
        return status;
    }
    pe_crc_digits(crc, digits);
    if (!holds(v->file, v->path, digits_at, digits)) {
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s is damaged: the checksum of %s does not fit; take an older checkpoint",
                       v->path, what);
    }
    return PE_OK;
}

static pe_status visit(void *context, const pe_st_tensor *tensor, char *message) {
    verifying *v = context;
    const uint64_t digits_at = v->next;
    v->next += PE_ST_DIGITS;
    return compare(v, tensor->offset, tensor->bytes, digits_at, tensor->name, message);
}

pe_status pe_st_verify(int file, const char *path, bool *sealed, char *message) {
    verifying v = {file, path, PE_ST_SUMS_AT};
    unsigned char prefix[PE_ST_PREFIX];
    *sealed = holds(file, path, PE_ST_PREFIX, PE_ST_SEAL);
    if (!*sealed) {
        return PE_OK;
    }
    uint64_t length = 0;
    pe_status status = pe_st_read_at(file, path, 0, prefix, sizeof prefix, message);
    for (int i = PE_ST_PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    if (status == PE_OK) {
        length = length < PE_ST_HEADER_LIMIT ? length : PE_ST_HEADER_LIMIT;
        status = compare(&v, 0, PE_ST_PREFIX + length, PE_ST_SEAL_AT, "its header", message);
    }
    const pe_st_visitor visitor = {.tensor = visit, .context = &v};
    return status == PE_OK ? pe_st_read(file, path, &visitor, message) : status;
}
