/* Splits a text into pieces as the patterns of GPT-2, LLaMA 3 and Qwen do:
 *
 *     's|'t|'re|'ve|'m|'ll|'d   a contraction (PE_TK_ANY_CASE: in any case)
 *     P?\p{L}+                  letters after one other character: a space, or with PE_TK_PREFIX
 *                               any that is not a line end, letter or number
 *     N                         numbers: " ?\p{N}+", \p{N} (PE_TK_ONE_NUMBER) or \p{N}{1,3}
 *      ?[^\s\p{L}\p{N}]+        others; with PE_TK_LINES also the line ends after them
 *     \s*[\r\n]+                with PE_TK_LINES, spaces up to the last line end of a run
 *     \s+(?!\S)|\s+             spaces, without the last one where other text follows
 *
 * Each alternative is tried in this order. With PE_TK_ACCENTS (Qwen 3.5), \p{M} goes with \p{L}.
 * With PE_TK_DIGITS, digits are pieces before all this.
 */
#include <string.h>

#include "pe_tokenizer_table.h"

/* A text with the character classes of its pattern. */
typedef struct view {
    const pe_tokenizer *t;
    const unsigned char *text;
    size_t bytes;
    unsigned split;
} view;

static uint32_t look(const view *v, size_t at, unsigned *class, size_t *next) {
    size_t length = 0;
    const uint32_t c = at < v->bytes ? pe_tk_character(v->text, v->bytes, at, &length) : 0;
    *class = length ? pe_tk_class(v->t, c) : 0;
    *next = at + length;
    return c;
}

/* The end of a run of characters of these classes, or with `others` of none of them. */
static size_t run(const view *v, size_t at, unsigned classes, bool others, int most) {
    for (int i = 0; at < v->bytes && i != most; i++) {
        unsigned class;
        size_t next;
        look(v, at, &class, &next);
        if ((class & classes) != 0 ? others : !others) {
            break;
        }
        at = next;
    }
    return at;
}

static bool is_line_end(uint32_t c) { return c == '\r' || c == '\n'; }

/* The letter of a contraction; U+017F is an s in another case. */
static char folded(const view *v, size_t at, size_t *next) {
    unsigned class;
    const uint32_t c = look(v, at, &class, next);
    if (!(v->split & PE_TK_ANY_CASE)) {
        return c < 128 ? (char)c : '\0';
    }
    return c == 0x17f ? 's' : c >= 'A' && c <= 'Z' ? (char)(c + 32) : c < 128 ? (char)c : '\0';
}

static size_t contraction(const view *v, size_t at) {
    if (v->text[at] != '\'') {
        return at;
    }
    size_t one, two;
    const char first = folded(v, at + 1, &one), second = folded(v, one, &two);
    if (first && strchr("stmd", first)) {
        return one;
    }
    const bool pair = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                      (first == 'l' && second == 'l');
    return pair ? two : at;
}

/* Classes of the characters that words are made of. */
static unsigned letter_classes(const view *v) {
    return PE_TK_LETTER | (v->split & PE_TK_ACCENTS ? PE_TK_ACCENT : 0u);
}

static size_t letters(const view *v, size_t at) {
    unsigned class;
    size_t next;
    const uint32_t c = look(v, at, &class, &next);
    const bool prefix = v->split & PE_TK_PREFIX
                            ? !is_line_end(c) && !(class & (letter_classes(v) | PE_TK_NUMBER))
                            : c == ' ';
    const size_t start = prefix ? next : at;
    const size_t end = run(v, start, letter_classes(v), false, -1);
    return end > start ? end : at;
}

static size_t numbers(const view *v, size_t at) {
    if (v->split & (PE_TK_ONE_NUMBER | PE_TK_THREE)) {
        return run(v, at, PE_TK_NUMBER, false, v->split & PE_TK_THREE ? 3 : 1);
    }
    const size_t start = v->text[at] == ' ' ? at + 1 : at;
    const size_t end = run(v, start, PE_TK_NUMBER, false, -1);
    return end > start ? end : at;
}

static size_t others(const view *v, size_t at) {
    const unsigned known = letter_classes(v) | PE_TK_NUMBER | PE_TK_SPACE;
    const size_t start = v->text[at] == ' ' ? at + 1 : at;
    size_t end = run(v, start, known, true, -1);
    if (end == start) {
        return at;
    }
    while (v->split & PE_TK_LINES && end < v->bytes && is_line_end(v->text[end])) {
        end++;
    }
    return end;
}

static size_t spaces(const view *v, size_t at) {
    size_t last = at, lines = at, end = at;
    while (end < v->bytes) {
        unsigned class;
        size_t next;
        const uint32_t c = look(v, end, &class, &next);
        if (!(class & PE_TK_SPACE)) {
            break;
        }
        lines = is_line_end(c) ? next : lines;
        last = end;
        end = next;
    }
    if (v->split & PE_TK_LINES && lines > at) {
        return lines;
    }
    return end == v->bytes || last == at ? end : last;
}

static size_t end_of_digits(const view *v, size_t at, bool *digit) {
    unsigned class;
    size_t next;
    look(v, at, &class, &next);
    *digit = (class & PE_TK_NUMERIC) != 0;
    return *digit ? next : run(v, at, PE_TK_NUMERIC, true, -1);
}

size_t pe_tk_piece(const pe_tokenizer *t, const unsigned char *text, size_t bytes, size_t at) {
    view v = {t, text, bytes, pe_tk_head_of(t)->split};
    if (pe_tk_head_of(t)->flags & PE_TK_DIGITS) {
        bool digit;
        v.bytes = end_of_digits(&v, at, &digit);
        if (digit) {
            return v.bytes;
        }
    }
    if (!(v.split & PE_TK_SPLIT)) {
        return v.bytes;
    }
    size_t (*const kinds[])(const view *, size_t) = {contraction, letters, numbers, others, spaces};
    for (int i = 0; i < 5; i++) {
        const size_t end = kinds[i](&v, at);
        if (end > at) {
            return end;
        }
    }
    return v.bytes;
}
