/* Reads a tokenizer's table: header, hash tables, characters and their classes. */
#include "pe_tokenizer_table.h"

#include <string.h>

#include "pe_crc.h"

/* Bytes of an element of each section. */
static const uint32_t SIZES[PE_TK_SECTIONS] = {4, 1, 1, 4, 4, 4, 4, 4, 4, 4, 2, 1, 1, 4, 4, 4, 4, 4,
                                               1, 1, 1, 4, 1, 1, 1, 1, 1, 4, 1, 4, 4, 1, 4, 4, 1};

enum { BLOCKS = 0x110000 / 256, MOST_GROWTH = 1024 };

/* Whether every step leads to a later one, and the last one ends. */
static bool are_steps_sound(const pe_tokenizer *t) {
    const uint32_t count = pe_tk_count(t, PE_TK_STEPS) / 4;
    const pe_tk_step *steps = (const pe_tk_step *)(const void *)pe_tk_words(t, PE_TK_STEPS);
    for (uint32_t i = 0; i < count; i++) {
        const bool leaps = steps[i].kind == PE_TK_ELSE || steps[i].kind == PE_TK_GO;
        const bool leads = leaps ? steps[i].operand > i && steps[i].operand < count
                                 : steps[i].operand < PE_TK_MOST_SETS;
        if (steps[i].kind > PE_TK_GO || !leads) {
            return false;
        }
    }
    const uint32_t patterns = pe_tk_count(t, PE_TK_STARTS);
    for (uint32_t i = 0; i < patterns; i++) {
        if (i == PE_TK_MOST_PATTERNS || pe_tk_words(t, PE_TK_STARTS)[i] >= count) {
            return false;
        }
    }
    return count <= PE_TK_MOST_STEPS && (!count || steps[count - 1].kind == PE_TK_DONE);
}

/* Whether the children of a node are behind it, and behind those of the node before. */
static bool are_tries_sound(const pe_tokenizer *t) {
    const uint32_t *children = pe_tk_words(t, PE_TK_CHILDREN);
    const uint32_t nodes = pe_tk_count(t, PE_TK_LABELS);
    if (pe_tk_count(t, PE_TK_VALUES) != nodes ||
        pe_tk_count(t, PE_TK_CHILDREN) != nodes + (nodes > 0)) {
        return false;
    }
    for (uint32_t i = 0; i < nodes; i++) {
        if (children[i] <= i || children[i] > children[i + 1] || children[i + 1] > nodes) {
            return false;
        }
    }
    return true;
}

/* Whether each rule has its trie, or its pattern and content, and these end. */
static bool are_rules_sound(const pe_tokenizer *t) {
    const pe_tk_rule *rules = (const pe_tk_rule *)(const void *)pe_tk_words(t, PE_TK_RULES);
    const unsigned char *contents = (const unsigned char *)pe_tk_words(t, PE_TK_CONTENTS);
    const uint32_t bytes = pe_tk_count(t, PE_TK_CONTENTS);
    const uint32_t most[] = {pe_tk_count(t, PE_TK_LABELS), pe_tk_count(t, PE_TK_STEPS) / 4, 4};
    for (uint32_t i = 0; i < pe_tk_count(t, PE_TK_RULES) / 3; i++) {
        if (rules[i].kind > PE_TK_CUT_SPACES || rules[i].operand >= most[rules[i].kind] ||
            (rules[i].kind == PE_TK_REPLACE && rules[i].content >= bytes)) {
            return false;
        }
    }
    return !bytes || !contents[bytes - 1];
}

/* Whether a table of Unigram has its scores, a trie, and an unknown token. */
static bool is_unigram_sound(const pe_tokenizer *t) {
    const pe_tk_head *head = pe_tk_head_of(t);
    return !(head->flags & PE_TK_UNIGRAM) ||
           (pe_tk_count(t, PE_TK_SCORES) / 2 == head->count + 1 && pe_tk_count(t, PE_TK_LABELS) &&
            head->unknown < head->count);
}

static bool are_tokens_sound(const pe_tokenizer *t) {
    const pe_tk_head *head = pe_tk_head_of(t);
    const uint32_t *offsets = pe_tk_words(t, PE_TK_OFFSETS);
    for (uint32_t i = 0; i < head->count; i++) {
        if (offsets[i] > offsets[i + 1] || offsets[i + 1] - offsets[i] > head->longest ||
            offsets[i + 1] > pe_tk_count(t, PE_TK_TEXTS)) {
            return false;
        }
    }
    return true;
}

static bool are_blocks_sound(const pe_tokenizer *t) {
    const uint16_t *blocks = (const uint16_t *)(const void *)pe_tk_words(t, PE_TK_BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        if ((blocks[i] + 1u) * 256 > pe_tk_count(t, PE_TK_CLASSES)) {
            return false;
        }
    }
    return true;
}

static const char *fault_of(const pe_tokenizer *t) {
    const pe_tk_head *head = pe_tk_head_of(t);
    if (t->bytes < sizeof *head || head->magic != PE_TOKENIZER_MAGIC) {
        return "is no table of a tokenizer";
    }
    if (head->version != PE_TOKENIZER_VERSION) {
        return "is of another version; compile the model again";
    }
    const size_t summed = offsetof(pe_tk_head, count);
    if (head->bytes != t->bytes ||
        head->sum != pe_crc32(PE_CRC_EMPTY, t->table + summed, t->bytes - summed)) {
        return "is damaged: its checksum differs";
    }
    for (int i = 0; i < PE_TK_SECTIONS; i++) {
        const uint64_t at = head->sections[i].at, count = head->sections[i].count;
        if (at % SIZES[i] || at + count * SIZES[i] > t->bytes || at < sizeof *head) {
            return "is damaged: a section lies outside of it";
        }
    }
    if (!head->count || pe_tk_count(t, PE_TK_OFFSETS) != head->count + 1 ||
        pe_tk_count(t, PE_TK_FLAGS) != head->count || pe_tk_count(t, PE_TK_BYTE_IDS) != 256 ||
        pe_tk_count(t, PE_TK_BLOCKS) != BLOCKS || pe_tk_count(t, PE_TK_SETS) != 256 ||
        pe_tk_count(t, PE_TK_COMBINING) != pe_tk_count(t, PE_TK_CLASSES)) {
        return "is damaged: its sections have other sizes";
    }
    if (!are_tokens_sound(t)) {
        return "is damaged: a token lies outside of it";
    }
    if (!are_blocks_sound(t)) {
        return "is damaged: a block of characters lies outside of it";
    }
    if (!are_steps_sound(t)) {
        return "is damaged: a step of its patterns leads nowhere";
    }
    const bool sound = are_tries_sound(t) && are_rules_sound(t) && is_unigram_sound(t);
    return sound && head->growth - 1 < MOST_GROWTH ? NULL
                                                   : "is damaged: its tries or rules lead nowhere";
}

pe_status pe_tokenizer_init(pe_tokenizer *tokenizer, const void *table, size_t bytes,
                            char *message) {
    if (!tokenizer || !table || (uintptr_t)table % 4) {
        return pe_fail(message, PE_ERROR_ARGUMENT,
                       "pe_tokenizer_init was given no table that is aligned to 4 bytes");
    }
    *tokenizer = (pe_tokenizer){table, bytes};
    const char *fault = fault_of(tokenizer);
    if (fault) {
        *tokenizer = (pe_tokenizer){0};
        return pe_fail(message, PE_ERROR_FORMAT, "the tokenizer's table %s", fault);
    }
    return PE_OK;
}

static uint32_t mixed(uint32_t hash, uint32_t number) {
    hash = (hash ^ number) * 0x85ebca6bu;
    return hash ^ hash >> 15;
}

const uint32_t *pe_tk_find(const pe_tokenizer *t, pe_tk_section section, int width, int keys,
                           const uint32_t *key) {
    const uint32_t *rows = pe_tk_words(t, section);
    const uint32_t count = pe_tk_count(t, section) / (uint32_t)width;
    uint32_t at = 0x9e3779b9u;
    for (int i = 0; i < keys; i++) {
        at = mixed(at, key[i]);
    }
    for (uint32_t tried = 0; tried < count; tried++, at++) {
        const uint32_t *row = rows + (size_t)(at & (count - 1)) * (size_t)width;
        if (row[0] == PE_NO_TOKEN) {
            return NULL;
        }
        if (row[0] == key[0] && (keys == 1 || row[1] == key[1])) {
            return row;
        }
    }
    return NULL;
}

uint32_t pe_tk_token(const pe_tokenizer *t, pe_tk_section section, const unsigned char *text,
                     size_t bytes) {
    const uint32_t *rows = pe_tk_words(t, section), *offsets = pe_tk_words(t, PE_TK_OFFSETS);
    const unsigned char *texts = (const unsigned char *)pe_tk_words(t, PE_TK_TEXTS);
    const uint32_t count = pe_tk_count(t, section), size = pe_tk_head_of(t)->count;
    uint32_t at = 0x9e3779b9u;
    for (size_t i = 0; i < bytes; i++) {
        at = mixed(at, text[i]);
    }
    for (uint32_t tried = 0; tried < count; tried++, at++) {
        const uint32_t token = rows[at & (count - 1)];
        if (token >= size) {
            return PE_NO_TOKEN;
        }
        if (offsets[token + 1] - offsets[token] == bytes &&
            memcmp(texts + offsets[token], text, bytes) == 0) {
            return token;
        }
    }
    return PE_NO_TOKEN;
}

uint32_t pe_tk_character(const unsigned char *text, size_t bytes, size_t at, size_t *length) {
    const unsigned char first = text[at];
    const size_t more = first < 0x80   ? 0
                        : first < 0xc2 ? 4
                        : first < 0xe0 ? 1
                        : first < 0xf0 ? 2
                        : first < 0xf5 ? 3
                                       : 4;
    *length = 1;
    if (more == 0) {
        return first;
    }
    uint32_t c = more < 4 ? first & (0x3fu >> more) : 0;
    bool sound = more < 4 && more < bytes - at;
    for (size_t i = 1; sound && i <= more; i++) {
        sound = (text[at + i] & 0xc0) == 0x80;
        c = c << 6 | (text[at + i] & 0x3fu);
    }
    static const uint32_t LEAST[] = {0, 0x80, 0x800, 0x10000};
    if (!sound || c < LEAST[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        return 0x110000u + first;
    }
    *length = more + 1;
    return c;
}

uint32_t pe_tk_sets(const pe_tokenizer *t, uint32_t character) {
    const uint32_t c = character > 0x10ffff ? 0x10ffff : character; /* itself not a character */
    const uint16_t *blocks = (const uint16_t *)(const void *)pe_tk_words(t, PE_TK_BLOCKS);
    const unsigned char *classes = (const unsigned char *)pe_tk_words(t, PE_TK_CLASSES);
    return pe_tk_words(t, PE_TK_SETS)[classes[blocks[c >> 8] * 256u + (c & 255)]];
}

static bool is_space(const pe_tokenizer *t, uint32_t c) {
    return (c >= 0x1c && c < 0x20) || pe_tk_sets(t, c) & PE_TK_SPACE;
}

size_t pe_tk_strip(const pe_tokenizer *t, const char **text, size_t bytes) {
    const unsigned char *all = (const unsigned char *)*text;
    size_t begin = bytes, end = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        if (!is_space(t, pe_tk_character(all, bytes, at, &length))) {
            begin = begin < at ? begin : at;
            end = at + length;
        }
    }
    *text += begin < end ? begin : 0;
    return begin < end ? end - begin : 0;
}
