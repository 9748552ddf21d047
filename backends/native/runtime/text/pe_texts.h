/* Training texts: a file of JSON lines as rows of tokens for a decoder.
 *
 * Several texts share a row, but do not attend to each other, because positions restart with each
 * text. Rows equal those of finetune/lm/packing.py, token for token.
 */
#ifndef PE_TEXTS_H
#define PE_TEXTS_H

#include "pe_tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PE_IGNORED (-100) /* label of a token that does not count in the loss */

/* How texts become rows. */
typedef struct pe_row_form {
    const pe_tokenizer *tokenizer;
    int64_t length; /* tokens of a row */
    bool truncate;  /* cut longer texts instead of leaving them out */
    bool apart;     /* one text per row */
} pe_row_form;

/* Lines that were left out or cut, the first five by number. */
typedef struct pe_text_lines {
    int64_t count, first[5];
} pe_text_lines;

/* Rows of `length` tokens each, one after the other. */
typedef struct pe_texts {
    int64_t length, rows, tokens;
    int64_t *ids, *labels, *positions;
    pe_text_lines empty, too_long, cut;
} pe_texts;

/* Reads a file; call pe_texts_free after an error too. PE_ERROR_FORMAT names the first bad
 * line. */
pe_status pe_texts_read(pe_texts *texts, const char *path, const pe_row_form *form, char *message);

void pe_texts_free(pe_texts *texts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
