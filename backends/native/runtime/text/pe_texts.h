/* Texts to learn from: a file of JSON lines as rows of tokens for a decoder.
 *
 * Texts share a row without attending to each other, because positions restart with each. Rows are
 * those of finetune/lm/packing.py, token for token.
 */
#ifndef PE_TEXTS_H
#define PE_TEXTS_H

#include "pe_tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PE_IGNORED (-100) /* the label of a token that is not learned */

/* How texts become rows. */
typedef struct pe_row_form {
    const pe_tokenizer *tokenizer;
    int64_t length; /* tokens of a row */
    bool truncate;  /* cut longer texts; else they are left out */
    bool apart;     /* each text has a row of its own */
} pe_row_form;

/* Lines that are not used as they are, the first five by number. */
typedef struct pe_text_lines {
    int64_t count, first[5];
} pe_text_lines;

/* Rows of `length` tokens each, one after the other. */
typedef struct pe_texts {
    int64_t length, rows, tokens;
    int64_t *ids, *labels, *positions;
    pe_text_lines empty, too_long, cut;
} pe_texts;

/* Reads a file; pe_texts_free is called after an error too. PE_ERROR_FORMAT names the first bad
 * line. */
pe_status pe_texts_read(pe_texts *texts, const char *path, const pe_row_form *form, char *message);

void pe_texts_free(pe_texts *texts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
