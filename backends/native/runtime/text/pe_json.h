/* A strict JSON reader in memory; private to the reader of texts.
 *
 * It stops at its first fault, and later calls have no effect.
 */
#ifndef PE_JSON_H
#define PE_JSON_H

#include "pe.h"

typedef struct pe_json {
    const unsigned char *at, *end;
    const char *fault; /* NULL, or the fault before `at` */
} pe_json;

/* Records the first fault. */
void pe_json_bad(pe_json *j, const char *fault);

/* Consumes this character if it is next, after white space. */
bool pe_json_accept(pe_json *j, char token);

/* Consumes this character; if it is missing, records `fault`. */
void pe_json_expect(pe_json *j, char token, const char *fault);

/* The next character after white space, or 0 at the end. */
int pe_json_peek(pe_json *j);

/* Decodes a string to UTF-8 and returns its bytes, no more than the source has; `text` may be NULL.
 */
size_t pe_json_string(pe_json *j, char *text);

/* Consumes any value. */
void pe_json_skip(pe_json *j);

#endif
