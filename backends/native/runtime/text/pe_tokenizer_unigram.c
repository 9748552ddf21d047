/* Unigram: the tokens of a piece are the path with the highest sum of scores (Viterbi). Of equal
 * paths to a position, that whose last token begins first wins. A character without a token of its
 * own is unknown, at a score below that of every token. */
#include "pe_tokenizer_table.h"

#include <string.h>

/* A score; f64 of a table are aligned to 4 bytes. */
static double score_of(const uint32_t *scores, uint32_t token) {
    double score;
    memcpy(&score, scores + 2 * (size_t)token, sizeof score);
    return score;
}

/* Ends a path by a token, if none that ends there is as good. */
static void offer(pe_tk_path *path, double score, size_t begin, uint32_t token) {
    if (path->begin == PE_NO_TOKEN || score > path->score) {
        *path = (pe_tk_path){score, (uint32_t)begin, token};
    }
}

/* Lets the tokens of the best path point forward: `begin` becomes the end of the token after. */
static void turn(pe_tk_path *path, size_t bytes) {
    uint32_t after = 0;
    for (uint32_t end = (uint32_t)bytes; end;) {
        const uint32_t begin = path[end].begin;
        path[end].begin = after;
        after = end;
        end = begin;
    }
    path[0].begin = after;
}

void pe_tk_best_path(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                     pe_tk_path *path) {
    const uint32_t *children = pe_tk_words(t, PE_TK_CHILDREN), *values;
    const unsigned char *labels = (const unsigned char *)pe_tk_words(t, PE_TK_LABELS);
    const uint32_t *scores = pe_tk_words(t, PE_TK_SCORES), count = pe_tk_head_of(t)->count;
    const double unknown = score_of(scores, count);
    values = pe_tk_words(t, PE_TK_VALUES);
    for (size_t i = 0; i <= bytes; i++) {
        path[i] = (pe_tk_path){0, PE_NO_TOKEN, PE_NO_TOKEN};
    }
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        pe_tk_character(text, bytes, at, &length);
        const double here = path[at].score;
        bool single = false;
        uint32_t node = PE_TK_VOCABULARY;
        for (size_t end = at; end < bytes;) {
            node = pe_tk_child(children, labels, node, text[end++]);
            if (node == PE_NO_TOKEN) {
                break;
            }
            const uint32_t token = values[node];
            if (token < count) {
                offer(&path[end], score_of(scores, token) + here, at, token);
                single = single || end - at == length;
            }
        }
        if (!single) {
            offer(&path[at + length], unknown + here, at, pe_tk_head_of(t)->unknown);
        }
    }
    turn(path, bytes);
}

uint32_t pe_tk_lookup(const pe_tokenizer *t, uint32_t root, const unsigned char *text, size_t bytes,
                      bool whole) {
    const uint32_t *children = pe_tk_words(t, PE_TK_CHILDREN);
    const unsigned char *labels = (const unsigned char *)pe_tk_words(t, PE_TK_LABELS);
    uint32_t value = PE_NO_TOKEN;
    for (size_t i = 0; i < bytes && (whole || value == PE_NO_TOKEN); i++) {
        root = pe_tk_child(children, labels, root, text[i]);
        if (root == PE_NO_TOKEN) {
            return PE_NO_TOKEN;
        }
        value = pe_tk_words(t, PE_TK_VALUES)[root];
    }
    return value;
}
