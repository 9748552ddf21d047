/* The safetensors writer. The header's length comes first in the file, so it is written twice: once
 * to count, once for real. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pe_safetensors.h"

/* A sink of header text; a negative `file` only counts. */
typedef struct sink {
    int file;
    bool failed;
    uint64_t total;
    size_t fill;
    char buffer[4096];
} sink;

static bool write_all(int file, const void *data, size_t bytes) {
    const char *source = data;
    while (bytes > 0) {
        const ssize_t count = write(file, source, bytes);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        source += count;
        bytes -= (size_t)count;
    }
    return true;
}

static void flush(sink *s) {
    if (s->file >= 0 && !s->failed && !write_all(s->file, s->buffer, s->fill)) {
        s->failed = true;
    }
    s->fill = 0;
}

static void put(sink *s, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (s->fill == sizeof s->buffer) {
            flush(s);
        }
        s->buffer[s->fill++] = text[i];
    }
    s->total += length;
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

static void put_numbers(sink *s, const pe_st_number *numbers, int count) {
    put_text(s, "\"__metadata__\":{");
    for (int i = 0; i < count; i++) {
        put_text(s, i ? "," : "");
        put_string(s, numbers[i].key);
        put_text(s, ":\"");
        put_integer(s, numbers[i].value);
        put_text(s, "\"");
    }
    put_text(s, "}");
}

static void put_header(sink *s, const pe_st_content *content) {
    uint64_t offset = 0;
    put_text(s, "{");
    if (content->number_count) {
        put_numbers(s, content->numbers, content->number_count);
    }
    for (int i = 0; i < content->tensor_count; i++) {
        put_text(s, i || content->number_count ? "," : "");
        offset = put_tensor(s, &content->tensors[i], content->lead, offset);
    }
    put_text(s, "}");
    while (s->total % 8) { /* readers that map the file want aligned data */
        put_text(s, " ");
    }
    flush(s);
}

static pe_status give_up(pe_st_writer *writer, char *message) {
    const int error = errno;
    pe_st_abandon(writer);
    return pe_fail(message, PE_ERROR_SYSTEM, "cannot write %s: %s", writer->path, strerror(error));
}

pe_status pe_st_create(pe_st_writer *writer, const char *path, const pe_st_content *content,
                       char *message) {
    const pe_status status = pe_st_take_place(writer, path, message);
    if (status != PE_OK) {
        return status;
    }
    sink s = {.file = -1};
    put_header(&s, content);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (unsigned char)(s.total >> (8 * i));
    }
    writer->data_start = sizeof prefix + s.total;
    s = (sink){.file = writer->file};
    if (write_all(writer->file, prefix, sizeof prefix)) {
        put_header(&s, content);
        return s.failed ? give_up(writer, message) : PE_OK;
    }
    return give_up(writer, message);
}

pe_status pe_st_write_at(pe_st_writer *writer, uint64_t offset, const void *data, size_t bytes,
                         char *message) {
    const char *source = data;
    offset += writer->data_start;
    while (bytes > 0) {
        const ssize_t count = pwrite(writer->file, source, bytes, (off_t)offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return give_up(writer, message);
        }
        source += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return PE_OK;
}
