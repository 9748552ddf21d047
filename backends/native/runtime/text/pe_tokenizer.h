/* Converts text to tokens and tokens to text, like the package `tokenizers`.
 *
 * models/tokenizer_table.py converts a tokenizer.json to a table, which is read in place: mapped
 * from a file, or in flash. Byte-level BPE (GPT-2, LLaMA 3, Qwen), SentencePiece's BPE (LLaMA 2,
 * Gemma) and its Unigram (T5, XLM-R, XGLM) are supported. Text is UTF-8; an invalid byte counts as
 * one character.
 */
#ifndef PE_TOKENIZER_H
#define PE_TOKENIZER_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A tokenizer. Its table must outlive it and be aligned to 4 bytes. */
typedef struct pe_tokenizer {
    const unsigned char *table;
    size_t bytes;
} pe_tokenizer;

/* PE_ERROR_FORMAT, with a message of at most PE_MESSAGE_BYTES, for other or damaged tables. */
pe_status pe_tokenizer_init(pe_tokenizer *tokenizer, const void *table, size_t bytes,
                            char *message);

/* Number of tokens. */
int64_t pe_tokenizer_size(const pe_tokenizer *tokenizer);

/* Bytes of memory that pe_tokenize needs for a text, and the most tokens that it makes of one. */
size_t pe_tokenizer_memory(const pe_tokenizer *tokenizer, size_t text_bytes);
int64_t pe_tokenizer_most(const pe_tokenizer *tokenizer, size_t text_bytes);

/* The special tokens that pe_tokenize adds to a text. */
enum { PE_TOKENS_BEGIN = 1, PE_TOKENS_END = 2 };

/* Writes the tokens of a text to `tokens`, at most `room` of them, and returns their number, or
 * -1 if there are more. `marks` adds the tokens that begin and end a text. `memory` is aligned to 4
 * bytes. */
int64_t pe_tokenize(const pe_tokenizer *tokenizer, const char *text, size_t text_bytes,
                    unsigned marks, int64_t *tokens, int64_t room, void *memory);

/* Writes a token's text to `text` and returns its number of bytes, at most pe_tokenizer_longest.
 * The text may end within a character. Returns 0 for a special token and for one that does not
 * exist. *first is true before the first token of a text, and becomes false after the first token
 * that is not special. */
size_t pe_token_text(const pe_tokenizer *tokenizer, int64_t token, bool *first, char *text);
size_t pe_tokenizer_longest(const pe_tokenizer *tokenizer);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
