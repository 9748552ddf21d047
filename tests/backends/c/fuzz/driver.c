/* A small fuzzer for gcc: mutates a corpus, keeps inputs with new edges, and stops at a fault.
 *
 *     driver SECONDS SEED FILE...
 *
 * The code under test is compiled by -fsanitize-coverage=trace-pc, whose calls are counted here. An
 * input at which a sanitizer or a check stops the program is saved in the file `fault`.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGEST = 4096, MOST = 4096, EDGES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));
void __sanitizer_cov_trace_pc(void);
const char *__ubsan_default_options(void);

typedef struct sample {
    size_t size;
    uint8_t data[LARGEST];
} sample;

static sample corpus[MOST], current;
static int count;
static uint8_t reached[EDGES];
static long fresh, edges;
static uintptr_t previous;
static uint64_t state;

/* An edge is a pair of consecutive blocks. */
void __sanitizer_cov_trace_pc(void) {
    const uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uint8_t *edge = &reached[(place ^ previous * 31) % EDGES];
    previous = place;
    if (!*edge) {
        *edge = 1;
        fresh++;
    }
}

static void leave_fault(void) {
    FILE *file = fopen("fault", "wb");
    if (file) {
        fwrite(current.data, 1, current.size, file);
        fclose(file);
    }
}

static void on_abort(int number) {
    (void)number;
    leave_fault();
    _Exit(99);
}

/* GCC's undefined-behavior sanitizer has a runtime of its own, without the death callback. */
const char *__ubsan_default_options(void) { return "abort_on_error=1"; }

static uint64_t draw(uint64_t below) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545F4914F6CDD1DULL >> 16) % below;
}

static void cut(size_t at, size_t size) {
    memmove(current.data + at, current.data + at + size, current.size - at - size);
    current.size -= size;
}

static void insert(size_t at, const uint8_t *data, size_t size) {
    if (current.size + size <= LARGEST) {
        memmove(current.data + at + size, current.data + at, current.size - at);
        memcpy(current.data + at, data, size);
        current.size += size;
    }
}

/* Corrects the length of a safetensors header to end at the last brace. */
static void mend_length(size_t at) {
    uint64_t length = 0;
    for (size_t i = 8; i < current.size; i++) {
        length = current.data[i] == '}' ? i - 7 : length;
    }
    for (size_t i = 0; i < 8 && i < current.size; i++) {
        current.data[i] = (uint8_t)(length >> (8 * i));
    }
    (void)at;
}

static void flip_bit(size_t at) {
    if (at < current.size) {
        current.data[at] ^= (uint8_t)(1U << draw(8));
    }
}

static void set_byte(size_t at) {
    if (at < current.size) {
        const uint8_t old = current.data[at];
        const bool digit = old >= '0' && old <= '9';
        current.data[at] = (uint8_t)(digit ? '0' + draw(10) : draw(256));
    }
}

static void cut_some(size_t at) {
    const size_t left = current.size - at;
    cut(at, (size_t)draw((left < 32 ? left : 32) + 1));
}

static void cut_rest(size_t at) { cut(at, current.size - at); }

static void insert_token(size_t at) {
    static const char *const tokens[] = {
        "\"dtype\"",
        "\"shape\"",
        "\"data_offsets\"",
        "__metadata__",
        "F32",
        "I64",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "\"",
        "\\u0041",
        "\\\\",
        "9223372036854775807",
        "-1",
        "0",
        "4294967296",
        "pockengine.checkpoint",
        "pockengine.steps",
        "\xff",
        "\xc3",
        "--lr",
        "1e39",
        "nan",
        "--first-step",
        "--total",
        "--resume=",
        "--save-every=1",
        "--keep",
        "--on-nan=rollback",
        "",
    };
    const char *token = tokens[draw(sizeof tokens / sizeof *tokens)];
    insert(at, (const uint8_t *)token, strlen(token) + (*token == 0)); /* an empty one is a NUL */
}

static void insert_piece(size_t at) {
    const sample *other = &corpus[draw((uint64_t)count)];
    const size_t from = (size_t)draw(other->size + 1);
    insert(at, other->data + from, (size_t)draw(other->size - from + 1));
}

static void mutate(void) {
    static void (*const changes[])(size_t at) = {flip_bit, set_byte,     set_byte,     cut_some,
                                                 cut_rest, insert_token, insert_piece, mend_length};
    const size_t at = (size_t)draw(current.size + 1);
    changes[draw(sizeof changes / sizeof *changes)](at);
}

/* Runs the current input and keeps it if it reached new edges. */
static void try_current(void) {
    fresh = 0;
    previous = 0;
    LLVMFuzzerTestOneInput(current.data, current.size);
    edges += fresh;
    if (fresh && count < MOST) {
        corpus[count++] = current;
    }
}

static void read_sample(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    current.size = fread(current.data, 1, LARGEST, file);
    fclose(file);
    corpus[count++] = current;
    try_current();
}

int main(int argument_count, char **arguments) {
    if (argument_count < 4) {
        fprintf(stderr, "usage: %s SECONDS SEED FILE...\n", arguments[0]);
        return 2;
    }
    __sanitizer_set_death_callback(leave_fault);
    signal(SIGABRT, on_abort);
    state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    for (int i = 3; i < argument_count && count < MOST / 2; i++) {
        read_sample(arguments[i]);
    }
    const time_t end = time(NULL) + strtol(arguments[1], NULL, 10);
    long executions = 0;
    while (executions % 256 || time(NULL) < end) {
        current = corpus[draw((uint64_t)count)];
        for (uint64_t changes = 1 + draw(6); changes > 0; changes--) {
            mutate();
        }
        try_current();
        executions++;
    }
    printf("{\"executions\": %ld, \"corpus\": %d, \"edges\": %ld}\n", executions, count, edges);
    return 0;
}
