/* A tokenizer's table, written by models/tokenizer_table.py: 32-bit numbers, then sections, in
 * little-endian order. */
#ifndef PE_TOKENIZER_TABLE_H
#define PE_TOKENIZER_TABLE_H

#include "pe_tokenizer.h"

#define PE_TOKENIZER_MAGIC 0x4b544550u /* "PETK" */
#define PE_TOKENIZER_VERSION 4u
#define PE_NO_TOKEN 0xffffffffu

/* Flags of a table. */
enum {
    PE_TK_BYTES = 1,         /* symbols are bytes, not characters */
    PE_TK_FALLBACK = 2,      /* an unknown character is its bytes */
    PE_TK_FUSE = 4,          /* adjacent unknown symbols are one token */
    PE_TK_WHOLE = 8,         /* a piece that is a token is not merged from symbols */
    PE_TK_NFC = 16,          /* text is normalized */
    PE_TK_MARK = 32,         /* a space is U+2581 */
    PE_TK_PREPEND = 64,      /* a part begins with U+2581 */
    PE_TK_FIRST = 128,       /* ... only the first one */
    PE_TK_STRIP = 256,       /* a decoded text loses its first space */
    PE_TK_TRIMMED = 512,     /* spans of tokens leave out spaces */
    PE_TK_UNLESS = 1024,     /* no U+2581 before one, or a space */
    PE_TK_AT_MARKS = 2048,   /* pieces begin at U+2581 */
    PE_TK_STRIP_ALL = 4096,  /* the first token of a text loses all U+2581 */
    PE_TK_UNIGRAM = 8192,    /* the tokens of a piece have the highest sum of scores */
    PE_TK_AT_SPACES = 16384, /* pieces are words, without the spaces between them */
};

/* Flags of a chat template. */
enum {
    PE_TK_LEARNS = 1,          /* usable for training */
    PE_TK_TURNS = 2,           /* ... also on chats with several answers */
    PE_TK_HAS_SYSTEM = 4,      /* a system message may come first */
    PE_TK_STRIPS_USER = 8,     /* questions are stripped of surrounding spaces */
    PE_TK_STRIPS_ANSWER = 16,  /* likewise answers */
    PE_TK_STRIPS_SYSTEM = 32,  /* likewise system messages */
    PE_TK_MIXES = 64,          /* the model mixes the texts of a row: each has its own */
    PE_TK_THINKS = 128,        /* answers with </think> are written otherwise */
    PE_TK_FORGETS = 256,       /* earlier answers lose their thoughts, which </think> ends */
    PE_TK_FORGETS_LINES = 512, /* ... and the line breaks behind it */
};

/* The set of \s, which every table has; others are those of its patterns. */
enum { PE_TK_SPACE = 1 };

/* Sets of tables that map grapheme clusters: properties of Unicode's UAX 29. */
#define PE_TK_CONTROL (1u << 19)   /* breaks from everything, except a CR from its LF */
#define PE_TK_ATTACHED (1u << 20)  /* continues a cluster: marks, and the zero-width joiner */
#define PE_TK_EXTEND (1u << 21)    /* ... the marks that a sequence of emoji may have */
#define PE_TK_PREPENDED (1u << 22) /* the next character continues its cluster */
#define PE_TK_PICTURE (1u << 23)   /* an emoji */
#define PE_TK_CONSONANT (1u << 24) /* of Indic conjuncts */
#define PE_TK_CONJUNCT (1u << 25)  /* may be between the consonants of a conjunct */
#define PE_TK_LINKER (1u << 26)    /* ... must be */
#define PE_TK_LEAD (1u << 27)      /* of Hangul syllables */
#define PE_TK_VOWEL (1u << 28)
#define PE_TK_TRAIL (1u << 29)
#define PE_TK_OPEN_SYLLABLE (1u << 30)   /* a syllable that ends in a vowel */
#define PE_TK_CLOSED_SYLLABLE (1u << 31) /* ... in a trail */

/* Steps of a pattern; see pe_tokenizer_split.c. */
enum {
    PE_TK_DONE,       /* the pattern matches */
    PE_TK_RUN,        /* `least` to `most` characters of a set, as many as lead to a match */
    PE_TK_POSSESSIVE, /* ... as many as there are */
    PE_TK_NOT,        /* no character of a set follows */
    PE_TK_ELSE,       /* the next step, or if it leads to no match, the step `operand` */
    PE_TK_GO,         /* the step `operand` */
};

typedef struct pe_tk_step {
    uint32_t kind, operand, least, most;
} pe_tk_step;

enum { PE_TK_MOST_SETS = 32, PE_TK_MOST_STEPS = 256, PE_TK_MOST_PATTERNS = 8 };

/* Rules that normalize a text, in their order. */
enum {
    PE_TK_MAP,        /* grapheme clusters of at most 5 bytes, and characters of longer ones,
                       * become texts by the trie `operand` */
    PE_TK_REPLACE,    /* each match of the pattern from the step `operand` becomes `content` */
    PE_TK_CUT_SPACES, /* spaces on the sides `operand` are removed */
};
enum { PE_TK_LEFT_SIDE = 1, PE_TK_RIGHT_SIDE = 2 };

typedef struct pe_tk_rule {
    uint32_t kind, operand, content;
} pe_tk_rule;

/* Flags of a token. */
enum {
    PE_TK_SPECIAL = 1, /* decoded as nothing */
    PE_TK_BYTE = 2,    /* one byte of a character */
    PE_TK_LEFT = 4,    /* an added one that takes the spaces before it */
    PE_TK_RIGHT = 8,   /* ... and after it */
};

typedef enum pe_tk_section {
    PE_TK_OFFSETS,    /* u32 of each token's bytes, and of the end */
    PE_TK_TEXTS,      /* their bytes */
    PE_TK_FLAGS,      /* u8 of each */
    PE_TK_BYTE_IDS,   /* u32 token of each byte */
    PE_TK_MERGES,     /* a hash table of left, right, rank, result */
    PE_TK_WORDS,      /* a hash table of tokens by their bytes */
    PE_TK_ADDED,      /* likewise tokens that are matched first */
    PE_TK_LENGTHS,    /* u32 lengths of these in bytes, the longest first */
    PE_TK_BEGIN,      /* u32 tokens that begin a text */
    PE_TK_END,        /* ... and end it */
    PE_TK_BLOCKS,     /* u16 number of the block of classes of 256 characters each */
    PE_TK_CLASSES,    /* u8 classes of a character */
    PE_TK_COMBINING,  /* u8 combining classes, by the same blocks */
    PE_TK_SETS,       /* u32 sets of each class as bits */
    PE_TK_STEPS,      /* pe_tk_step of all patterns, as u32 */
    PE_TK_STARTS,     /* u32 first step of each pattern */
    PE_TK_SPLITS,     /* a hash table of character, first, second: canonical decompositions */
    PE_TK_JOINS,      /* a hash table of first, second, character: compositions */
    PE_TK_ASK,        /* u8 of a chat: its text before the first question */
    PE_TK_ANSWER,     /* u8 between a question and its answer; none where texts are completed */
    PE_TK_ASK_AGAIN,  /* u8 between an answer and the next question */
    PE_TK_STOPS,      /* u32 tokens that end an answer */
    PE_TK_SYSTEM,     /* u8 before the text of a system */
    PE_TK_INSTRUCTED, /* u8 between it and the first question */
    PE_TK_OPENED,     /* u8 between PE_TK_ANSWER and an answer, learned with it */
    PE_TK_CLOSED,     /* u8 after an answer, learned with it */
    PE_TK_ASKED,      /* u8 after a last question that has no answer */
    PE_TK_EOS,        /* u32 token that ends a text, or none */
    PE_TK_EARLIER,    /* u8 between PE_TK_ANSWER and an answer that a question follows */
    PE_TK_SCORES,     /* f64 of each token of Unigram as two u32, and of an unknown character */
    PE_TK_CHILDREN,   /* u32 first child of each node of the tries, and the number of nodes */
    PE_TK_LABELS,     /* u8 byte that leads to each node; its siblings are in their order */
    PE_TK_VALUES,     /* u32 value of each node, or PE_NO_TOKEN: a token, or a text's position */
    PE_TK_RULES,      /* pe_tk_rule of normalization, as u32 */
    PE_TK_CONTENTS,   /* u8 of texts, each with a zero byte at its end */
    PE_TK_SECTIONS,
} pe_tk_section;

/* The first numbers of a table. */
typedef struct pe_tk_head {
    uint32_t magic, version, bytes, sum;                   /* the checksum of all that follows it */
    uint32_t count, flags, unknown, longest, chat, growth; /* bytes of a normalized text per byte */
    struct {
        uint32_t at, count;
    } sections[PE_TK_SECTIONS];
} pe_tk_head;

static inline const pe_tk_head *pe_tk_head_of(const pe_tokenizer *t) {
    return (const pe_tk_head *)(const void *)t->table;
}

static inline const uint32_t *pe_tk_words(const pe_tokenizer *t, pe_tk_section section) {
    return (const uint32_t *)(const void *)(t->table + pe_tk_head_of(t)->sections[section].at);
}

static inline uint32_t pe_tk_count(const pe_tokenizer *t, pe_tk_section section) {
    return pe_tk_head_of(t)->sections[section].count;
}

/* The row of a hash table with these keys, or NULL. Rows have `width` numbers, the first `keys` of
 * them keys; an empty one begins with PE_NO_TOKEN. */
const uint32_t *pe_tk_find(const pe_tokenizer *t, pe_tk_section section, int width, int keys,
                           const uint32_t *key);

/* The token of these bytes in a hash table of tokens, or PE_NO_TOKEN. */
uint32_t pe_tk_token(const pe_tokenizer *t, pe_tk_section section, const unsigned char *text,
                     size_t bytes);

/* The character at `at` and its bytes; an invalid byte is a character above U+10FFFF. */
uint32_t pe_tk_character(const unsigned char *text, size_t bytes, size_t at, size_t *length);

/* The sets that it is in, as bits. */
uint32_t pe_tk_sets(const pe_tokenizer *t, uint32_t character);

/* Strips surrounding spaces like str.strip; returns the remaining bytes. */
size_t pe_tk_strip(const pe_tokenizer *t, const char **text, size_t bytes);

/* The end of the piece that begins at `at`, where the one before it ended. `ends` has
 * PE_TK_MOST_PATTERNS numbers, zero at the start of a text. */
size_t pe_tk_piece(const pe_tokenizer *t, const unsigned char *text, size_t bytes, size_t at,
                   size_t *ends);

/* The end of the match of a pattern's steps at `at`, or `at` if there is none. */
size_t pe_tk_match(const pe_tokenizer *t, uint32_t step, const unsigned char *text, size_t bytes,
                   size_t at);

/* The end of the grapheme cluster that begins at `at`. A flag of two letters counts as two, which
 * changes nothing: both are too long to be mapped. */
size_t pe_tk_cluster_end(const pe_tokenizer *t, const unsigned char *text, size_t bytes, size_t at);

/* The nodes of all tries are numbered by depth, then by their bytes; the roots come first. */
enum { PE_TK_VOCABULARY = 0 };

/* The child of a node by a byte, or PE_NO_TOKEN. */
static inline uint32_t pe_tk_child(const uint32_t *children, const unsigned char *labels,
                                   uint32_t node, unsigned char byte) {
    enum { FEW = 8 };
    uint32_t low = children[node], high = children[node + 1];
    while (high - low > FEW) {
        const uint32_t middle = low + (high - low) / 2;
        const bool before = labels[middle] <= byte;
        low = before ? middle : low;
        high = before ? high : middle;
    }
    while (low < high && labels[low] != byte) {
        low++;
    }
    return low < high ? low : PE_NO_TOKEN;
}

/* The value of the shortest key that a text begins with, or if `whole`, of the text itself. */
uint32_t pe_tk_lookup(const pe_tokenizer *t, uint32_t root, const unsigned char *text, size_t bytes,
                      bool whole);

/* The interval of the original text that a byte of a normalized one is from. */
typedef struct pe_tk_span {
    uint32_t begin, end;
} pe_tk_span;

/* A normalized text; without spans if they are not tracked, or if it is the original. */
typedef struct pe_tk_text {
    const unsigned char *bytes;
    const pe_tk_span *spans;
    size_t count;
} pe_tk_text;

/* Memory of two texts of `room` bytes, and of the characters of pe_tk_nfc. */
typedef struct pe_tk_buffers {
    unsigned char *bytes[2];
    pe_tk_span *spans[2];
    uint32_t *characters;
    size_t room;
} pe_tk_buffers;

/* Normalizes to NFC: the result has at most 3 bytes for each byte of the text. `buffers->room` is
 * that, and `characters` has room for twice as many. */
size_t pe_tk_nfc(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                 unsigned char *result, const pe_tk_buffers *buffers);

/* Normalizes a part of a text, which is the first one or not. The result is in the text itself or
 * in the buffers; bytes beyond their room are dropped. NFC tracks no spans. */
pe_tk_text pe_tk_normalize(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                           bool first, bool tracked, const pe_tk_buffers *buffers);

enum { PE_TK_MARK_BYTES = 3 };

/* Whether U+2581 is at `at`. */
static inline bool pe_tk_is_mark(const unsigned char *text, size_t bytes, size_t at) {
    return bytes - at >= PE_TK_MARK_BYTES && text[at] == 0xe2 && text[at + 1] == 0x96 &&
           text[at + 2] == 0x81;
}

/* Parts of a text as intervals, and which tokens are within one. */
typedef struct pe_tk_parts {
    const size_t *places; /* alternating starts and ends, ascending */
    size_t *mapped;       /* memory for as many */
    int count;
    bool *within; /* for each token */
} pe_tk_parts;

/* pe_tokenize, which also marks the tokens within parts of the text, if there are any. */
int64_t pe_tk_tokenize(const pe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                       unsigned marks, int64_t *tokens, int64_t room, void *memory,
                       pe_tk_parts *parts);

/* A symbol of a piece with its position, and a pending merge. */
typedef struct pe_tk_symbol {
    uint32_t token, begin, end;
    int32_t before, after;
} pe_tk_symbol;

typedef struct pe_tk_merge {
    uint32_t rank, result;
    int32_t at;
} pe_tk_merge;

/* Merges the tokens of a piece; returns their number, and leaves them in `symbols`. The heap has
 * room for three merges per symbol. */
int32_t pe_tk_merge_all(const pe_tokenizer *t, pe_tk_symbol *symbols, int32_t count,
                        pe_tk_merge *heap);

/* The best path of tokens to a position of a piece: its last token, where that begins, and the sum
 * of the scores. */
typedef struct pe_tk_path {
    double score;
    uint32_t begin, token;
} pe_tk_path;

/* Finds the best path of tokens to the end of a piece. In its tokens from `path[0].begin` on,
 * `begin` is the end of the token after, or 0. `path` has a row for each byte, and one more. */
void pe_tk_best_path(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                     pe_tk_path *path);

#endif
