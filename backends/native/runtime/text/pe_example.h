/* A line of texts to learn from, as one text with the parts that are learned; private to
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

/* Buffers grow and are used again from line to line. */
typedef struct pe_example {
    const pe_tokenizer *tokenizer;
    char *text, *strings; /* the example's, and those of its line */
    size_t bytes, room, string_room;
    size_t *places; /* of the begin and the end of each part that is learned */
    int place_count, place_room;
    bool marked;       /* the template wrote the tokens that begin and end a text */
    bool ends;         /* the token that ends a text follows */
    bool empty;        /* nothing is learned */
    const char *fault; /* of the line, or NULL */
    bool no_memory;
} pe_example;

/* Reads a line; false if it has a fault, or there is no memory. */
bool pe_example_read(pe_example *example, const unsigned char *line, size_t bytes);

void pe_example_free(pe_example *example);

#endif
