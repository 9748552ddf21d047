/* Unicode's normalization form C: canonical decomposition, canonical order, composition. */
#include "pe_tokenizer_table.h"

#include <string.h>

enum { FIRST_SYLLABLE = 0xac00, LEADS = 0x1100, VOWELS = 0x1161, TRAILS = 0x11a7 };
enum { LEAD_COUNT = 19, VOWEL_COUNT = 21, TRAIL_COUNT = 28, PLAIN = 0x300 };

static unsigned combining(const pe_tokenizer *t, uint32_t c) {
    if (c < PLAIN || c > 0x10ffff) {
        return 0;
    }
    const uint16_t *blocks = (const uint16_t *)(const void *)pe_tk_words(t, PE_TK_BLOCKS);
    const unsigned char *classes = (const unsigned char *)pe_tk_words(t, PE_TK_COMBINING);
    return classes[blocks[c >> 8] * 256u + (c & 255)];
}

static size_t decompose(const pe_tokenizer *t, uint32_t c, uint32_t *result) {
    const uint32_t s = c - FIRST_SYLLABLE;
    if (c >= FIRST_SYLLABLE && s < LEAD_COUNT * VOWEL_COUNT * TRAIL_COUNT) {
        result[0] = LEADS + s / (VOWEL_COUNT * TRAIL_COUNT);
        result[1] = VOWELS + s / TRAIL_COUNT % VOWEL_COUNT;
        result[2] = TRAILS + s % TRAIL_COUNT;
        return s % TRAIL_COUNT ? 3 : 2;
    }
    uint32_t behind[4];
    size_t count = 0;
    for (int depth = 0; depth < 4; depth++) { /* Unicode's longest chain has three steps */
        const uint32_t *row = pe_tk_find(t, PE_TK_SPLITS, 3, 1, &c);
        if (!row) {
            break;
        }
        if (row[2] != PE_NO_TOKEN) {
            behind[count++] = row[2];
        }
        c = row[1];
    }
    result[0] = c;
    for (size_t i = 0; i < count; i++) {
        result[i + 1] = behind[count - 1 - i];
    }
    return count + 1;
}

static uint32_t composed(const pe_tokenizer *t, uint32_t a, uint32_t b) {
    if (a - LEADS < LEAD_COUNT && b - VOWELS < VOWEL_COUNT) {
        return FIRST_SYLLABLE + ((a - LEADS) * VOWEL_COUNT + b - VOWELS) * TRAIL_COUNT;
    }
    const uint32_t s = a - FIRST_SYLLABLE;
    if (s < LEAD_COUNT * VOWEL_COUNT * TRAIL_COUNT && s % TRAIL_COUNT == 0 && b > TRAILS &&
        b < TRAILS + TRAIL_COUNT) {
        return a + b - TRAILS;
    }
    const uint32_t *row = pe_tk_find(t, PE_TK_JOINS, 3, 2, (const uint32_t[]){a, b});
    return row ? row[2] : 0;
}

/* Sorts marks by their classes; those of one class stay in their order. */
static void order(const pe_tokenizer *t, uint32_t *marks, size_t count, uint32_t *sorted) {
    size_t places[257] = {0};
    for (size_t i = 0; i < count; i++) {
        places[combining(t, marks[i]) + 1]++;
    }
    for (int class = 1; class < 257; class++) {
        places[class] += places[class - 1];
    }
    for (size_t i = 0; i < count; i++) {
        sorted[places[combining(t, marks[i])]++] = marks[i];
    }
    memcpy(marks, sorted, count * sizeof *marks);
}

/* Decomposes a text in canonical order; returns the number of characters. */
static size_t spread(const pe_tokenizer *t, const unsigned char *text, size_t bytes, uint32_t *room,
                     uint32_t *sorted) {
    size_t count = 0, marks = 0, length; /* marks: where the last run of them begins */
    unsigned last = 0;
    bool ordered = true;
    for (size_t at = 0; at < bytes; at += length) {
        const uint32_t c = pe_tk_character(text, bytes, at, &length);
        const size_t end = count + decompose(t, c, room + count);
        for (; count < end; count++) {
            const unsigned class = combining(t, room[count]);
            if (!class) {
                if (!ordered) {
                    order(t, room + marks, count - marks, sorted);
                }
                marks = count + 1;
                ordered = true;
            }
            ordered = ordered && (!class || class >= last);
            last = class;
        }
    }
    if (!ordered) {
        order(t, room + marks, count - marks, sorted);
    }
    return count;
}

static size_t join(const pe_tokenizer *t, uint32_t *room, size_t count) {
    size_t made = 0, starter = 0;
    bool started = false;
    unsigned last = 0; /* class of the last character between the starter and the next one */
    for (size_t i = 0; i < count; i++) {
        const unsigned class = combining(t, room[i]);
        const bool free = started && (made == starter + 1 || last < class);
        const uint32_t both = free ? composed(t, room[starter], room[i]) : 0;
        if (both) {
            room[starter] = both;
            continue;
        }
        if (!class) {
            starter = made;
            started = true;
        }
        last = class;
        room[made++] = room[i];
    }
    return made;
}

static size_t put(uint32_t c, unsigned char *result) {
    if (c > 0x10ffff) { /* a byte that is not UTF-8 */
        result[0] = (unsigned char)(c - 0x110000);
        return 1;
    }
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char HEADS[] = {0, 0xc0, 0xe0, 0xf0};
    for (int i = more; i; i--, c >>= 6) {
        result[i] = (unsigned char)(0x80 | (c & 0x3f));
    }
    result[0] = (unsigned char)(HEADS[more] | c);
    return (size_t)more + 1;
}

size_t pe_tk_nfc(const pe_tokenizer *t, const unsigned char *text, size_t bytes,
                 unsigned char *result, const pe_tk_buffers *buffers) {
    uint32_t *room = buffers->characters;
    const size_t count = join(t, room, spread(t, text, bytes, room, room + buffers->room));
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        written += put(room[i], result + written);
    }
    return written;
}
