/* Tokens of a text, and the text of tokens, as in the package `tokenizers`.
 *
 * models/tokenizer_table.py converts a tokenizer.json to the table that this reads where it lies:
 * mapped from a file, or in flash. Supported are byte-level BPE (GPT-2, LLaMA 3, Qwen) and the BPE
 * of SentencePiece (LLaMA 2, Gemma). Text is UTF-8; a byte that is none is a character of its own.
 */
#ifndef PE_TOKENIZER_H
#define PE_TOKENIZER_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A table, which must outlive it and be aligned to 4 bytes. */
typedef struct pe_tokenizer {
    const unsigned char *table;
    size_t bytes;
} pe_tokenizer;

/* PE_ERROR_FORMAT, with a message of at most PE_MESSAGE_BYTES, for other or damaged tables. */
pe_status pe_tokenizer_init(pe_tokenizer *tokenizer, const void *table, size_t bytes,
                            char *message);

/* Number of tokens. */
int64_t pe_tokenizer_size(const pe_tokenizer *tokenizer);

/* Bytes of memory that pe_tokenize needs for a text. */
size_t pe_tokenizer_memory(size_t text_bytes);

/* The special tokens that pe_tokenize adds to a text. */
enum { PE_TOKENS_BEGIN = 1, PE_TOKENS_END = 2 };

/* Puts the tokens of a text into `tokens`, at most `room` of them, and returns their number, or -1
 * where there are more: 3 * text_bytes + 16 are always enough. `marks` adds those that begin and
 * end a text. `memory` is aligned to 4 bytes. */
int64_t pe_tokenize(const pe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                    unsigned marks, int64_t *tokens, int64_t room, void *memory);

/* Writes a token's text to `text` and returns its bytes, which may end within a character; 0 for a
 * token that marks something, and for one that does not exist. *first is true before the first
 * token of a text, and becomes false after one that marks nothing. At most pe_tokenizer_longest
 * bytes. */
size_t pe_token_text(const pe_tokenizer *tokenizer, int64_t token, bool *first, char *text);
size_t pe_tokenizer_longest(const pe_tokenizer *tokenizer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
