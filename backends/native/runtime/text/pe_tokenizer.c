/* Tokens of a text: added tokens are found first, the parts between them are normalized, split into
 * pieces, and the symbols of a piece are merged. */
#include "pe_tokenizer.h"

#include <string.h>

#include "pe_tokenizer_table.h"

enum { MARK_BYTES = 3, GROWTH = 3 };
static const unsigned char MARK[] = {0xe2, 0x96, 0x81}; /* U+2581 */

/* Where tokens go, and memory for a part of the text. */
typedef struct writer {
    const pe_tokenizer *t;
    unsigned flags;
    int64_t *tokens;
    int64_t count, room;
    unsigned char *part;
    uint32_t *characters;
    pe_tk_symbol *symbols;
    pe_tk_merge *heap;
    uint32_t starts[8]; /* bytes that begin an added token */
    pe_tk_parts *parts; /* or NULL */
} writer;

static size_t padded(size_t text_bytes) { return GROWTH * (text_bytes + MARK_BYTES) + 16; }

size_t pe_tokenizer_memory(size_t text_bytes) {
    const size_t most = padded(text_bytes);
    return most / 4 * 4 + 4 + most * (sizeof(uint32_t) + sizeof(pe_tk_symbol)) +
           3 * most * sizeof(pe_tk_merge);
}

/* A text has a part without added tokens at every second byte at most, and each part gets a mark.
 */
int64_t pe_tk_most(const pe_tokenizer *tokenizer, size_t text_bytes) {
    const size_t parts = text_bytes / 2 + 1;
    return (int64_t)(GROWTH * text_bytes + MARK_BYTES * parts +
                     pe_tk_count(tokenizer, PE_TK_BEGIN) + pe_tk_count(tokenizer, PE_TK_END));
}

int64_t pe_tokenizer_size(const pe_tokenizer *tokenizer) { return pe_tk_head_of(tokenizer)->count; }

size_t pe_tokenizer_longest(const pe_tokenizer *tokenizer) {
    return pe_tk_head_of(tokenizer)->longest;
}

/* Whether one of the parts contains the interval from `begin` to `end`. */
static bool is_within(const size_t *places, int count, size_t begin, size_t end) {
    for (int i = 0; places && i + 1 < count; i += 2) {
        if (places[i] <= begin && end <= places[i + 1]) {
            return begin < end;
        }
    }
    return false;
}

static void emit(writer *w, uint32_t token, const size_t *places, size_t begin, size_t end) {
    if (w->count < w->room) {
        w->tokens[w->count] = token;
        if (w->parts) {
            w->parts->within[w->count] = is_within(places, w->parts->count, begin, end);
        }
    }
    w->count++;
}

static void emit_all(writer *w, pe_tk_section section) {
    for (uint32_t i = 0; i < pe_tk_count(w->t, section); i++) {
        emit(w, pe_tk_words(w->t, section)[i], NULL, 0, 0);
    }
}

static int32_t add_symbol(const writer *w, uint32_t token, size_t begin, size_t end,
                          int32_t count) {
    w->symbols[count] = (pe_tk_symbol){.token = token};
    w->symbols[count].begin = (uint32_t)begin;
    w->symbols[count].end = (uint32_t)end;
    return count + 1;
}

/* Adds the symbols of text that is not a token: its bytes, or the unknown token. */
static int32_t add_unknown(const writer *w, const unsigned char *text, size_t at, size_t bytes,
                           int32_t count) {
    const uint32_t *ids = pe_tk_words(w->t, PE_TK_BYTE_IDS);
    const uint32_t unknown = pe_tk_head_of(w->t)->unknown;
    bool known = (w->flags & PE_TK_FALLBACK) != 0;
    for (size_t i = 0; i < bytes; i++) {
        known = known && ids[text[at + i]] != PE_NO_TOKEN;
    }
    for (size_t i = 0; known && i < bytes; i++) {
        count = add_symbol(w, ids[text[at + i]], at + i, at + i + 1, count);
    }
    const bool again = w->flags & PE_TK_FUSE && count && w->symbols[count - 1].token == unknown;
    if (!known && again) {
        w->symbols[count - 1].end = (uint32_t)(at + bytes);
    } else if (!known && unknown != PE_NO_TOKEN) {
        count = add_symbol(w, unknown, at, at + bytes, count);
    }
    return count;
}

static int32_t symbols_of(const writer *w, const unsigned char *text, size_t bytes) {
    const uint32_t *ids = pe_tk_words(w->t, PE_TK_BYTE_IDS);
    int32_t count = 0;
    size_t length = 1;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t token = ids[text[at]];
        if (!(w->flags & PE_TK_BYTES)) {
            pe_tk_character(text, bytes, at, &length);
            token = pe_tk_token(w->t, PE_TK_WORDS, text + at, length);
        }
        if (token == PE_NO_TOKEN) {
            count = add_unknown(w, text, at, length, count);
        } else {
            count = add_symbol(w, token, at, at + length, count);
        }
    }
    return count;
}

/* Writes the tokens of a part's bytes from `begin` to `end`. */
static void write_piece(writer *w, const unsigned char *part, size_t begin, size_t end) {
    const unsigned char *text = part + begin;
    const size_t bytes = end - begin, *places = w->parts ? w->parts->mapped : NULL;
    const uint32_t whole =
        w->flags & PE_TK_WHOLE ? pe_tk_token(w->t, PE_TK_WORDS, text, bytes) : PE_NO_TOKEN;
    if (whole != PE_NO_TOKEN) {
        emit(w, whole, places, begin, end);
        return;
    }
    const int32_t count = pe_tk_merge_all(w->t, w->symbols, symbols_of(w, text, bytes), w->heap);
    for (int32_t i = 0; i < count; i++) {
        const pe_tk_symbol *symbol = &w->symbols[i];
        emit(w, symbol->token, places, begin + symbol->begin, begin + symbol->end);
    }
}

static bool is_mark(const unsigned char *text, size_t bytes, size_t at) {
    return bytes - at >= MARK_BYTES && memcmp(text + at, MARK, MARK_BYTES) == 0;
}

/* Replaces spaces by marks, and adds a leading mark if the tokenizer does. */
static size_t with_marks(const writer *w, const unsigned char *text, size_t bytes, bool first) {
    const bool begun = text[0] == ' ' || is_mark(text, bytes, 0);
    size_t written = 0;
    if (w->flags & PE_TK_PREPEND && (first || !(w->flags & PE_TK_FIRST)) &&
        !(w->flags & PE_TK_UNLESS && begun)) {
        memcpy(w->part, MARK, MARK_BYTES);
        written = MARK_BYTES;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ') {
            memcpy(w->part + written, MARK, MARK_BYTES);
            written += MARK_BYTES;
        } else {
            w->part[written++] = text[i];
        }
    }
    return written;
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

static size_t end_of_piece(const writer *w, const unsigned char *text, size_t bytes, size_t at,
                           size_t *ends) {
    if (!(w->flags & PE_TK_AT_MARKS)) {
        return pe_tk_piece(w->t, text, bytes, at, ends);
    }
    for (at++; at < bytes && !is_mark(text, bytes, at); at++) {
    }
    return at;
}

/* Normalizes a text into w->part, unless it is already normalized; *result points to the result. */
static size_t normalize(writer *w, const unsigned char *text, size_t bytes, bool first,
                        const unsigned char **result) {
    *result = w->part;
    if (bytes && w->flags & PE_TK_MARK) {
        return with_marks(w, text, bytes, first);
    }
    if (w->flags & PE_TK_NFC && !is_plain(text, bytes)) {
        return pe_tk_nfc(w->t, text, bytes, w->part, w->characters);
    }
    *result = text;
    return bytes;
}

/* Maps the places within a part of the text from `at` on to those of its normalized text. */
static void map_places(writer *w, const unsigned char *text, size_t at, size_t bytes) {
    const pe_tk_parts *parts = w->parts;
    for (int i = 0; parts && i < parts->count; i++) {
        const unsigned char *result;
        const size_t place = parts->places[i];
        const size_t before = place < at ? 0 : place - at < bytes ? place - at : bytes;
        parts->mapped[i] = normalize(w, text + at, before, at == 0, &result);
    }
}

/* Writes the tokens of a part of the text without added tokens. */
static void write_part(writer *w, const unsigned char *whole, size_t begin, size_t stop) {
    if (begin == stop) {
        return;
    }
    map_places(w, whole, begin, stop - begin);
    const unsigned char *text;
    const size_t bytes = normalize(w, whole + begin, stop - begin, begin == 0, &text);
    size_t ends[PE_TK_MOST_PATTERNS] = {0};
    for (size_t at = 0; at < bytes;) {
        const size_t end = end_of_piece(w, text, bytes, at, ends);
        write_piece(w, text, at, end);
        at = end;
    }
}

/* The longest added token that begins at `at`, and its bytes. */
static uint32_t added_at(const writer *w, const unsigned char *text, size_t bytes, size_t at,
                         size_t *length) {
    if (!(w->starts[text[at] / 32] >> text[at] % 32 & 1)) {
        return PE_NO_TOKEN;
    }
    const uint32_t *lengths = pe_tk_words(w->t, PE_TK_LENGTHS);
    for (uint32_t i = 0; i < pe_tk_count(w->t, PE_TK_LENGTHS); i++) {
        if (lengths[i] && lengths[i] <= bytes - at) {
            const uint32_t token = pe_tk_token(w->t, PE_TK_ADDED, text + at, lengths[i]);
            if (token != PE_NO_TOKEN) {
                *length = lengths[i];
                return token;
            }
        }
    }
    return PE_NO_TOKEN;
}

static size_t without_spaces_behind(const writer *w, const unsigned char *text, size_t begin,
                                    size_t end) {
    size_t last = begin, length;
    for (size_t at = begin; at < end; at += length) {
        const uint32_t c = pe_tk_character(text, end, at, &length);
        last = pe_tk_sets(w->t, c) & PE_TK_SPACE ? last : at + length;
    }
    return last;
}

static size_t behind_spaces(const writer *w, const unsigned char *text, size_t bytes, size_t at) {
    size_t length;
    while (at < bytes &&
           pe_tk_sets(w->t, pe_tk_character(text, bytes, at, &length)) & PE_TK_SPACE) {
        at += length;
    }
    return at;
}

static void write_text(writer *w, const unsigned char *text, size_t bytes) {
    const unsigned char *flags = (const unsigned char *)pe_tk_words(w->t, PE_TK_FLAGS);
    size_t part = 0, length = 1;
    for (size_t at = 0; at < bytes;) {
        const uint32_t token = added_at(w, text, bytes, at, &length);
        if (token == PE_NO_TOKEN) {
            at++;
            continue;
        }
        const size_t end =
            flags[token] & PE_TK_LEFT ? without_spaces_behind(w, text, part, at) : at;
        write_part(w, text, part, end);
        at += length;
        part = at = flags[token] & PE_TK_RIGHT ? behind_spaces(w, text, bytes, at) : at;
        emit(w, token, w->parts ? w->parts->places : NULL, end, at);
    }
    write_part(w, text, part, bytes);
}

static void find_starts(writer *w) {
    const uint32_t *rows = pe_tk_words(w->t, PE_TK_ADDED), *at = pe_tk_words(w->t, PE_TK_OFFSETS);
    const unsigned char *texts = (const unsigned char *)pe_tk_words(w->t, PE_TK_TEXTS);
    for (uint32_t i = 0; i < pe_tk_count(w->t, PE_TK_ADDED); i++) {
        if (rows[i] < pe_tk_head_of(w->t)->count && at[rows[i]] < at[rows[i] + 1]) {
            const unsigned char first = texts[at[rows[i]]];
            w->starts[first / 32] |= 1u << first % 32;
        }
    }
}

int64_t pe_tokenize(const pe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                    unsigned marks, int64_t *tokens, int64_t room, void *memory) {
    return pe_tk_tokenize(tokenizer, text, text_bytes, marks, tokens, room, memory, NULL);
}

int64_t pe_tk_tokenize(const pe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                       unsigned marks, int64_t *tokens, int64_t room, void *memory,
                       pe_tk_parts *parts) {
    const size_t most = padded(text_bytes);
    writer w = {.t = tokenizer, .flags = pe_tk_head_of(tokenizer)->flags, .tokens = tokens};
    w.parts = parts;
    w.room = room;
    w.characters = memory;
    w.symbols = (pe_tk_symbol *)(void *)(w.characters + most);
    w.heap = (pe_tk_merge *)(void *)(w.symbols + most);
    w.part = (unsigned char *)(w.heap + 3 * most);
    find_starts(&w);
    if (marks & PE_TOKENS_BEGIN) {
        emit_all(&w, PE_TK_BEGIN);
    }
    write_text(&w, (const unsigned char *)text, text_bytes);
    if (marks & PE_TOKENS_END) {
        emit_all(&w, PE_TK_END);
    }
    return w.count <= room ? w.count : -1;
}

size_t pe_token_text(const pe_tokenizer *tokenizer, int64_t token, bool *first, char *text) {
    const pe_tk_head *head = pe_tk_head_of(tokenizer);
    const unsigned char *flags = (const unsigned char *)pe_tk_words(tokenizer, PE_TK_FLAGS);
    if (token < 0 || token >= head->count || flags[token] & PE_TK_SPECIAL) {
        return 0;
    }
    const uint32_t *offsets = pe_tk_words(tokenizer, PE_TK_OFFSETS);
    const unsigned char *from = (const unsigned char *)pe_tk_words(tokenizer, PE_TK_TEXTS);
    from += offsets[token];
    const size_t bytes = offsets[token + 1] - offsets[token];
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        const bool mark = head->flags & PE_TK_MARK && is_mark(from, bytes, i);
        const bool strips =
            *first && (head->flags & PE_TK_STRIP_ALL
                           ? mark
                           : head->flags & PE_TK_STRIP && i == 0 && (mark || from[i] == ' '));
        if (!strips) {
            text[written++] = mark ? ' ' : (char)from[i];
        }
        i += mark ? MARK_BYTES : 1;
    }
    *first = false;
    return written;
}
