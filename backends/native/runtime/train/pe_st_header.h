/* The header of a safetensors file as a stream of tokens; private to the reader. */
#ifndef PE_ST_HEADER_H
#define PE_ST_HEADER_H

#include "pe_safetensors.h"

/* The header as a stream of characters; `failed` is sticky, and a failed stream is all zeros. */
typedef struct pe_st_header {
    int file;
    const char *path;
    char *message;
    uint64_t position; /* in the file, of the byte after the buffer */
    uint64_t end;      /* of the header */
    size_t next, fill;
    pe_status failed;
    unsigned char buffer[4096];
} pe_st_header;

/* Records the first fault. */
pe_status pe_st_bad(pe_st_header *h, const char *fact);

/* The next character, or 0 at the header's end or after a failure. */
int pe_st_peek(pe_st_header *h);

void pe_st_skip_space(pe_st_header *h);

/* Consumes this token if it is next. */
bool pe_st_accept(pe_st_header *h, char token);

void pe_st_expect(pe_st_header *h, char token);

/* A string of at most size - 1 bytes. */
void pe_st_string(pe_st_header *h, char *text, size_t size);

/* The first size - 1 bytes of a string of any length. */
void pe_st_long_string(pe_st_header *h, char *text, size_t size);

/* A non-negative integer below 2^62. */
uint64_t pe_st_integer(pe_st_header *h);

/* Integers in brackets; returns how many. */
int pe_st_list(pe_st_header *h, uint64_t *values, int limit);

#endif
