/* A handwritten program on the real runtime: y = w x, then w -= lr x, on two threads, with a
 * checkpoint written and read back. It tests a device's toolchain with the runtime.
 * Prints "ok", or the difference.
 */
#include <stdio.h>
#include <string.h>

#include "backends/native/runtime/core/pe.h"
#include "backends/native/runtime/core/pe_worker.h"

enum { COUNT = 1000, X_OFFSET = 0, Y_OFFSET = 4096, LR_OFFSET = 8192, ARENA_BYTES = 8256 };

static void train(pe_worker *w, unsigned char *params, const unsigned char *frozen,
                  unsigned char *arena) {
    (void)frozen;
    float *weight = (float *)(void *)params;
    const float *x = (const float *)(void *)(arena + X_OFFSET);
    float *y = (float *)(void *)(arena + Y_OFFSET);
    const float rate = *(const float *)(void *)(arena + LR_OFFSET);
    const pe_range range = pe_split(w, COUNT, 16);
    for (ptrdiff_t i = range.begin; i < range.end; i++) {
        y[i] = weight[i] * x[i];
    }
    pe_barrier(w);
    for (ptrdiff_t i = range.begin; i < range.end; i++) {
        weight[i] -= rate * x[i];
    }
    pe_barrier(w);
}

static const pe_tensor params[] = {{"w", PE_F32, 1, {COUNT}, 0, PE_WRITTEN, {0}}};
static const pe_tensor inputs[] = {{"x", PE_F32, 1, {COUNT}, X_OFFSET, 0, {0}},
                                   {"lr", PE_F32, 0, {0}, LR_OFFSET, PE_RATE, {0}}};
static const pe_tensor outputs[] = {{"y", PE_F32, 1, {COUNT}, Y_OFFSET, 0, {0}}};
static const pe_entry entries[] = {{.name = "train",
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .input_count = 2,
                                    .output_count = 1,
                                    .run = train}};
static const pe_program selftest = {.abi = PE_ABI,
                                    .name = "selftest",
                                    .params = params,
                                    .entries = entries,
                                    .param_count = 1,
                                    .entry_count = 1,
                                    .max_threads = 2,
                                    .params_bytes = 4032,
                                    .arena_bytes = ARENA_BYTES};

static _Alignas(PE_ALIGN) unsigned char param_memory[4032];
static _Alignas(PE_ALIGN) unsigned char arena_memory[ARENA_BYTES];
static float x[COUNT], y[COUNT], weight[COUNT], restored[COUNT];
static pe_session session;

static int check(pe_status status) {
    if (status != PE_OK) {
        printf("status %d: %s\n", (int)status, session.message);
    }
    return status == PE_OK;
}

/* One step, with the weights saved before it and restored after it. */
static int step(const char *checkpoint) {
    const void *feeds[] = {x, NULL};
    void *results[] = {y};
    const pe_controls controls = {.lr = 0.5f, .step = 1};
    return check(pe_set_param(&session, "w", weight, sizeof weight)) &&
           check(pe_save_checkpoint(&session, checkpoint, PE_WHOLE)) &&
           check(pe_train_step(&session, feeds, &controls, results)) &&
           check(pe_get_param(&session, "w", restored, sizeof restored)) &&
           check(pe_load_weights(&session, checkpoint));
}

int main(int argc, char **argv) {
    if (argc != 2) {
        printf("usage: %s CHECKPOINT\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
        weight[i] = 2.0f;
    }
    if (!check(pe_init(&session, &selftest, param_memory, arena_memory, 2)) || !step(argv[1])) {
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        if (y[i] != 2.0f * (float)i || restored[i] != 2.0f - 0.5f * (float)i) {
            printf("element %d: y %g, w %g\n", i, (double)y[i], (double)restored[i]);
            return 1;
        }
    }
    if (!check(pe_get_param(&session, "w", restored, sizeof restored))) {
        return 1;
    }
    pe_close(&session);
    printf(memcmp(weight, restored, sizeof weight) == 0 ? "ok\n" : "checkpoint differs\n");
    return memcmp(weight, restored, sizeof weight) != 0;
}
