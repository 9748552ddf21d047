/* The safetensors reader: a parser of exactly the header's grammar, without recursion.
 *
 *     header = { [ entry , ... ] }
 *     entry  = "name" : tensor | "__metadata__" : { "key" : "text", ... }
 *     tensor = { "dtype" : "F32", "shape" : [n, ...], "data_offsets" : [begin, end] }
 *
 * The keys of a tensor may be in any order.
 */
#include <string.h>

#include "pe_st_header.h"

static uint64_t dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } known[] = {{"F32", 4}, {"I64", 8},  {"I32", 4}, {"BOOL", 1}, {"F64", 8},
                 {"F16", 2}, {"BF16", 2}, {"U8", 1},  {"I8", 1},   {"I16", 2},
                 {"U16", 2}, {"U32", 4},  {"U64", 8}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, dtype) == 0) {
            return known[i].bytes;
        }
    }
    return 0;
}

/* Sets the size of the tensor and compares it with its interval of the data. */
static void check_extent(pe_st_header *h, pe_st_tensor *tensor, uint64_t begin, uint64_t end,
                         uint64_t expected) {
    uint64_t bytes = dtype_bytes(tensor->dtype);
    if (bytes == 0) {
        pe_st_bad(h, "unknown dtype");
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes)) {
            pe_st_bad(h, "shape too large");
        }
    }
    if (begin != expected) {
        pe_st_bad(h, "tensors overlap or leave a gap");
    }
    if (end < begin || end - begin != bytes) {
        pe_st_bad(h, "data_offsets do not fit dtype and shape");
    }
    tensor->bytes = bytes;
    tensor->offset = h->end + begin;
}

/* One value of a tensor's description; returns which key it was, as a bit. */
static unsigned parse_field(pe_st_header *h, pe_st_tensor *tensor, uint64_t *offsets) {
    char key[16];
    uint64_t shape[PE_MAX_RANK];
    pe_st_string(h, key, sizeof key);
    pe_st_expect(h, ':');
    if (strcmp(key, "dtype") == 0) {
        pe_st_string(h, tensor->dtype, sizeof tensor->dtype);
        return 1;
    }
    if (strcmp(key, "shape") == 0) {
        tensor->rank = pe_st_list(h, shape, PE_MAX_RANK);
        for (int i = 0; i < tensor->rank; i++) {
            tensor->shape[i] = (int64_t)shape[i];
        }
        return 2;
    }
    if (strcmp(key, "data_offsets") == 0) {
        if (pe_st_list(h, offsets, 2) != 2) {
            pe_st_bad(h, "data_offsets need two integers");
        }
        return 4;
    }
    pe_st_bad(h, "unknown key in a tensor's description");
    return 0;
}

/* Fills the tensor except for its name; `*data_end` is where the one before ended. */
static void parse_tensor(pe_st_header *h, pe_st_tensor *tensor, uint64_t *data_end) {
    uint64_t offsets[2] = {0, 0};
    unsigned seen = 0;
    pe_st_expect(h, '{');
    do {
        const unsigned key = parse_field(h, tensor, offsets);
        if (seen & key) {
            pe_st_bad(h, "a key is given twice");
        }
        seen |= key;
    } while (pe_st_accept(h, ','));
    pe_st_expect(h, '}');
    if (seen != 7) {
        pe_st_bad(h, "dtype, shape or data_offsets is missing");
    }
    if (h->failed == PE_OK) {
        check_extent(h, tensor, offsets[0], offsets[1], *data_end);
        *data_end = offsets[1];
    }
}

/* Visits every pair of texts; long ones are cut off. */
static void parse_metadata(pe_st_header *h, const pe_st_visitor *visitor) {
    char key[PE_ST_TEXT_BYTES], value[PE_ST_TEXT_BYTES];
    pe_st_expect(h, '{');
    if (pe_st_accept(h, '}')) {
        return;
    }
    do {
        pe_st_long_string(h, key, sizeof key);
        pe_st_expect(h, ':');
        pe_st_long_string(h, value, sizeof value);
        if (h->failed == PE_OK && visitor->text) {
            h->failed = visitor->text(visitor->context, key, value, h->message);
        }
    } while (pe_st_accept(h, ','));
    pe_st_expect(h, '}');
}

static void parse_entry(pe_st_header *h, const pe_st_visitor *visitor, uint64_t *data_end) {
    pe_st_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    pe_st_string(h, tensor.name, sizeof tensor.name);
    pe_st_expect(h, ':');
    if (strcmp(tensor.name, "__metadata__") == 0) {
        parse_metadata(h, visitor);
        return;
    }
    parse_tensor(h, &tensor, data_end);
    if (h->failed == PE_OK) {
        h->failed = visitor->tensor(visitor->context, &tensor, h->message);
    }
}

/* Parses the header; *data_end becomes the length of the data. */
static pe_status parse_header(pe_st_header *h, const pe_st_visitor *visitor, uint64_t *data_end) {
    pe_st_expect(h, '{');
    bool more = !pe_st_accept(h, '}');
    while (more && h->failed == PE_OK) {
        parse_entry(h, visitor, data_end);
        more = pe_st_accept(h, ',');
        if (!more) {
            pe_st_expect(h, '}');
        }
    }
    pe_st_skip_space(h);
    if (pe_st_peek(h) != 0 || h->next != h->fill || h->position != h->end) {
        pe_st_bad(h, "text after the header's end");
    }
    return h->failed;
}

/* Checks the lengths of file and header. */
static pe_status open_header(pe_st_header *h, uint64_t *file_bytes) {
    unsigned char prefix[8];
    pe_status failed = pe_st_size(h->file, h->path, file_bytes, h->message);
    if (failed == PE_OK && *file_bytes < sizeof prefix) {
        return pe_st_bad(h, "shorter than the length of a header");
    }
    if (failed == PE_OK) {
        failed = pe_st_read_at(h->file, h->path, 0, prefix, sizeof prefix, h->message);
    }
    if (failed != PE_OK) {
        return failed;
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    if (length > PE_ST_HEADER_LIMIT || length > *file_bytes - sizeof prefix) {
        return pe_st_bad(h, "the header's length is absurd");
    }
    h->position = sizeof prefix;
    h->end = sizeof prefix + length;
    return PE_OK;
}

pe_status pe_st_read(int file, const char *path, const pe_st_visitor *visitor, char *message) {
    pe_st_header h;
    memset(&h, 0, sizeof h);
    h.file = file;
    h.path = path;
    h.message = message;
    uint64_t file_bytes = 0, data_end = 0;
    pe_status status = open_header(&h, &file_bytes);
    if (status == PE_OK) {
        status = parse_header(&h, visitor, &data_end);
    }
    if (status == PE_OK && file_bytes - h.end != data_end) {
        status = pe_fail(message, PE_ERROR_FORMAT,
                         "%s is no sound safetensors file: %llu bytes of data, not %llu", path,
                         (unsigned long long)(file_bytes - h.end), (unsigned long long)data_end);
    }
    return status;
}
