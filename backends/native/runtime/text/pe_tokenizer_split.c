/* Splits a text into pieces by regular expressions, compiled to steps by models/split_patterns.py.
 *
 * A match is the first that backtracking finds, as in Oniguruma: options in their order, and the
 * longest run first. Text between matches is a piece. Each pattern splits the pieces of the one
 * before it, and sees nothing outside of them.
 */
#include "pe_tokenizer_table.h"

#define NO_MATCH ((size_t)-1)

typedef struct view {
    const pe_tokenizer *t;
    const pe_tk_step *steps;
    const unsigned char *text;
    size_t bytes;
} view;

/* Whether the character at `at` is in a set, and the next one's position. */
static bool is_in(const view *v, size_t at, uint32_t set, size_t *next) {
    if (at >= v->bytes) {
        return false;
    }
    size_t length;
    const uint32_t c = pe_tk_character(v->text, v->bytes, at, &length);
    *next = at + length;
    return pe_tk_sets(v->t, c) >> set & 1;
}

/* The start of the character that ends at `end`; the one at `begin` is before it, or is it. */
static size_t before(const view *v, size_t begin, size_t end) {
    size_t at = end - 1, length;
    while (at > begin && end - at < 4 && (v->text[at] & 0xc0) == 0x80) {
        at--;
    }
    pe_tk_character(v->text, v->bytes, at, &length);
    return at + length == end ? at : end - 1;
}

/* The end of a match of the steps from `step` on, or NO_MATCH. A call within it is of a later step,
 * so the depth is at most PE_TK_MOST_STEPS. */
static size_t match(const view *v, uint32_t step, size_t at) {
    for (;;) {
        const pe_tk_step *s = &v->steps[step];
        size_t next, count = 0, end = at;
        if (s->kind == PE_TK_DONE) {
            return at;
        }
        if (s->kind == PE_TK_GO || s->kind == PE_TK_ELSE) {
            end = s->kind == PE_TK_ELSE ? match(v, step + 1, at) : NO_MATCH;
            if (end != NO_MATCH) {
                return end;
            }
            step = s->operand;
            continue;
        }
        step++;
        if (s->kind == PE_TK_NOT) {
            if (is_in(v, at, s->operand, &next)) {
                return NO_MATCH;
            }
            continue;
        }
        for (; count < s->most && is_in(v, end, s->operand, &next); count++) {
            end = next;
        }
        if (count < s->least) {
            return NO_MATCH;
        }
        for (; s->kind == PE_TK_RUN && count > s->least; count--) {
            const size_t found = match(v, step, end);
            if (found != NO_MATCH) {
                return found;
            }
            end = before(v, at, end);
        }
        at = end;
    }
}

size_t pe_tk_match(const pe_tokenizer *t, uint32_t step, const unsigned char *text, size_t bytes,
                   size_t at) {
    const pe_tk_step *steps = (const pe_tk_step *)(const void *)pe_tk_words(t, PE_TK_STEPS);
    const view v = {t, steps, text, bytes};
    const size_t end = match(&v, step, at);
    return end == NO_MATCH ? at : end;
}

/* The end of the match that begins at `at`, or else of the text before the next one. */
static size_t end_of(const view *v, uint32_t start, size_t at) {
    const size_t begin = at;
    for (size_t length; at < v->bytes; at += length) {
        const size_t end = match(v, start, at);
        if (end != NO_MATCH && end > at) {
            return at == begin ? end : at;
        }
        pe_tk_character(v->text, v->bytes, at, &length);
    }
    return v->bytes;
}

size_t pe_tk_piece(const pe_tokenizer *t, const unsigned char *text, size_t bytes, size_t at,
                   size_t *ends) {
    const pe_tk_step *steps = (const pe_tk_step *)(const void *)pe_tk_words(t, PE_TK_STEPS);
    view v = {t, steps, text, bytes};
    for (uint32_t i = 0; i < pe_tk_count(t, PE_TK_STARTS); i++) {
        if (ends[i] <= at) {
            ends[i] = end_of(&v, pe_tk_words(t, PE_TK_STARTS)[i], at);
        }
        v.bytes = ends[i];
    }
    return v.bytes;
}
