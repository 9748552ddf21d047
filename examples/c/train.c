/* Trains, saves, resumes and predicts with the C library of an artifact, in memory of the program.
 *
 *     cc -std=c99 train.c -o train $(pkg-config --cflags --libs pockengine-digits)
 *     ./train weights.safetensors checkpoint
 *
 * The program "digits" has inputs x [8, 64] and target [8], and outputs loss and logits [8, 2].
 */
#include <stdio.h>
#include <string.h>

#include "pe_program_digits.h"
#include "pe_train.h"

enum { BATCH = 8, SIZE = 64, CLASSES = 2, STEPS = 40 };

/* No allocation: the sizes are constants of the program. */
static pe_session first, second;
static pe_schedule first_schedule, second_schedule;
static unsigned char first_params[PE_DIGITS_PARAMS_BYTES] __attribute__((aligned(PE_ALIGN)));
static unsigned char first_arena[PE_DIGITS_ARENA_BYTES] __attribute__((aligned(PE_ALIGN)));
static unsigned char second_params[PE_DIGITS_PARAMS_BYTES] __attribute__((aligned(PE_ALIGN)));
static unsigned char second_arena[PE_DIGITS_ARENA_BYTES] __attribute__((aligned(PE_ALIGN)));

/* Two classes: rising and falling ramps, slightly shifted. */
static void draw_batch(int64_t step, float *x, int64_t *target) {
    for (int i = 0; i < BATCH; i++) {
        target[i] = (step + i) % CLASSES;
        for (int j = 0; j < SIZE; j++) {
            const float ramp = (float)(target[i] ? j : SIZE - 1 - j) / SIZE;
            x[i * SIZE + j] = ramp + 0.01f * (float)((step * 7 + i * 3 + j) % 11);
        }
    }
}

static pe_status read_batch(void *context, pe_session *session, int64_t step) {
    float x[BATCH * SIZE];
    int64_t target[BATCH];
    const pe_entry *train = pe_find_entry(session->program, "train");
    (void)context;
    draw_batch(step, x, target);
    memcpy(pe_tensor_data(session, &train->inputs[PE_DIGITS_TRAIN_INPUT_X]), x, sizeof x);
    memcpy(pe_tensor_data(session, &train->inputs[PE_DIGITS_TRAIN_INPUT_TARGET]), target,
           sizeof target);
    return PE_OK;
}

static bool report(void *context, const pe_event *event) {
    float *last = context;
    if (event->kind == PE_STEPPED) {
        *last = event->loss;
    }
    return true; /* false would end the training, with a checkpoint */
}

static pe_status train(pe_session *session, int64_t until, const char *checkpoint, float *loss) {
    pe_training training;
    memset(&training, 0, sizeof training);
    training.read = read_batch;
    training.notify = report;
    training.context = loss;
    training.until = until;
    training.place.path = checkpoint;
    training.place.keep = 1;
    session->schedule->kind = PE_COSINE;
    session->schedule->rate = 0.1;
    session->schedule->total = STEPS;
    return pe_train(session, &training);
}

static pe_status classify(pe_session *session, float *logits) {
    float x[BATCH * SIZE];
    int64_t target[BATCH];
    const void *inputs[] = {x};
    void *outputs[] = {logits};
    draw_batch(STEPS + 1, x, target);
    return pe_predict(session, inputs, outputs);
}

static int fail(const pe_session *session) {
    fprintf(stderr, "error: %s\n", session->message);
    return 1;
}

int main(int count, char **arguments) {
    float loss = 0, one[BATCH * CLASSES], other[BATCH * CLASSES];
    if (count != 3) {
        fprintf(stderr, "usage: %s WEIGHTS CHECKPOINT\n", arguments[0]);
        return 2;
    }
    if (pe_init(&first, &pe_program_digits, first_params, first_arena, 1) != PE_OK) {
        return fail(&first);
    }
    first.schedule = &first_schedule;
    if (pe_load_weights(&first, arguments[1]) != PE_OK ||
        train(&first, STEPS / 2, arguments[2], &loss) != PE_OK) {
        return fail(&first);
    }
    printf("step %d: loss %.4f\n", STEPS / 2, (double)loss);
    if (pe_init(&second, &pe_program_digits, second_params, second_arena, 1) != PE_OK) {
        return fail(&second);
    }
    second.schedule = &second_schedule;
    if (pe_load_weights(&second, arguments[1]) != PE_OK ||
        pe_load_weights(&second, arguments[2]) != PE_OK ||
        train(&second, STEPS, arguments[2], &loss) != PE_OK || classify(&second, other) != PE_OK) {
        return fail(&second);
    }
    printf("step %d: loss %.4f\n", STEPS, (double)loss);
    if (train(&first, STEPS, NULL, &loss) != PE_OK || classify(&first, one) != PE_OK) {
        return fail(&first);
    }
    pe_close(&first);
    pe_close(&second);
    const int same = memcmp(one, other, sizeof one) == 0;
    printf("%s\n", same ? "resumed equals uninterrupted" : "resumed differs");
    return same ? 0 : 1;
}
