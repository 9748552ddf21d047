/* Tokens of a text: added tokens are found first, the parts between them are normalized and split
 * into pieces, and the symbols of a piece are merged, or its best path of tokens is found. */
#include "pe_tokenizer.h"

#include <string.h>

#include "pe_tokenizer_table.h"

/* Where tokens go, and memory for a part of the text. */
typedef struct writer {
    const pe_tokenizer *t;
    unsigned flags;
    int64_t *tokens;
    int64_t count, room;
    pe_tk_buffers buffers;
    pe_tk_symbol *symbols;
    pe_tk_merge *heap;
    pe_tk_path *path;
    uint32_t starts[8]; /* bytes that begin an added token */
    pe_tk_parts *parts; /* or NULL */
} writer;

/* Bytes of a part's normalized text at most. */
static size_t padded(const pe_tokenizer *t, size_t text_bytes) {
    return pe_tk_head_of(t)->growth * (text_bytes + PE_TK_MARK_BYTES) + 16;
}

/* Bytes for merging the symbols of as many bytes, or for their path: before, spans or characters
 * are there. */
static size_t work_bytes(const pe_tokenizer *t, size_t most) {
    const bool path = pe_tk_head_of(t)->flags & PE_TK_UNIGRAM;
    return path ? (most + 1) * sizeof(pe_tk_path)
                : most * (sizeof(pe_tk_symbol) + 3 * sizeof(pe_tk_merge));
}

size_t pe_tokenizer_memory(const pe_tokenizer *tokenizer, size_t text_bytes) {
    const size_t most = padded(tokenizer, text_bytes);
    return sizeof(double) + work_bytes(tokenizer, most) + 2 * most;
}

/* A text has a part without added tokens at every second byte at most, and each part gets a mark.
 */
int64_t pe_tokenizer_most(const pe_tokenizer *tokenizer, size_t text_bytes) {
    const size_t parts = text_bytes / 2 + 1;
    return (int64_t)(pe_tk_head_of(tokenizer)->growth * text_bytes + PE_TK_MARK_BYTES * parts +
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

/* Whether each byte has a token of its own, and text without a token is its bytes. */
static bool falls_back(const writer *w, const unsigned char *text, size_t bytes) {
    bool known = (w->flags & PE_TK_FALLBACK) != 0;
    for (size_t i = 0; i < bytes && known; i++) {
        known = pe_tk_words(w->t, PE_TK_BYTE_IDS)[text[i]] != PE_NO_TOKEN;
    }
    return known;
}

/* Adds the symbols of text that is not a token: its bytes, or the unknown token. */
static int32_t add_unknown(const writer *w, const unsigned char *text, size_t at, size_t bytes,
                           int32_t count) {
    const uint32_t *ids = pe_tk_words(w->t, PE_TK_BYTE_IDS);
    const uint32_t unknown = pe_tk_head_of(w->t)->unknown;
    const bool known = falls_back(w, text + at, bytes);
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
static void write_merged(writer *w, const unsigned char *part, size_t begin, size_t end) {
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

/* Writes the tokens of adjacent unknown characters of Unigram: one that is all of them, their
 * bytes, or the unknown token. */
static void write_unknown(writer *w, const unsigned char *part, size_t begin, size_t end) {
    const size_t *places = w->parts ? w->parts->mapped : NULL;
    const pe_tk_head *head = pe_tk_head_of(w->t);
    const uint32_t *ids = pe_tk_words(w->t, PE_TK_BYTE_IDS);
    const uint32_t whole = pe_tk_lookup(w->t, PE_TK_VOCABULARY, part + begin, end - begin, true);
    if (whole < head->count || !falls_back(w, part + begin, end - begin)) {
        emit(w, whole < head->count ? whole : head->unknown, places, begin, end);
        return;
    }
    for (size_t i = begin; i < end; i++) {
        emit(w, ids[part[i]], places, begin, end);
    }
}

/* Writes the tokens of a part's bytes from `begin` to `end`, the best path. */
static void write_path(writer *w, const unsigned char *part, size_t begin, size_t end) {
    const size_t *places = w->parts ? w->parts->mapped : NULL;
    const uint32_t unknown = pe_tk_head_of(w->t)->unknown;
    pe_tk_path *path = w->path;
    pe_tk_best_path(w->t, part + begin, end - begin, path);
    size_t from = 0;
    for (size_t at = path[0].begin, next; at; from = at, at = next) {
        next = path[at].begin;
        if (path[at].token != unknown) {
            emit(w, path[at].token, places, begin + from, begin + at);
            continue;
        }
        while (next && path[next].token == unknown) {
            at = next;
            next = path[at].begin;
        }
        write_unknown(w, part, begin + from, begin + at);
    }
}

/* The end of the piece that begins at `at`. */
static size_t end_of_piece(const writer *w, const unsigned char *text, size_t bytes, size_t at,
                           size_t *ends) {
    const bool marks = w->flags & PE_TK_AT_MARKS, spaces = w->flags & PE_TK_AT_SPACES;
    if (!marks && !spaces) {
        return pe_tk_piece(w->t, text, bytes, at, ends);
    }
    for (at++; at < bytes; at++) {
        if ((spaces && text[at] == ' ') || (marks && pe_tk_is_mark(text, bytes, at))) {
            break;
        }
    }
    return at;
}

static size_t clipped(size_t place, size_t begin, size_t stop) {
    return place < begin ? begin : place < stop ? place : stop;
}

/* The byte of a normalized text where a place begins or ends: the first one from there on, or the
 * end of the last one before. */
static size_t mapped(const pe_tk_text *text, size_t place, bool ends) {
    size_t low = 0, high = text->spans ? text->count : 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const pe_tk_span span = text->spans[middle];
        const bool before = ends ? span.end <= place : span.begin < place;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return text->spans ? low : place;
}

/* Normalizes a part of the text, and maps the places within it. NFC has no spans: a place is where
 * the normalized text before it ends. */
static pe_tk_text normalize(const writer *w, const unsigned char *whole, size_t begin,
                            size_t stop) {
    const pe_tk_parts *parts = w->parts;
    const int count = parts ? parts->count : 0;
    const bool prefixes = w->flags & PE_TK_NFC, first = begin == 0;
    const unsigned char *text = whole + begin;
    for (int i = 0; prefixes && i < count; i++) {
        const size_t before = clipped(parts->places[i], begin, stop) - begin;
        parts->mapped[i] = pe_tk_normalize(w->t, text, before, first, true, &w->buffers).count;
    }
    const pe_tk_text result =
        pe_tk_normalize(w->t, text, stop - begin, first, count > 0, &w->buffers);
    for (int i = 0; !prefixes && i < count; i++) {
        const size_t place = clipped(parts->places[i], begin, stop) - begin;
        parts->mapped[i] = mapped(&result, place, i % 2);
    }
    return result;
}

/* Writes the tokens of a part of the text without added tokens. */
static void write_part(writer *w, const unsigned char *whole, size_t begin, size_t stop) {
    if (begin == stop) {
        return;
    }
    const pe_tk_text text = normalize(w, whole, begin, stop);
    size_t ends[PE_TK_MOST_PATTERNS] = {0};
    for (size_t at = 0, end; at < text.count; at = end) {
        end = at + 1;
        if (!(w->flags & PE_TK_AT_SPACES && text.bytes[at] == ' ')) {
            end = end_of_piece(w, text.bytes, text.count, at, ends);
            (w->flags & PE_TK_UNIGRAM ? write_path : write_merged)(w, text.bytes, at, end);
        }
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
    const size_t most = padded(tokenizer, text_bytes);
    writer w = {.t = tokenizer, .flags = pe_tk_head_of(tokenizer)->flags, .tokens = tokens};
    w.parts = parts;
    w.room = room;
    const uintptr_t aligned = ((uintptr_t)memory + sizeof(double) - 1) & ~(sizeof(double) - 1);
    unsigned char *work = (unsigned char *)memory + (aligned - (uintptr_t)memory);
    w.path = (pe_tk_path *)(void *)work;
    w.symbols = (pe_tk_symbol *)(void *)work;
    w.heap = (pe_tk_merge *)(void *)(w.symbols + most);
    w.buffers.characters = (uint32_t *)(void *)work;
    w.buffers.room = most;
    for (size_t i = 0; i < 2; i++) {
        w.buffers.bytes[i] = work + work_bytes(tokenizer, most) + i * most;
        w.buffers.spans[i] = (pe_tk_span *)(void *)work + i * most;
    }
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
        const bool mark = head->flags & PE_TK_MARK && pe_tk_is_mark(from, bytes, i);
        const bool strips =
            *first && (head->flags & PE_TK_STRIP_ALL
                           ? mark
                           : head->flags & PE_TK_STRIP && i == 0 && (mark || from[i] == ' '));
        if (!strips) {
            text[written++] = mark ? ' ' : (char)from[i];
        }
        i += mark ? PE_TK_MARK_BYTES : 1;
    }
    *first = false;
    return written;
}
