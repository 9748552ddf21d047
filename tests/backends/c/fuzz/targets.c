/* The fuzz targets: every parser of the runtime, one for each value of PE_FUZZ.
 *
 *     1  weights: a safetensors file for pe_load_weights
 *     2  data: a file of rows, safetensors or .npz, for pe_data_open, pe_data_read and pe_data_mend
 *     3  options: the runner's arguments, each terminated by a NUL
 *     4  arrays: a .npy file of labels, in a list with valid ones of x
 *     5  jpeg: a picture for pe_picture_read
 *     6  png: the same for PNG, with corrected checksums
 *
 * LLVMFuzzerTestOneInput is libFuzzer's interface; driver.c calls it without clang.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pe_crc.h"
#include "pe_data_bad.h"
#include "pe_options.h"
#include "pe_picture.h"
#include "pe_worker.h"

#define CHECK(fact)                                                                                \
    do {                                                                                           \
        if (!(fact)) {                                                                             \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #fact);                    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void run_nothing(pe_worker *w, unsigned char *params, const unsigned char *frozen,
                        unsigned char *arena) {
    (void)w, (void)params, (void)frozen, (void)arena;
}

static const pe_tensor params[] = {
    {"a.weight", PE_F32, 2, {2, 3}, 0, PE_WRITTEN | PE_FINITE, {0}},
    {"count", PE_I64, 0, {0}, 0, 0, {0}},
    {"mask", PE_BOOL, 1, {4}, 12, 0, {0}},
    {"names \"quoted\"\n", PE_I32, 1, {1}, 8, 0, {0}},
};
static const pe_tensor inputs[] = {
    {"x", PE_F32, 1, {2}, 0, 0, {0}},
    {"labels", PE_I64, 2, {2, 2}, 64, 0, {0}},
    {"lr", PE_F32, 0, {0}, 128, PE_RATE, {0}},
};
static const pe_tensor outputs[] = {{"loss", PE_F32, 0, {0}, 192, 0, {0}}};
static const pe_index_range ranges[] = {{1, 0, 4, -100, 1, 2, 2, 1, 1}};
static const pe_entry entries[] = {{"train", inputs, outputs, ranges, 3, 1, 1, run_nothing}};

const pe_program program = {
    .abi = PE_ABI,
    .name = "fuzzed",
    .specification = "",
    .params = params,
    .entries = entries,
    .param_count = 4,
    .entry_count = 1,
    .max_threads = 1,
    .params_bytes = 64,
    .frozen_bytes = 16,
    .arena_bytes = 256,
};

static _Alignas(PE_ALIGN) pe_session session;

/* Messages reach terminals: they are terminated, without control characters. */
static void check_message(const char *message) {
    CHECK(memchr(message, 0, PE_MESSAGE_BYTES));
    for (; *message; message++) {
        CHECK((unsigned char)*message >= ' ' && *message != 127);
    }
}

#if PE_FUZZ != 3

static _Alignas(PE_ALIGN) unsigned char params_memory[64], arena_memory[256];

/* The path of an in-memory file with these bytes. */
static const char *file_of(const uint8_t *data, size_t size) {
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fuzzed", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        CHECK(pe_init(&session, &program, params_memory, arena_memory, 1) == PE_OK);
    }
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

#endif

#if PE_FUZZ == 1

static void fuzz(const uint8_t *data, size_t size) {
    unsigned char before[sizeof params_memory];
    memcpy(before, params_memory, sizeof before);
    const pe_progress old = session.progress;
    const pe_status status = pe_load_weights(&session, file_of(data, size));
    const pe_progress *now = &session.progress;
    if (status != PE_OK) {
        check_message(session.message);
        CHECK(memcmp(before, params_memory, sizeof before) == 0);
        CHECK(memcmp(&old, now, sizeof old) == 0);
    }
    CHECK(now->steps >= 0 && now->steps <= INT32_MAX && now->updates >= 0 &&
          now->updates <= INT32_MAX && now->collected >= 0 && now->collected <= INT32_MAX);
}

#elif PE_FUZZ == 2 || PE_FUZZ == 4

static void hear(int64_t row, const char *why) {
    CHECK(row >= 0);
    check_message(why);
}

/* Opened files can be read in any order, and repaired rows are valid. */
static pe_status read_batches(pe_data *data) {
    pe_bad_rows bad = {.limit = 2, .notify = hear};
    pe_status status = PE_OK;
    CHECK(data->rows > 0 && data->batch == 2);
    for (int64_t i = 0; i < 3 && i < pe_data_batches(data); i++) {
        data->shuffled = i % 2;
        CHECK(pe_data_read(data, &session, 5, i, session.message) == PE_OK);
        status = pe_data_mend(data, &session, 5, i, &bad);
        for (int64_t row = 0; status == PE_OK && row < 2; row++) {
            int64_t label;
            float x;
            memcpy(&label, arena_memory + 64 + 8 * (1 + 2 * row), sizeof label);
            memcpy(&x, arena_memory + 4 * row, sizeof x);
            CHECK(((label >= 0 && label <= 4) || label == -100) && isfinite(x));
        }
    }
    CHECK(bad.count <= bad.limit);
    return status;
}

static void fuzz(const uint8_t *data, size_t size) {
    pe_data rows;
    char list[128];
    const char *path = file_of(data, size);
#if PE_FUZZ == 4
    static int other = -1;
    if (other < 0) { /* three rows of zeros, as NumPy writes them */
        char text[10 + 118 + 3 * sizeof(float)] = "\x93NUMPY\1\0v";
        snprintf(text + 10, 118 + 1, "%-117s\n",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
        other = memfd_create("x", 0);
        CHECK(pwrite(other, text, sizeof text, 0) == (ssize_t)sizeof text);
    }
    snprintf(list, sizeof list, "x=/proc/self/fd/%d,labels=%s", other, path);
    path = list;
#else
    (void)list;
#endif
    pe_status status = pe_data_open(&rows, path, &program, "train", -1, NULL, session.message);
    if (status == PE_OK) {
        status = read_batches(&rows);
    }
    if (status != PE_OK) {
        check_message(session.message);
    }
    pe_data_close(&rows);
}

#elif PE_FUZZ == 5 || PE_FUZZ == 6

/* Corrects every chunk's checksum, so that damage reaches the decoder. */
static void mend_checksums(uint8_t *data, size_t size) {
    for (size_t at = 8; PE_FUZZ == 6 && at < size && size - at >= 12;) {
        const size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                              (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > size - at - 12) {
            return;
        }
        const uint32_t crc = pe_crc32(PE_CRC_EMPTY, data + at + 4, length + 4);
        for (size_t i = 0; i < 4; i++) {
            data[at + 8 + length + i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        at += 12 + length;
    }
}

static void fuzz(const uint8_t *data, size_t size) {
    static const pe_picture_shape shapes[] = {{5, 7, 3, true}, {9, 4, 1, false}};
    static uint8_t copy[1 << 16];
    size = size < sizeof copy ? size : sizeof copy;
    memcpy(copy, data, size);
    mend_checksums(copy, size);
    const pe_picture_shape *shape = &shapes[size % 2];
    unsigned char *samples = malloc((size_t)(shape->height * shape->width * shape->channels));
    CHECK(samples && pe_picture_decodes());
    if (pe_picture_read(file_of(copy, size), shape, 1 << 16, samples, session.message) != PE_OK) {
        check_message(session.message);
    }
    free(samples);
}

#else

static void fuzz(const uint8_t *data, size_t size) {
    static char text[1 << 16];
    char *arguments[64] = {text};
    int count = 1;
    size = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t at = 0; at < size && count < 64; at += strlen(text + at) + 1) {
        arguments[count++] = text + at;
    }
    pe_options o;
    if (pe_parse_options(&o, count, arguments, session.message) != PE_OK) {
        check_message(session.message);
        return;
    }
    if (o.help || o.command == PE_COMMAND_INFO) {
        return;
    }
    CHECK(o.weights && o.threads >= 1);
    CHECK(o.skip_bad >= -1 && o.skip_bad <= PE_MAX_BAD_ROWS);
    CHECK(o.first_step != 0 && o.total != 0 && o.seed <= UINT32_MAX && o.keep != 0);
    CHECK(o.command != PE_COMMAND_TRAIN || (o.steps >= 0 && o.data));
    CHECK(o.command != PE_COMMAND_TRAIN || o.resume || (o.rate >= 0 && isfinite((float)o.rate)));
}

#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz(data, size);
    return 0;
}
