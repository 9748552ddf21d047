/* The tokens of a safetensors header, read through a small buffer. */
#include "pe_st_header.h"

#include <string.h>

pe_status pe_st_bad(pe_st_header *h, const char *fact) {
    if (h->failed == PE_OK) {
        const uint64_t at = h->position - (h->fill - h->next);
        h->failed =
            pe_fail(h->message, PE_ERROR_FORMAT, "%s is no sound safetensors file: %s at byte %llu",
                    h->path, fact, (unsigned long long)at);
    }
    return h->failed;
}

/* The next character, or 0 at the header's end or after a failure. */
int pe_st_peek(pe_st_header *h) {
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

static int take(pe_st_header *h) {
    const int c = pe_st_peek(h);
    if (c != 0) {
        h->next++;
    }
    return c;
}

void pe_st_skip_space(pe_st_header *h) {
    for (int c = pe_st_peek(h); c == ' ' || c == '\t' || c == '\n' || c == '\r';
         c = pe_st_peek(h)) {
        h->next++;
    }
}

/* Takes this token if it is next. */
bool pe_st_accept(pe_st_header *h, char token) {
    pe_st_skip_space(h);
    if (pe_st_peek(h) != token) {
        return false;
    }
    h->next++;
    return true;
}

void pe_st_expect(pe_st_header *h, char token) {
    if (!pe_st_accept(h, token)) {
        char fact[] = "expected 'x'";
        fact[sizeof fact - 3] = token;
        pe_st_bad(h, fact);
    }
}

static unsigned hex4(pe_st_header *h) {
    unsigned code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = take(h);
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            pe_st_bad(h, "bad \\u escape");
            return 0;
        }
        code = code * 16 + (unsigned)digit;
    }
    return code;
}

/* The character of an escape. Only ASCII: the format's writers escape nothing else. */
static int escaped(pe_st_header *h) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = take(h);
    if (c == 'u') {
        const unsigned code = hex4(h);
        if (code == 0 || code > 127) {
            pe_st_bad(h, "escape outside of ASCII");
        }
        return (int)code;
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) {
        pe_st_bad(h, "unknown escape");
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

/* Takes a string; its bytes from size - 1 on are an error, or with `cut` left out. */
static void take_string(pe_st_header *h, char *text, size_t size, bool cut) {
    size_t length = 0;
    pe_st_expect(h, '"');
    for (;;) {
        int c = take(h);
        if (c == '"' || h->failed != PE_OK) {
            break;
        }
        if (c < ' ') {
            pe_st_bad(h, "unfinished string");
            break;
        }
        if (c == '\\') {
            c = escaped(h);
        }
        if (length + 1 < size) {
            text[length++] = (char)c;
        } else if (!cut) {
            pe_st_bad(h, "string too long");
            break;
        }
    }
    text[length] = '\0';
}

void pe_st_string(pe_st_header *h, char *text, size_t size) {
    take_string(h, text, size, false);
    if (!is_utf8(text)) {
        pe_st_bad(h, "a string that is not UTF-8");
    }
}

void pe_st_long_string(pe_st_header *h, char *text, size_t size) {
    take_string(h, text, size, true);
}

/* A non-negative integer below 2^62. */
uint64_t pe_st_integer(pe_st_header *h) {
    uint64_t value = 0;
    pe_st_skip_space(h);
    if (pe_st_peek(h) < '0' || pe_st_peek(h) > '9') {
        pe_st_bad(h, "expected a non-negative integer");
    }
    for (int c = pe_st_peek(h); c >= '0' && c <= '9'; c = pe_st_peek(h)) {
        if (value > ((uint64_t)1 << 62) / 10 - 1) {
            pe_st_bad(h, "integer too large");
            return 0;
        }
        value = value * 10 + (uint64_t)(c - '0');
        h->next++;
    }
    return value;
}

int pe_st_list(pe_st_header *h, uint64_t *values, int limit) {
    int count = 0;
    pe_st_expect(h, '[');
    if (pe_st_accept(h, ']')) {
        return 0;
    }
    do {
        if (count == limit) {
            pe_st_bad(h, "list too long");
            return 0;
        }
        values[count++] = pe_st_integer(h);
    } while (pe_st_accept(h, ','));
    pe_st_expect(h, ']');
    return count;
}
