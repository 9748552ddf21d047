/* A line of training texts, as one text with the parts that count in the loss; private to
 * pe_texts.c. A line has one of these forms:
 *
 *     {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
 *     {"prompt": "...", "completion": "..."}
 *     {"text": "..."}
 */
#ifndef PE_EXAMPLE_H
#define PE_EXAMPLE_H

#include "pe_json.h"
#include "pe_tokenizer.h"

/* Buffers grow, and are reused from line to line. */
typedef struct pe_example {
    const pe_tokenizer *tokenizer;
    char *text, *strings; /* the example's, and those of its line */
    size_t bytes, room, string_room;
    size_t *places; /* start and end of each part that counts in the loss */
    int place_count, place_room;
    bool marked;       /* the template wrote the tokens that begin and end a text */
    bool ends;         /* the token that ends a text follows */
    bool empty;        /* nothing counts in the loss */
    const char *fault; /* of the line, or NULL */
    bool no_memory;
} pe_example;

/* Reads a line; false if it has a fault, or if memory is exhausted. */
bool pe_example_read(pe_example *example, const unsigned char *line, size_t bytes);

void pe_example_free(pe_example *example);

#endif
