/* The header of a .npy file: a Python dictionary with three keys, as NumPy writes it.
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
 */
#include <string.h>

#include "pe_data_source.h"

/* NumPy pads to multiples of 64; only structured dtypes, which are unsupported, need much more. */
enum { HEADER_BYTES = 1024 };

static const char magic[] = "\x93NUMPY";

/* Position in a header. */
typedef struct npy_text {
    const char *at;
    char *message;
    const char *path;
    pe_status failed;
} npy_text;

static pe_status bad(npy_text *t, const char *fact) {
    if (t->failed == PE_OK) {
        t->failed =
            pe_fail(t->message, PE_ERROR_FORMAT, "%s is no sound .npy array: %s", t->path, fact);
    }
    return t->failed;
}

/* Takes this word if it is next. */
static bool accept(npy_text *t, const char *word) {
    t->at += strspn(t->at, " ");
    if (strncmp(t->at, word, strlen(word)) != 0) {
        return false;
    }
    t->at += strlen(word);
    return true;
}

static void expect(npy_text *t, const char *word) {
    if (!accept(t, word)) {
        bad(t, "its header is not as NumPy writes it");
    }
}

/* The dtype's name in safetensors; unchanged if unsupported. */
static void take_dtype(npy_text *t, pe_st_tensor *tensor) {
    static const char *const known[][2] = {
        {"<f4", "F32"}, {"<i4", "I32"}, {"<i8", "I64"}, {"|b1", "BOOL"}};
    const bool quoted = accept(t, "'");
    const size_t length = strcspn(t->at, "'");
    if (!quoted || length == 0 || length >= sizeof tensor->dtype || t->at[length] != '\'') {
        bad(t, "its dtype is none of numbers");
        return;
    }
    memcpy(tensor->dtype, t->at, length);
    tensor->dtype[length] = '\0';
    t->at += length + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i][0], tensor->dtype) == 0) {
            memcpy(tensor->dtype, known[i][1], strlen(known[i][1]) + 1);
            return;
        }
    }
}

/* A non-negative number below 2^62. */
static int64_t take_number(npy_text *t) {
    int64_t value = 0;
    t->at += strspn(t->at, " ");
    if (*t->at < '0' || *t->at > '9') {
        bad(t, "its shape has something else than numbers");
    }
    for (; *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (value > ((int64_t)1 << 62) / 10 - 1) {
            bad(t, "its shape is too large");
            return 0;
        }
        value = value * 10 + (*t->at - '0');
    }
    return value;
}

static void take_shape(npy_text *t, pe_st_tensor *tensor) {
    tensor->rank = 0;
    expect(t, "(");
    while (t->failed == PE_OK && !accept(t, ")")) {
        if (tensor->rank == PE_MAX_RANK) {
            bad(t, "it has too many dimensions");
            return;
        }
        tensor->shape[tensor->rank++] = take_number(t);
        if (!accept(t, ",")) {
            expect(t, ")");
            return;
        }
    }
}

static void take_order(npy_text *t) {
    if (accept(t, "True")) {
        bad(t, "its columns lie together, not its rows; save numpy.ascontiguousarray of it");
    } else {
        expect(t, "False");
    }
}

static void take_dictionary(npy_text *t, pe_st_tensor *tensor) {
    unsigned seen = 0;
    expect(t, "{");
    while (t->failed == PE_OK && !accept(t, "}")) {
        unsigned key = 0;
        if (accept(t, "'descr':")) {
            key = 1;
            take_dtype(t, tensor);
        } else if (accept(t, "'fortran_order':")) {
            key = 2;
            take_order(t);
        } else if (accept(t, "'shape':")) {
            key = 4;
            take_shape(t, tensor);
        }
        if (key == 0 || seen & key) {
            bad(t, "its header has other keys than NumPy's, or one twice");
        }
        seen |= key;
        if (!accept(t, ",")) {
            expect(t, "}");
            break;
        }
    }
    t->at += strspn(t->at, " \n");
    if (seen != 7 || *t->at) {
        bad(t, "its header lacks a key, or has text after its end");
    }
}

/* Compares the size of the data with dtype and shape, if the dtype is supported. */
static void check_extent(npy_text *t, const pe_st_tensor *tensor) {
    uint64_t bytes = strcmp(tensor->dtype, "I64") == 0    ? 8
                     : strcmp(tensor->dtype, "BOOL") == 0 ? 1
                                                          : 4;
    for (int i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes)) {
            bad(t, "its shape is too large");
        }
    }
    const bool ours = tensor->dtype[0] >= 'A' && tensor->dtype[0] <= 'Z';
    if (ours && bytes != tensor->bytes) {
        bad(t, "it has more or less data than its shape says");
    }
}

/* Reads the prefix of the header's text: its length, and its start. */
static pe_status read_prefix(int file, uint64_t begin, uint64_t end, npy_text *t, uint64_t *start,
                             size_t *length) {
    unsigned char prefix[12] = {0};
    const size_t have = end - begin < sizeof prefix ? (size_t)(end - begin) : sizeof prefix;
    const pe_status status = pe_st_read_at(file, t->path, begin, prefix, have, t->message);
    if (status != PE_OK) {
        return status;
    }
    if (memcmp(prefix, magic, sizeof magic - 1) != 0 || prefix[6] < 1 || prefix[6] > 3) {
        return bad(t, "it does not begin as one of version 1 to 3");
    }
    const bool wide = prefix[6] > 1;
    *start = begin + (wide ? 12 : 10);
    *length = prefix[8] | (size_t)prefix[9] << 8;
    const bool huge = wide && (prefix[10] || prefix[11]);
    if (huge || *length > HEADER_BYTES || *start > end || *length > end - *start) {
        return bad(t, "its header is longer than that of numbers, or than the file");
    }
    return PE_OK;
}

pe_status pe_npy_read(int file, const char *path, uint64_t begin, uint64_t end,
                      pe_st_tensor *tensor, char *message) {
    char header[HEADER_BYTES + 1];
    npy_text text = {.at = header, .message = message, .path = path};
    uint64_t start = 0;
    size_t length = 0;
    pe_status status = read_prefix(file, begin, end, &text, &start, &length);
    if (status == PE_OK) {
        status = pe_st_read_at(file, path, start, header, length, message);
    }
    if (status != PE_OK) {
        return status;
    }
    header[length] = '\0';
    take_dictionary(&text, tensor);
    tensor->offset = start + length;
    tensor->bytes = end - tensor->offset;
    if (text.failed == PE_OK && strlen(header) != length) {
        bad(&text, "its header holds a zero");
    }
    if (text.failed == PE_OK) {
        check_extent(&text, tensor);
    }
    return text.failed;
}
