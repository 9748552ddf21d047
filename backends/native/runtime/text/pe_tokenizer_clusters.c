/* Extended grapheme clusters, as Unicode's UAX 29 defines them. */
#include "pe_tokenizer_table.h"

/* What the characters of a cluster so far allow to follow. */
typedef struct state {
    uint32_t last, last_sets;
    bool picture;   /* an emoji, and marks */
    bool joined;    /* ... and a zero-width joiner */
    bool consonant; /* of a conjunct, and its marks */
    bool linked;    /* ... with a linker among them */
} state;

enum { JOINER = 0x200d };

static void advance(state *s, uint32_t c, uint32_t sets) {
    s->joined = s->picture && c == JOINER;
    s->picture = sets & PE_TK_PICTURE || (s->picture && sets & PE_TK_EXTEND);
    const bool inside = (s->consonant && sets & PE_TK_CONJUNCT) != 0;
    s->linked = inside && (s->linked || sets & PE_TK_LINKER);
    s->consonant = inside || sets & PE_TK_CONSONANT;
    s->last = c;
    s->last_sets = sets;
}

static bool is_syllable(uint32_t before, uint32_t after) {
    return (before & PE_TK_LEAD &&
            after & (PE_TK_LEAD | PE_TK_VOWEL | PE_TK_OPEN_SYLLABLE | PE_TK_CLOSED_SYLLABLE)) ||
           (before & (PE_TK_OPEN_SYLLABLE | PE_TK_VOWEL) && after & (PE_TK_VOWEL | PE_TK_TRAIL)) ||
           (before & (PE_TK_CLOSED_SYLLABLE | PE_TK_TRAIL) && after & PE_TK_TRAIL);
}

static bool continues(const state *s, uint32_t c, uint32_t sets) {
    if (s->last == '\r' && c == '\n') {
        return true;
    }
    if ((s->last_sets | sets) & PE_TK_CONTROL) {
        return false;
    }
    return sets & PE_TK_ATTACHED || s->last_sets & PE_TK_PREPENDED ||
           is_syllable(s->last_sets, sets) || (s->linked && sets & PE_TK_CONSONANT) ||
           (s->joined && sets & PE_TK_PICTURE);
}

size_t pe_tk_cluster_end(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                         size_t at) {
    state s = {0};
    size_t length;
    for (size_t end = at; end < bytes; end += length) {
        const uint32_t c = pe_tk_character(text, bytes, end, &length), sets = pe_tk_sets(t, c);
        if (end > at && !continues(&s, c, sets)) {
            return end;
        }
        advance(&s, c, sets);
    }
    return bytes;
}
