/* A .npz file: a ZIP archive of .npy files. Entries are found by the headers before
 * their data; only uncompressed entries can be read by position. Each is read once to verify its
 * checksum. */
#include <stdio.h>
#include <string.h>

#include "pe_crc.h"
#include "pe_data_source.h"

enum { LOCAL_BYTES = 30, EXTRA_BYTES = 256, ENCRYPTED = 1, SIZES_BEHIND = 8 };

#define LOCAL_ENTRY 0x04034B50U
#define CENTRAL_ENTRY 0x02014B50U
#define END_OF_ARCHIVE 0x06054B50U
#define IN_EXTRA 0xFFFFFFFFU
#define ZIP64 1

/* An entry of the archive, and its source. */
typedef struct npz_entry {
    int file;
    const char *path;
    char *message;
    uint64_t bytes;      /* of the archive */
    uint64_t begin, end; /* of the entry's data */
    uint32_t crc;        /* of the entry's data, from its header */
    pe_st_tensor tensor;
} npz_entry;

static uint64_t little(const unsigned char *data, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | data[i];
    }
    return value;
}

static pe_status bad(const npz_entry *e, const char *fact) {
    return pe_fail(e->message, PE_ERROR_FORMAT, "%s is no sound .npz file: %s", e->path, fact);
}

/* Reads bytes of the archive, which must have them. */
static pe_status read_at(const npz_entry *e, uint64_t offset, void *data, size_t bytes) {
    return offset <= e->bytes && bytes <= e->bytes - offset
               ? pe_st_read_at(e->file, e->path, offset, data, bytes, e->message)
               : bad(e, "it ends too early");
}

/* Reads the sizes of an entry from its extra fields if they are too large for its header. */
static pe_status read_wide_sizes(const npz_entry *e, uint64_t offset, size_t length,
                                 uint64_t *stored, uint64_t *size) {
    unsigned char extra[EXTRA_BYTES];
    if (length > sizeof extra) {
        return bad(e, "an entry has too many extra fields");
    }
    const pe_status status = read_at(e, offset, extra, length);
    for (size_t at = 0; status == PE_OK && at + 20 <= length;) {
        if (little(extra + at, 2) == ZIP64 && little(extra + at + 2, 2) >= 16) {
            *size = little(extra + at + 4, 8);
            *stored = little(extra + at + 12, 8);
            return PE_OK;
        }
        at += 4 + (size_t)little(extra + at + 2, 2);
    }
    return status == PE_OK ? bad(e, "an entry does not say its size") : status;
}

/* Reads the name of an entry, which becomes the tensor's. */
static pe_status read_name(npz_entry *e, uint64_t offset, size_t length) {
    char *name = e->tensor.name;
    if (length >= sizeof e->tensor.name) {
        return bad(e, "the name of an entry is too long");
    }
    const pe_status status = read_at(e, offset, name, length);
    name[length] = '\0';
    if (status != PE_OK) {
        return status;
    }
    if (strlen(name) != length || length < 5 || strcmp(name + length - 4, ".npy") != 0) {
        return bad(e, "it holds something else than arrays, whose names end in .npy");
    }
    name[length - 4] = '\0';
    return PE_OK;
}

/* Checks that an entry's data are stored uncompressed. */
static pe_status check_stored(const npz_entry *e, unsigned flags, unsigned method) {
    if (method != 0) {
        return pe_fail(e->message, PE_ERROR_FORMAT,
                       "%s holds %.100s compressed, so that its rows cannot be found; write it by "
                       "numpy.savez, not by savez_compressed",
                       e->path, e->tensor.name);
    }
    if (flags & (ENCRYPTED | SIZES_BEHIND)) {
        return bad(e, "an entry is encrypted, or has its size behind it; write it by numpy.savez");
    }
    return PE_OK;
}

/* Reads the header of the entry at e->end; its data are then from e->begin to e->end. */
static pe_status read_entry(npz_entry *e, const unsigned char *header) {
    const uint64_t after = e->end + LOCAL_BYTES;
    const size_t name = (size_t)little(header + 26, 2), extra = (size_t)little(header + 28, 2);
    e->crc = (uint32_t)little(header + 14, 4);
    uint64_t stored = little(header + 18, 4), size = little(header + 22, 4);
    pe_status status = read_name(e, after, name);
    if (status == PE_OK) {
        status = check_stored(e, (unsigned)little(header + 6, 2), (unsigned)little(header + 8, 2));
    }
    if (status == PE_OK && (stored == IN_EXTRA || size == IN_EXTRA)) {
        status = read_wide_sizes(e, after + name, extra, &stored, &size);
    }
    if (status != PE_OK) {
        return status;
    }
    e->begin = after + name + extra;
    if (stored != size || e->begin > e->bytes || size > e->bytes - e->begin) {
        return bad(e, "the size of an entry is wrong");
    }
    e->end = e->begin + size;
    return PE_OK;
}

/* Compares the data of an entry with its checksum. */
static pe_status check_sum(const npz_entry *e) {
    uint32_t crc = PE_CRC_EMPTY;
    const pe_status status =
        pe_st_sum(e->file, e->path, e->begin, e->end - e->begin, &crc, e->message);
    return status != PE_OK || crc == e->crc
               ? status
               : pe_fail(e->message, PE_ERROR_FORMAT,
                         "%s is damaged: the checksum of %.100s does not fit; copy it again",
                         e->path, e->tensor.name);
}

pe_status pe_npz_read(int file, const char *path, const pe_st_visitor *visitor, char *message) {
    npz_entry e = {.file = file, .path = path, .message = message};
    unsigned char header[LOCAL_BYTES];
    char label[PE_MESSAGE_BYTES];
    pe_status status = pe_st_size(file, path, &e.bytes, message);
    while (status == PE_OK) {
        status = read_at(&e, e.end, header, 4);
        const uint64_t signature = status == PE_OK ? little(header, 4) : 0;
        if (signature == CENTRAL_ENTRY || signature == END_OF_ARCHIVE) {
            return PE_OK;
        }
        if (status == PE_OK) {
            status = signature == LOCAL_ENTRY ? read_at(&e, e.end, header, sizeof header)
                                              : bad(&e, "an entry does not begin as one");
        }
        if (status == PE_OK) {
            status = read_entry(&e, header);
        }
        if (status == PE_OK) {
            status = check_sum(&e);
        }
        if (status == PE_OK) {
            snprintf(label, sizeof label, "%.300s: %.100s.npy", path, e.tensor.name);
            status = pe_npy_read(file, label, e.begin, e.end, &e.tensor, message);
        }
        if (status == PE_OK) {
            status = visitor->tensor(visitor->context, &e.tensor, message);
        }
    }
    return status;
}
