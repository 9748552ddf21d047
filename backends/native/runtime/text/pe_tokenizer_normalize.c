/* Normalizes a text by the rules of a table, then adds marks of spaces. Spans are those of the
 * package `tokenizers`, which decide the tokens that are within a part of a text: of several
 * characters that become more or fewer, each has the span of the one in its place. */
#include "pe_tokenizer_table.h"

#include <string.h>

enum { LONGEST_CLUSTER = 5 };

/* A text that is made of another. */
typedef struct change {
    const pe_tokenizer *t;
    pe_tk_text from;
    unsigned char *bytes;
    pe_tk_span *spans; /* or NULL */
    size_t count, room;
    size_t at;             /* the place in `from` that spans are taken of */
    unsigned char held[4]; /* a character whose span waits for the characters removed behind it */
    size_t held_bytes;
    int added; /* 1 if it is added, less by each removed one */
} change;

static size_t length_at(const pe_tk_text *text, size_t at) {
    size_t length = 0;
    if (at < text->count) {
        pe_tk_character(text->bytes, text->count, at, &length);
    }
    return length;
}

static void append(change *c, const unsigned char *bytes, size_t count, pe_tk_span span) {
    count = count <= c->room - c->count ? count : 0;
    memcpy(c->bytes + c->count, bytes, count);
    for (size_t i = 0; c->spans && i < count; i++) {
        c->spans[c->count + i] = span;
    }
    c->count += count;
}

/* Appends the held character. */
static void flush(change *c) {
    pe_tk_span span = {0, 0};
    if (c->spans && c->held_bytes) {
        const size_t from = c->added > 0 ? c->at - (c->at > 0) : c->at;
        span = c->from.spans[from < c->from.count ? from : c->from.count - 1];
        for (int i = c->added; i <= 0; i++) {
            c->at += length_at(&c->from, c->at);
        }
    }
    append(c, c->held, c->held_bytes, span);
    c->held_bytes = 0;
}

static void put(change *c, const unsigned char *bytes, size_t count, int added) {
    flush(c);
    memcpy(c->held, bytes, count);
    c->held_bytes = count;
    c->added = added;
}

/* Puts a text in the place of `old` characters. */
static void put_text(change *c, const unsigned char *text, int old) {
    const size_t bytes = strlen((const char *)text);
    size_t length;
    int count = 0;
    for (size_t at = 0; at < bytes; at += length, count++) {
        pe_tk_character(text, bytes, at, &length);
        put(c, text + at, length, count >= old);
    }
    if (count < old && c->held_bytes) {
        c->added -= old - count;
    }
}

/* Maps a character, or a cluster of `characters`; false if the trie has none. */
static bool map(change *c, uint32_t root, size_t begin, size_t end, int characters) {
    const uint32_t at = pe_tk_lookup(c->t, root, c->from.bytes + begin, end - begin, false);
    if (at >= pe_tk_count(c->t, PE_TK_CONTENTS)) {
        return false;
    }
    put_text(c, (const unsigned char *)pe_tk_words(c->t, PE_TK_CONTENTS) + at, characters);
    return true;
}

static void map_characters(change *c, uint32_t root, size_t begin, size_t end) {
    for (size_t at = begin, length; at < end; at += length) {
        pe_tk_character(c->from.bytes, end, at, &length);
        if (!map(c, root, at, at + length, 1)) {
            put(c, c->from.bytes + at, length, 0);
        }
    }
}

/* Bytes of ASCII that begin a key, and the carriage return, as bits. */
static void find_starts(const change *c, uint32_t root, uint32_t *starts) {
    const uint32_t *children = pe_tk_words(c->t, PE_TK_CHILDREN);
    const unsigned char *labels = (const unsigned char *)pe_tk_words(c->t, PE_TK_LABELS);
    starts['\r' / 32] |= 1u << '\r' % 32;
    for (uint32_t i = children[root]; i < children[root + 1] && labels[i] < 0x80; i++) {
        starts[labels[i] / 32] |= 1u << labels[i] % 32;
    }
}

/* The end of the ASCII characters from `at` on that stay: each is a cluster of its own. */
static size_t plain_end(const pe_tk_text *text, size_t at, const uint32_t *starts) {
    for (; at < text->count; at++) {
        const unsigned char byte = text->bytes[at];
        if (byte >= 0x80 || starts[byte / 32] >> byte % 32 & 1 ||
            (at + 1 < text->count && text->bytes[at + 1] >= 0x80)) {
            break;
        }
    }
    return at;
}

static void map_all(change *c, const pe_tk_rule *rule) {
    uint32_t starts[4] = {0};
    find_starts(c, rule->operand, starts);
    for (size_t at = 0, end; at < c->from.count; at = end) {
        end = plain_end(&c->from, at, starts);
        if (end > at && !c->spans) {
            flush(c);
            append(c, c->from.bytes + at, end - at, (pe_tk_span){0, 0});
        } else if (end > at) {
            map_characters(c, rule->operand, at, end);
        } else {
            end = pe_tk_cluster_end(c->t, c->from.bytes, c->from.count, at);
            int characters = 0;
            for (size_t i = at; i < end && end - at <= LONGEST_CLUSTER; characters++) {
                i += length_at(&c->from, i);
            }
            if (!characters || !map(c, rule->operand, at, end, characters)) {
                map_characters(c, rule->operand, at, end);
            }
        }
    }
    flush(c);
}

static pe_tk_span span_at(const change *c, size_t at) {
    return c->spans ? c->from.spans[at] : (pe_tk_span){0, 0};
}

static void append_same(change *c, size_t begin, size_t end) {
    for (; c->spans && begin < end; begin++) {
        append(c, c->from.bytes + begin, 1, c->from.spans[begin]);
    }
    append(c, c->from.bytes + begin, end - begin, (pe_tk_span){0, 0});
}

static void replace_all(change *c, const pe_tk_rule *rule) {
    const unsigned char *content =
        (const unsigned char *)pe_tk_words(c->t, PE_TK_CONTENTS) + rule->content;
    const size_t bytes = strlen((const char *)content);
    size_t done = 0;
    for (size_t at = 0, end; at < c->from.count; at = end) {
        end = pe_tk_match(c->t, rule->operand, c->from.bytes, c->from.count, at);
        if (end > at) {
            append_same(c, done, at);
            append(c, content, bytes, span_at(c, end - 1));
            done = end;
        } else {
            end = at + length_at(&c->from, at);
        }
    }
    append_same(c, done, c->from.count);
}

static bool is_space_at(const pe_tokenizer *t, const pe_tk_text *text, size_t at, size_t *length) {
    return pe_tk_sets(t, pe_tk_character(text->bytes, text->count, at, length)) & PE_TK_SPACE;
}

static pe_tk_text stripped(const pe_tokenizer *t, pe_tk_text text, uint32_t sides) {
    size_t begin = 0, end = 0, length;
    while (sides & PE_TK_LEFT_SIDE && begin < text.count && is_space_at(t, &text, begin, &length)) {
        begin += length;
    }
    for (size_t at = begin; at < text.count; at += length) {
        end = is_space_at(t, &text, at, &length) ? end : at + length;
    }
    end = sides & PE_TK_RIGHT_SIDE ? end : text.count;
    const size_t count = end > begin ? end - begin : 0;
    return (pe_tk_text){text.bytes + begin, text.spans ? text.spans + begin : NULL, count};
}

/* Appends a text, or a word of it, with marks in place of spaces, and with a leading one if the
 * tokenizer adds it. */
static void mark(change *c, size_t begin, size_t end, bool first) {
    static const unsigned char MARK[] = {0xe2, 0x96, 0x81};
    const unsigned flags = pe_tk_head_of(c->t)->flags;
    const unsigned char *text = c->from.bytes;
    const bool begun = text[begin] == ' ' || pe_tk_is_mark(text, end, begin);
    first = first && !span_at(c, begin).begin;
    if (flags & PE_TK_PREPEND && (first || !(flags & PE_TK_FIRST)) &&
        !(flags & PE_TK_UNLESS && begun)) {
        append(c, MARK, sizeof MARK, span_at(c, begin));
    }
    for (size_t at = begin, next; at < end; at = next) {
        for (next = at; next < end && !(text[next] == ' ' && flags & PE_TK_MARK); next++) {
        }
        append_same(c, at, next);
        if (next < end) {
            append(c, MARK, sizeof MARK, span_at(c, next++));
        }
    }
}

/* Marks each word; a space is between two. */
static void mark_words(change *c, bool first) {
    const unsigned char space = ' ';
    for (size_t at = 0, end, length; at < c->from.count; at = end) {
        for (end = at; end < c->from.count && !is_space_at(c->t, &c->from, end, &length);) {
            end += length;
        }
        if (end > at) {
            append(c, &space, c->count > 0, span_at(c, at));
            mark(c, at, end, first);
        } else {
            end += length;
        }
    }
}

/* Whether a text has characters that NFC could change: none is below U+0300. */
static bool is_plain(const unsigned char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] >= 0xcc) {
            return false;
        }
    }
    return true;
}

/* Starts a change of a text into the other buffer. */
static change change_of(const pe_tokenizer *t, const pe_tk_text *text, const pe_tk_buffers *b) {
    const uintptr_t at = (uintptr_t)text->bytes, start = (uintptr_t)b->bytes[0];
    const int other = at >= start && at < start + b->room;
    change c = {.t = t, .from = *text, .bytes = b->bytes[other], .room = b->room};
    c.spans = text->spans ? b->spans[other] : NULL;
    return c;
}

static pe_tk_text result_of(const change *c) { return (pe_tk_text){c->bytes, c->spans, c->count}; }

static pe_tk_text apply(const pe_tokenizer *t, const pe_tk_rule *rule, pe_tk_text text,
                        const pe_tk_buffers *buffers) {
    if (rule->kind == PE_TK_CUT_SPACES) {
        return stripped(t, text, rule->operand);
    }
    change c = change_of(t, &text, buffers);
    if (rule->kind == PE_TK_REPLACE) {
        replace_all(&c, rule);
    } else {
        map_all(&c, rule);
    }
    return result_of(&c);
}

/* Sets the spans of a text that is not changed yet. */
static void set_own_spans(pe_tk_text *text, pe_tk_span *spans) {
    for (size_t i = 0, length; i < text->count; i += length) {
        length = length_at(text, i);
        for (size_t j = i; j < i + length; j++) {
            spans[j] = (pe_tk_span){(uint32_t)i, (uint32_t)(i + length)};
        }
    }
    text->spans = spans;
}

pe_tk_text pe_tk_normalize(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                           bool first, bool tracked, const pe_tk_buffers *buffers) {
    const unsigned flags = pe_tk_head_of(t)->flags;
    const pe_tk_rule *rules = (const pe_tk_rule *)(const void *)pe_tk_words(t, PE_TK_RULES);
    const uint32_t count = pe_tk_count(t, PE_TK_RULES) / 3;
    const bool marks = flags & (PE_TK_MARK | PE_TK_PREPEND | PE_TK_AT_SPACES);
    pe_tk_text result = {text, NULL, bytes};
    if (flags & PE_TK_NFC && !is_plain(text, bytes)) {
        result.count = pe_tk_nfc(t, text, bytes, buffers->bytes[0], buffers);
        result.bytes = buffers->bytes[0];
        return result;
    }
    const bool places = flags & PE_TK_FIRST && (count || flags & PE_TK_AT_SPACES);
    if ((tracked && (count || marks)) || places) {
        set_own_spans(&result, buffers->spans[1]);
    }
    for (uint32_t i = 0; i < count && result.count; i++) {
        result = apply(t, &rules[i], result, buffers);
    }
    if (!marks || !result.count) {
        return result;
    }
    change c = change_of(t, &result, buffers);
    if (flags & PE_TK_AT_SPACES) {
        mark_words(&c, first);
    } else {
        mark(&c, 0, result.count, first);
    }
    return result_of(&c);
}
