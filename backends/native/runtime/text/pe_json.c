/* Values of JSON (RFC 8259), decoded from UTF-8 in memory. */
#include "pe_json.h"

#include <string.h>

#include "pe_tokenizer_table.h"

enum { DEEPEST = 64, LAST = 0x10ffff };

void pe_json_bad(pe_json *j, const char *fault) {
    if (!j->fault) {
        j->fault = fault;
    }
    j->at = j->end;
}

int pe_json_peek(pe_json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\r')) {
        j->at++;
    }
    return j->at < j->end ? *j->at : 0;
}

bool pe_json_accept(pe_json *j, char token) {
    const bool found = pe_json_peek(j) == token;
    j->at += found;
    return found;
}

void pe_json_expect(pe_json *j, char token, const char *fault) {
    if (!pe_json_accept(j, token)) {
        pe_json_bad(j, fault);
    }
}

static uint32_t hex4(pe_json *j) {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = j->at < j->end ? *j->at++ : 0;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            pe_json_bad(j, "\\u without four hexadecimal digits");
            return 0;
        }
        code = code * 16 + (uint32_t)digit;
    }
    return code;
}

/* The character of \uXXXX, or of two that are a surrogate pair. */
static uint32_t unicode(pe_json *j) {
    const uint32_t high = hex4(j);
    if (high < 0xd800 || high > 0xdfff) {
        return high;
    }
    uint32_t low = 0;
    if (high < 0xdc00 && j->end - j->at >= 6 && memcmp(j->at, "\\u", 2) == 0) {
        j->at += 2;
        low = hex4(j);
    }
    if (low < 0xdc00 || low > 0xdfff) {
        pe_json_bad(j, "half of a surrogate pair");
        return 0;
    }
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static uint32_t escaped(pe_json *j) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = j->at < j->end ? *j->at++ : 0;
    if (c == 'u') {
        return unicode(j);
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) {
        pe_json_bad(j, "an unknown escape");
        return 0;
    }
    return (unsigned char)to[found - from];
}

static size_t put(char *text, uint32_t c) {
    const size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = 0; text && i <= more; i++) {
        const uint32_t part = c >> 6 * (more - i);
        text[i] = (char)(i ? 0x80 | (part & 0x3f) : lead[more] | part);
    }
    return more + 1;
}

size_t pe_json_string(pe_json *j, char *text) {
    size_t bytes = 0;
    pe_json_expect(j, '"', "a text is missing");
    while (!j->fault) {
        if (j->at == j->end || *j->at < ' ') {
            pe_json_bad(j, "a text that does not end, or has a control character");
            break;
        }
        size_t length;
        uint32_t c = pe_tk_character(j->at, (size_t)(j->end - j->at), 0, &length);
        j->at += length;
        if (c == '"') {
            break;
        }
        if (c > LAST) {
            pe_json_bad(j, "a byte that is no UTF-8");
            break;
        }
        c = c == '\\' ? escaped(j) : c;
        bytes += put(text ? text + bytes : NULL, c);
    }
    return bytes;
}

static void take_digits(pe_json *j) {
    const unsigned char *begin = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        j->at++;
    }
    if (j->at == begin) {
        pe_json_bad(j, "a number without digits");
    }
}

static bool take_one(pe_json *j, const char *of) {
    const bool found = j->at < j->end && *j->at && strchr(of, *j->at);
    j->at += found;
    return found;
}

static void skip_number(pe_json *j) {
    take_one(j, "-");
    if (!take_one(j, "0")) {
        take_digits(j);
    }
    if (take_one(j, ".")) {
        take_digits(j);
    }
    if (take_one(j, "eE")) {
        take_one(j, "+-");
        take_digits(j);
    }
}

static void skip_word(pe_json *j) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if ((size_t)(j->end - j->at) >= length && memcmp(j->at, words[i], length) == 0) {
            j->at += length;
            return;
        }
    }
    pe_json_bad(j, "something that is no value of JSON");
}

static void skip_key(pe_json *j) {
    pe_json_string(j, NULL);
    pe_json_expect(j, ':', "a colon is missing");
}

static void skip_number_or_word(pe_json *j, int c) {
    if (c == '-' || (c >= '0' && c <= '9')) {
        skip_number(j);
    } else {
        skip_word(j);
    }
}

static void skip_value(pe_json *j, int depth);

static void skip_members(pe_json *j, char end, int depth) {
    j->at++;
    if (pe_json_accept(j, end)) {
        return;
    }
    do {
        if (end == '}') {
            skip_key(j);
        }
        skip_value(j, depth + 1);
    } while (pe_json_accept(j, ','));
    pe_json_expect(j, end, "a comma or the end of a list or object is missing");
}

static void skip_value(pe_json *j, int depth) {
    const int c = pe_json_peek(j);
    if (depth > DEEPEST) {
        pe_json_bad(j, "values nested too deep");
    } else if (c == '"') {
        pe_json_string(j, NULL);
    } else if (c == '{' || c == '[') {
        skip_members(j, c == '{' ? '}' : ']', depth);
    } else {
        skip_number_or_word(j, c);
    }
}

void pe_json_skip(pe_json *j) { skip_value(j, 0); }
