/* The table is rebuilt on the stack: that costs less than a microsecond for every call, and
 * leaves no state that threads would share. */
#include "pe_crc.h"

enum { SLICES = 4 };

typedef struct tables {
    uint32_t of[SLICES][256];
} tables;

static void fill(tables *t) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0);
        }
        t->of[0][byte] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            const uint32_t crc = t->of[slice - 1][byte];
            t->of[slice][byte] = crc >> 8 ^ t->of[0][crc & 0xFF];
        }
    }
}

uint32_t pe_crc32(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *next = data;
    tables t;
    fill(&t);
    crc = ~crc;
    for (; bytes >= SLICES; bytes -= SLICES, next += SLICES) {
        crc ^= (uint32_t)next[0] | (uint32_t)next[1] << 8 | (uint32_t)next[2] << 16 |
               (uint32_t)next[3] << 24;
        crc = t.of[3][crc & 0xFF] ^ t.of[2][crc >> 8 & 0xFF] ^ t.of[1][crc >> 16 & 0xFF] ^
              t.of[0][crc >> 24];
    }
    for (; bytes > 0; bytes--, next++) {
        crc = crc >> 8 ^ t.of[0][(crc ^ *next) & 0xFF];
    }
    return ~crc;
}

void pe_crc_digits(uint32_t crc, char *digits) {
    for (int i = 0; i < 8; i++) {
        digits[i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 15];
    }
    digits[8] = '\0';
}
