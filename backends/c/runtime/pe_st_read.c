/* The safetensors reader: a parser of exactly the header's grammar, without recursion.
 *
 *     header = { [ entry , ... ] }     entry = "name" : tensor | "__metadata__" : { "key" : "text",
 * ... } tensor = { "dtype" : "F32", "shape" : [n, ...], "data_offsets" : [begin, end] }, keys in
 * any order
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pe_safetensors.h"

/* The header as a stream of characters; `failed` is sticky, and a failed stream is all zeros. */
typedef struct header {
    int file;
    const char *path;
    char *message;
    uint64_t position; /* in the file, of the byte after the buffer */
    uint64_t end;      /* of the header */
    size_t next, fill;
    pe_status failed;
    unsigned char buffer[4096];
} header;

static pe_status bad(header *h, const char *fact) {
    if (h->failed == PE_OK) {
        const uint64_t at = h->position - (h->fill - h->next);
        h->failed =
            pe_fail(h->message, PE_ERROR_FORMAT, "%s is no sound safetensors file: %s at byte %llu",
                    h->path, fact, (unsigned long long)at);
    }
    return h->failed;
}

/* The next character, or 0 at the header's end or after a failure. */
static int peek(header *h) {
    if (h->failed != PE_OK) {
        return 0;
    }
    if (h->next == h->fill) {
        const uint64_t left = h->end - h->position;
        const size_t want = left < sizeof h->buffer ? (size_t)left : sizeof h->buffer;
        h->next = 0;
        h->fill = 0;
        if (want == 0) {
            return 0;
        }
        h->failed = pe_st_read_at(h->file, h->path, h->position, h->buffer, want, h->message);
        if (h->failed != PE_OK) {
            return 0;
        }
        h->fill = want;
        h->position += want;
    }
    return h->buffer[h->next];
}

static int take(header *h) {
    const int c = peek(h);
    if (c != 0) {
        h->next++;
    }
    return c;
}

static void skip_space(header *h) {
    for (int c = peek(h); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(h)) {
        h->next++;
    }
}

/* Takes this token if it is next. */
static bool accept(header *h, char token) {
    skip_space(h);
    if (peek(h) != token) {
        return false;
    }
    h->next++;
    return true;
}

static void expect(header *h, char token) {
    if (!accept(h, token)) {
        char fact[] = "expected 'x'";
        fact[sizeof fact - 3] = token;
        bad(h, fact);
    }
}

static unsigned hex4(header *h) {
    unsigned code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = take(h);
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            bad(h, "bad \\u escape");
            return 0;
        }
        code = code * 16 + (unsigned)digit;
    }
    return code;
}

/* The character of an escape. Only ASCII: the format's writers escape nothing else. */
static int escaped(header *h) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = take(h);
    if (c == 'u') {
        const unsigned code = hex4(h);
        if (code == 0 || code > 127) {
            bad(h, "escape outside of ASCII");
        }
        return (int)code;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) {
        bad(h, "unknown escape");
        return 0;
    }
    return to[found - from];
}

/* Whether a text is UTF-8, as far as the lengths of its sequences say. */
static bool is_utf8(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        int more = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : *c < 0xf5 ? 3 : -1;
        if (more < 0 || (*c >= 0x80 && *c < 0xc2)) {
            return false;
        }
        for (c++; more > 0; more--, c++) {
            if ((*c & 0xc0) != 0x80) {
                return false;
            }
        }
    }
    return true;
}

/* A string of at most size - 1 bytes. With a NULL target it is only skipped, at any length. */
static void parse_string(header *h, char *text, size_t size) {
    size_t length = 0;
    expect(h, '"');
    for (;;) {
        int c = take(h);
        if (c == '"' || h->failed != PE_OK) {
            break;
        }
        if (c < ' ') {
            bad(h, "unfinished string");
            break;
        }
        if (c == '\\') {
            c = escaped(h);
        }
        if (text && length + 1 >= size) {
            bad(h, "string too long");
            break;
        }
        if (text) {
            text[length] = (char)c;
        }
        length++;
    }
    if (text) {
        text[length < size ? length : size - 1] = '\0';
        if (!is_utf8(text)) {
            bad(h, "a string that is not UTF-8");
        }
    }
}

/* A non-negative integer below 2^62. */
static uint64_t parse_integer(header *h) {
    uint64_t value = 0;
    skip_space(h);
    if (peek(h) < '0' || peek(h) > '9') {
        bad(h, "expected a non-negative integer");
    }
    for (int c = peek(h); c >= '0' && c <= '9'; c = peek(h)) {
        if (value > ((uint64_t)1 << 62) / 10 - 1) {
            bad(h, "integer too large");
            return 0;
        }
        value = value * 10 + (uint64_t)(c - '0');
        h->next++;
    }
    return value;
}

static int parse_list(header *h, uint64_t *values, int limit) {
    int count = 0;
    expect(h, '[');
    if (accept(h, ']')) {
        return 0;
    }
    do {
        if (count == limit) {
            bad(h, "list too long");
            return 0;
        }
        values[count++] = parse_integer(h);
    } while (accept(h, ','));
    expect(h, ']');
    return count;
}

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
static void check_extent(header *h, pe_st_tensor *tensor, uint64_t begin, uint64_t end,
                         uint64_t expected) {
    uint64_t bytes = dtype_bytes(tensor->dtype);
    if (bytes == 0) {
        bad(h, "unknown dtype");
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes)) {
            bad(h, "shape too large");
        }
    }
    if (begin != expected) {
        bad(h, "tensors overlap or leave a gap");
    }
    if (end < begin || end - begin != bytes) {
        bad(h, "data_offsets do not fit dtype and shape");
    }
    tensor->bytes = bytes;
    tensor->offset = h->end + begin;
}

/* One value of a tensor's description; returns which key it was, as a bit. */
static unsigned parse_field(header *h, pe_st_tensor *tensor, uint64_t *offsets) {
    char key[16];
    uint64_t shape[PE_MAX_RANK];
    parse_string(h, key, sizeof key);
    expect(h, ':');
    if (strcmp(key, "dtype") == 0) {
        parse_string(h, tensor->dtype, sizeof tensor->dtype);
        return 1;
    }
    if (strcmp(key, "shape") == 0) {
        tensor->rank = parse_list(h, shape, PE_MAX_RANK);
        for (int i = 0; i < tensor->rank; i++) {
            tensor->shape[i] = (int64_t)shape[i];
        }
        return 2;
    }
    if (strcmp(key, "data_offsets") == 0) {
        if (parse_list(h, offsets, 2) != 2) {
            bad(h, "data_offsets need two integers");
        }
        return 4;
    }
    bad(h, "unknown key in a tensor's description");
    return 0;
}

/* Fills the tensor except for its name; `*data_end` is where the one before ended. */
static void parse_tensor(header *h, pe_st_tensor *tensor, uint64_t *data_end) {
    uint64_t offsets[2] = {0, 0};
    unsigned seen = 0;
    expect(h, '{');
    do {
        const unsigned key = parse_field(h, tensor, offsets);
        if (seen & key) {
            bad(h, "a key is given twice");
        }
        seen |= key;
    } while (accept(h, ','));
    expect(h, '}');
    if (seen != 7) {
        bad(h, "dtype, shape or data_offsets is missing");
    }
    if (h->failed == PE_OK) {
        check_extent(h, tensor, offsets[0], offsets[1], *data_end);
        *data_end = offsets[1];
    }
}

static void skip_metadata(header *h) {
    expect(h, '{');
    if (accept(h, '}')) {
        return;
    }
    do {
        parse_string(h, NULL, 0);
        expect(h, ':');
        parse_string(h, NULL, 0);
    } while (accept(h, ','));
    expect(h, '}');
}

/* Parses the header; *data_end becomes the length of the data. */
static pe_status parse_header(header *h, pe_st_visit *visit, void *context, uint64_t *data_end) {
    expect(h, '{');
    bool more = !accept(h, '}');
    while (more && h->failed == PE_OK) {
        pe_st_tensor tensor;
        memset(&tensor, 0, sizeof tensor);
        parse_string(h, tensor.name, sizeof tensor.name);
        expect(h, ':');
        if (strcmp(tensor.name, "__metadata__") == 0) {
            skip_metadata(h);
        } else {
            parse_tensor(h, &tensor, data_end);
            if (h->failed == PE_OK && visit) {
                h->failed = visit(context, &tensor, h->message);
            }
        }
        more = accept(h, ',');
        if (!more) {
            expect(h, '}');
        }
    }
    skip_space(h);
    if (peek(h) != 0 || h->next != h->fill || h->position != h->end) {
        bad(h, "text after the header's end");
    }
    return h->failed;
}

/* Checks the lengths of file and header. */
static pe_status open_header(header *h, uint64_t *file_bytes) {
    struct stat status;
    unsigned char prefix[8];
    if (fstat(h->file, &status) != 0 || status.st_size < 0) {
        return pe_fail(h->message, PE_ERROR_SYSTEM, "cannot read %s: %s", h->path, strerror(errno));
    }
    *file_bytes = (uint64_t)status.st_size;
    if (*file_bytes < sizeof prefix) {
        return bad(h, "shorter than the length of a header");
    }
    const pe_status failed = pe_st_read_at(h->file, h->path, 0, prefix, sizeof prefix, h->message);
    if (failed != PE_OK) {
        return failed;
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    if (length > PE_ST_HEADER_LIMIT || length > *file_bytes - sizeof prefix) {
        return bad(h, "the header's length is absurd");
    }
    h->position = sizeof prefix;
    h->end = sizeof prefix + length;
    return PE_OK;
}

pe_status pe_st_read(int file, const char *path, pe_st_visit *visit, void *context, char *message) {
    header h;
    memset(&h, 0, sizeof h);
    h.file = file;
    h.path = path;
    h.message = message;
    uint64_t file_bytes = 0, data_end = 0;
    pe_status status = open_header(&h, &file_bytes);
    if (status == PE_OK) {
        status = parse_header(&h, visit, context, &data_end);
    }
    if (status == PE_OK && file_bytes - h.end != data_end) {
        status = pe_fail(message, PE_ERROR_FORMAT,
                         "%s is no sound safetensors file: %llu bytes of data, not %llu", path,
                         (unsigned long long)(file_bytes - h.end), (unsigned long long)data_end);
    }
    return status;
}
