/* Runs the kernels of the table `tests` on operands from the file "data" and writes their results
 * to "out". The guard bytes after results and scratch must not change. */
#include <stdbool.h>

#include "semihost.h"

enum { MOST_BYTES = 1 << 18, GUARD = 64, FILL = 0xff };

static _Alignas(64) unsigned char memory[MOST_BYTES];

static void require(bool fact, const char *text) {
    if (!fact) {
        semihost_print(text);
        semihost_exit(1);
    }
}

static void *take(size_t *used, size_t bytes) {
    unsigned char *p = memory + *used;
    *used = (*used + bytes + GUARD + 63) / 64 * 64;
    require(*used <= MOST_BYTES, "a case needs more memory\n");
    for (unsigned char *at = p; at < memory + *used; at++) {
        *at = FILL;
    }
    return p;
}

static void check_guard(const unsigned char *p) {
    for (int i = 0; i < GUARD; i++) {
        require(p[i] == FILL, "a kernel wrote behind its memory\n");
    }
}

void train(void) {
    const int data = semihost_open("data", false), out = semihost_open("out", true);
    pe_worker worker = {.index = 0, .count = 1, .team = NULL};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const struct test *t = &tests[i];
        size_t used = 0;
        void *p[MOST_VALUES + 1];
        for (int j = 0; j < t->operands; j++) {
            p[j] = take(&used, t->bytes[j]);
            require(semihost_read(data, p[j], t->bytes[j]), "data ends too early\n");
        }
        p[t->operands] = take(&used, t->bytes[t->operands]);
        p[t->operands + 1] = take(&used, t->scratch);
        t->job(&worker, p);
        check_guard((const unsigned char *)p[t->operands] + t->bytes[t->operands]);
        check_guard((const unsigned char *)p[t->operands + 1] + t->scratch);
        require(semihost_write(out, p[t->operands], t->bytes[t->operands]), "out is full\n");
    }
    semihost_exit(0);
}
