/* The safetensors writer. The header's length comes first in the file, so it is written twice: once
 * to count, once for real. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pe_crc.h"
#include "pe_safetensors.h"

/* A sink of header text; a negative `file` only counts. */
typedef struct sink {
    int file;
    bool failed;
    uint64_t total;
    uint32_t crc;
    size_t fill;
    char buffer[4096];
} sink;

static bool write_all_at(int file, uint64_t offset, const void *data, size_t bytes) {
    const char *source = data;
    while (bytes > 0) {
        const ssize_t count = pwrite(file, source, bytes, (off_t)offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        source += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return true;
}

static void flush(sink *s) {
    if (s->file >= 0 && !s->failed) {
        s->crc = pe_crc32(s->crc, s->buffer, s->fill);
        s->failed = !write_all_at(s->file, PE_ST_PREFIX + s->total - s->fill, s->buffer, s->fill);
    }
    s->fill = 0;
}

static void put(sink *s, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (s->fill == sizeof s->buffer) {
            flush(s);
        }
        s->buffer[s->fill++] = text[i];
        s->total++;
    }
}

static void put_text(sink *s, const char *text) { put(s, text, strlen(text)); }

static void put_integer(sink *s, uint64_t value) {
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    put(s, digits, (size_t)length);
}

static void put_string(sink *s, const char *text) {
    put_text(s, "\"");
    for (; *text; text++) {
        char escape[8];
        if ((unsigned char)*text < ' ') {
            put(s, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text));
        } else {
            put(s, "\\", *text == '"' || *text == '\\');
            put(s, text, 1);
        }
    }
    put_text(s, "\"");
}

static uint64_t put_tensor(sink *s, const pe_tensor *tensor, int64_t lead, uint64_t begin) {
    const uint64_t copies = lead > 0 ? (uint64_t)lead : 1;
    const uint64_t end = begin + copies * pe_tensor_bytes(tensor);
    put_string(s, tensor->name);
    put_text(s, ":{\"dtype\":\"");
    put_text(s, pe_dtype_name(tensor->dtype));
    put_text(s, "\",\"shape\":[");
    if (lead > 0) {
        put_integer(s, (uint64_t)lead);
    }
    for (int i = 0; i < tensor->rank; i++) {
        put_text(s, i || lead > 0 ? "," : "");
        put_integer(s, (uint64_t)tensor->shape[i]);
    }
    put_text(s, "],\"data_offsets\":[");
    put_integer(s, begin);
    put_text(s, ",");
    put_integer(s, end);
    put_text(s, "]}");
    return end;
}

bool pe_st_takes(const pe_st_content *content, int tensor) {
    return !content->takes || content->takes(&content->tensors[tensor]);
}

bool pe_st_has_rows(const pe_st_content *content, int tensor) {
    const pe_tensor *t = &content->tensors[tensor];
    return content->batches > 0 && t->rank > 0 && t->shape[0] == content->batch;
}

/* The checksums: zeros while they are only counted, and in the header's own place. */
static void put_checksums(sink *s, const pe_st_content *content) {
    char digits[PE_ST_DIGITS + 1] = "00000000";
    put_text(s, &PE_ST_SEAL[1]); /* without its brace */
    put_text(s, digits);
    put_text(s, PE_ST_SUMS);
    for (int i = 0; i < content->tensor_count; i++) {
        const pe_tensor *tensor = &content->tensors[i];
        if (pe_st_takes(content, i)) {
            if (s->file >= 0) {
                const void *data = pe_param_data(content->session, tensor);
                pe_crc_digits(pe_crc32(PE_CRC_EMPTY, data, pe_tensor_bytes(tensor)), digits);
            }
            put_text(s, digits);
        }
    }
    put_text(s, "\"");
}

static void put_metadata(sink *s, const pe_st_content *content) {
    if (content->session) {
        put_checksums(s, content);
    } else {
        put_text(s, "\"__metadata__\":{");
    }
    for (int i = 0; i < content->text_count; i++) {
        put_text(s, i || content->session ? "," : "");
        put_string(s, content->texts[i].key);
        put_text(s, ":");
        put_string(s, content->texts[i].value);
    }
    put_text(s, "}");
}

/* Returns the size of the data. */
static uint64_t put_header(sink *s, const pe_st_content *content) {
    const bool metadata = content->text_count || content->session;
    const char *between = metadata ? "," : "";
    uint64_t offset = 0;
    put_text(s, "{");
    if (metadata) {
        put_metadata(s, content);
    }
    for (int i = 0; i < content->tensor_count; i++) {
        if (pe_st_takes(content, i)) {
            put_text(s, between);
            const pe_tensor *tensor = &content->tensors[i];
            const bool rows = pe_st_has_rows(content, i);
            pe_tensor shaped = content->shaped ? content->shaped(tensor) : *tensor;
            shaped.shape[0] = rows ? content->rows : shaped.shape[0];
            offset = put_tensor(s, &shaped, rows ? 0 : content->batches, offset);
            between = ",";
        }
    }
    put_text(s, "}");
    while (s->total % 8) { /* readers that map the file want aligned data */
        put_text(s, " ");
    }
    flush(s);
    return offset;
}

uint64_t pe_st_file_bytes(const pe_st_content *content) {
    sink s = {.file = -1};
    const uint64_t data = put_header(&s, content);
    return PE_ST_PREFIX + s.total + data;
}

static pe_status give_up(pe_st_writer *writer, char *message) {
    const int error = errno;
    pe_st_abandon(writer);
    return pe_fail(message, PE_ERROR_SYSTEM, "cannot write %s: %s", writer->path, strerror(error));
}

/* Writes the header, and its checksum when all of it is known. */
static bool write_header(int file, uint64_t length, const pe_st_content *content) {
    unsigned char prefix[PE_ST_PREFIX];
    char digits[PE_ST_DIGITS + 1];
    for (int i = 0; i < PE_ST_PREFIX; i++) {
        prefix[i] = (unsigned char)(length >> (8 * i));
    }
    sink s = {.file = file, .crc = pe_crc32(PE_CRC_EMPTY, prefix, sizeof prefix)};
    put_header(&s, content);
    pe_crc_digits(s.crc, digits);
    return !s.failed && write_all_at(file, 0, prefix, sizeof prefix) &&
           (!content->session || write_all_at(file, PE_ST_SEAL_AT, digits, PE_ST_DIGITS));
}

pe_status pe_st_create(pe_st_writer *writer, const char *path, const pe_st_content *content,
                       char *message) {
    const pe_status status = pe_st_take_place(writer, path, message);
    if (status != PE_OK) {
        return status;
    }
    sink s = {.file = -1};
    put_header(&s, content);
    writer->data_start = PE_ST_PREFIX + s.total;
    return write_header(writer->file, s.total, content) ? PE_OK : give_up(writer, message);
}

pe_status pe_st_write_at(pe_st_writer *writer, uint64_t offset, const void *data, size_t bytes,
                         char *message) {
    return write_all_at(writer->file, writer->data_start + offset, data, bytes)
               ? PE_OK
               : give_up(writer, message);
}
