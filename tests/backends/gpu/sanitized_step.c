/* Runs a training step of PROGRAM on zeros, in its planned memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pe.h"

extern const pe_program PROGRAM;

static pe_session session;

static void *zeros(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, PE_ALIGN, bytes + 1) != 0) {
        exit(3);
    }
    return memset(p, 0, bytes + 1);
}

int main(void) {
    void *params = zeros(PROGRAM.params_bytes), *arena = zeros(PROGRAM.arena_bytes);
    const pe_controls controls = {.lr = 0.1f, .step = 1, .seed = 1};
    pe_status status = pe_init(&session, &PROGRAM, params, arena, 1);
    const pe_entry *train = pe_find_entry(&PROGRAM, "train");
    for (int n = 0; status == PE_OK && n < train->input_count; n++) {
        memset(pe_tensor_data(&session, &train->inputs[n]), 0, pe_tensor_bytes(&train->inputs[n]));
    }
    if (status == PE_OK) {
        status = pe_train_step(&session, NULL, &controls, NULL);
    }
    fprintf(stderr, "%s", session.message);
    return status != PE_OK;
}
