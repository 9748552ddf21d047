/* The runner: trains or predicts from files and reports on standard output, one JSON object a line.
 *
 *     train --weights W --data D --steps N --lr X [--threads T] [--save OUT] [--repeat K]
 *           [--first-step S] [--seed S] [--micro-batches M]
 *           [--schedule constant|linear|cosine] [--warmup W] [--total T]
 *         {"step": 1, "loss": 2.30258509, "lr": 0.1, "ns": 1234567}  for each of N steps
 *         {"saved": true}                                        once OUT is safely on the disk
 *         {"repeat": 1, "ns": 1234567}                           for each of K further, timed steps
 *         {"kernel": 0, "samples": 9, "least_ns": 123, "median_ns": 124, "most_ns": 130}  if the
 *             program is profiled, once for each kernel
 *         {"threads", "params_bytes", "arena_bytes", "peak_rss_bytes", "init_ns"}
 *     With the entry "update", training only collects gradients, and every M steps apply them.
 *     Random numbers depend on the seed and the step's number alone. X is the highest rate of
 *     the schedule, which ends with step T: the last of this call unless told.
 *     predict --weights W --data D --output O [--threads T]
 *         {"batch": 1, "ns": 1234567}                            for each batch of D
 *         ... and the same last line
 *
 * Exit status: 0 success, 1 a failure that standard error explains, 2 wrong usage. Between two
 * marks lies exactly one step: on aarch64 `hint #100` and `hint #101`, no-ops that an emulator's
 * plugin counts instructions between.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pe_data.h"
#include "pe_host.h"
#include "pe_schedule.h"

#if defined(__aarch64__)
#define PE_MARK_BEGIN() __asm__ volatile("hint #100" ::: "memory")
#define PE_MARK_END() __asm__ volatile("hint #101" ::: "memory")
#elif defined(__hexagon__) /* packets that no compiler makes; they change nothing */
#define PE_MARK_BEGIN() __asm__ volatile("{ r28 = and(r28, r28) }" ::: "memory")
#define PE_MARK_END() __asm__ volatile("{ r28 = or(r28, r28) }" ::: "memory")
#else
#define PE_MARK_BEGIN() __asm__ volatile("" ::: "memory")
#define PE_MARK_END() __asm__ volatile("" ::: "memory")
#endif

static const char usage[] =
    "usage: %s train --weights W --data D --steps N --lr X [--threads T] [--save OUT]\n"
    "          [--repeat K] [--first-step S] [--seed S] [--micro-batches M]\n"
    "          [--schedule constant|linear|cosine] [--warmup W] [--total T]\n"
    "       %s predict --weights W --data D --output O [--threads T]\n";

typedef struct options {
    const char *weights, *data, *save, *output;
    long steps, threads, repeat, first, seed, micro_batches;
    double rate;
    pe_schedule schedule;
} options;

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static bool parse_count(const char *text, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= 0 && *value <= 1000000000;
}

static bool parse_rate(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

/* Takes one option and its value; false when either is unknown or malformed. */
static bool parse_schedule(const char *text, pe_schedule_kind *kind) {
    static const char *const names[] = {"constant", "linear", "cosine"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *kind = (pe_schedule_kind)i;
            return true;
        }
    }
    return false;
}

static bool parse_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--steps") == 0) {
        return parse_count(value, &o->steps);
    }
    if (strcmp(name, "--threads") == 0) {
        return parse_count(value, &o->threads) && o->threads > 0;
    }
    if (strcmp(name, "--micro-batches") == 0) {
        return parse_count(value, &o->micro_batches) && o->micro_batches > 0;
    }
    if (strcmp(name, "--schedule") == 0) {
        return parse_schedule(value, &o->schedule.kind);
    }
    long *count = strcmp(name, "--repeat") == 0       ? &o->repeat
                  : strcmp(name, "--warmup") == 0     ? &o->schedule.warmup
                  : strcmp(name, "--total") == 0      ? &o->schedule.total
                  : strcmp(name, "--first-step") == 0 ? &o->first
                  : strcmp(name, "--seed") == 0       ? &o->seed
                                                      : NULL;
    if (count) {
        return parse_count(value, count);
    }
    if (strcmp(name, "--lr") == 0) {
        return parse_rate(value, &o->rate);
    }
    const char **text = strcmp(name, "--weights") == 0  ? &o->weights
                        : strcmp(name, "--data") == 0   ? &o->data
                        : strcmp(name, "--save") == 0   ? &o->save
                        : strcmp(name, "--output") == 0 ? &o->output
                                                        : NULL;
    if (text) {
        *text = value;
    }
    return text != NULL;
}

static bool parse_options(options *o, int count, char **arguments) {
    for (int i = 0; i < count; i += 2) {
        if (i + 1 == count || !parse_option(o, arguments[i], arguments[i + 1])) {
            fprintf(stderr, "error: option %s is unknown or its value is not valid\n",
                    arguments[i]);
            return false;
        }
    }
    return true;
}

static int fail(const char *message) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", message);
    return 1;
}

static void print_summary(const pe_session *session, long long init_ns) {
    printf(
        "{\"threads\": %d, \"params_bytes\": %zu, \"arena_bytes\": %zu, \"peak_rss_bytes\": %lld, "
        "\"init_ns\": %lld}\n",
        session->team.count, session->program->params_bytes, session->program->arena_bytes,
        pe_peak_rss_bytes(), init_ns);
}

/* What a step of this call is told: the first has index 0. */
static pe_controls controls_of(const options *o, long index) {
    const int32_t step = (int32_t)(o->first + index / o->micro_batches);
    const uint32_t seed = (uint32_t)o->seed * 0x9E3779B9U + (uint32_t)(o->first + index);
    const float rate = (float)(o->rate * pe_schedule_factor(&o->schedule, step));
    return (pe_controls){.lr = rate, .step = step, .seed = (int32_t)seed};
}

/* The number in a scalar output, NAN where there is none. */
static float number_in(const pe_session *session, const pe_tensor *scalar) {
    float value = NAN;
    if (scalar) {
        memcpy(&value, pe_tensor_data(session, scalar), sizeof value);
    }
    return value;
}

/* Runs step `index` of this call on a batch that is in place; returns its time.
 * `*number` becomes the loss, read before the update uses the arena for its own values. */
static long long timed_step(pe_session *session, const options *o, long index,
                            const pe_tensor *loss, float *number) {
    const pe_controls controls = controls_of(o, index);
    const pe_entry *update = pe_find_entry(session->program, "update");
    const bool apply = update && (index + 1) % o->micro_batches == 0;
    const long long begin = now_ns();
    PE_MARK_BEGIN();
    (void)pe_train_step(session, NULL, &controls, NULL);
    *number = number_in(session, loss);
    if (apply) {
        pe_set_controls(session, update, &controls);
        (void)pe_run(session, update, NULL, NULL);
    }
    PE_MARK_END();
    return now_ns() - begin;
}

static const pe_tensor *find_loss(const pe_entry *entry) {
    for (int i = 0; i < entry->output_count; i++) {
        const pe_tensor *output = &entry->outputs[i];
        if (strcmp(output->name, "loss") == 0 && output->dtype == PE_F32 && output->rank == 0) {
            return output;
        }
    }
    return NULL;
}

static void print_step(float value, long step, float rate, long long ns) {
    if (isfinite(value)) {
        printf("{\"step\": %ld, \"loss\": %.9g, \"lr\": %.9g, \"ns\": %lld}\n", step, (double)value,
               (double)rate, ns);
    } else {
        printf("{\"step\": %ld, \"loss\": null, \"lr\": %.9g, \"ns\": %lld}\n", step, (double)rate,
               ns);
    }
    fflush(stdout);
}

static pe_status save(pe_session *session, const char *path) {
    const pe_status status = pe_save_checkpoint(session, path);
    if (status == PE_OK) {
        puts("{\"saved\": true}");
    }
    return status;
}

/* N reported steps, the checkpoint, then K steps that are only timed. */
static pe_status train_on(pe_session *session, const pe_data *data, const options *o) {
    const pe_tensor *loss = find_loss(data->entry);
    for (long step = 0;; step++) {
        pe_status status = step == o->steps && o->save ? save(session, o->save) : PE_OK;
        if (status != PE_OK || step == o->steps + o->repeat) {
            return status;
        }
        status = pe_data_read(data, session, step, session->message);
        if (status != PE_OK) {
            return status;
        }
        float value;
        const long long ns = timed_step(session, o, step, loss, &value);
        if (step < o->steps) {
            print_step(value, step + 1, controls_of(o, step).lr, ns);
        } else {
            printf("{\"repeat\": %ld, \"ns\": %lld}\n", step - o->steps + 1, ns);
        }
    }
}

/* Computes batch after batch; outputs are collected in a file of the same form as the data's. */
static pe_status predict_on(pe_session *session, const pe_data *data, const options *o) {
    const pe_entry *entry = data->entry;
    pe_st_writer writer;
    pe_status status = pe_st_create(&writer, o->output, entry->outputs, entry->output_count,
                                    data->batches, session->message);
    for (int64_t batch = 0; status == PE_OK && batch < data->batches; batch++) {
        status = pe_data_read(data, session, batch, session->message);
        if (status != PE_OK) {
            pe_st_abandon(&writer);
            return status;
        }
        const long long begin = now_ns();
        PE_MARK_BEGIN();
        (void)pe_run(session, entry, NULL, NULL);
        PE_MARK_END();
        printf("{\"batch\": %lld, \"ns\": %lld}\n", (long long)batch + 1, now_ns() - begin);
        uint64_t start = 0;
        for (int i = 0; status == PE_OK && i < entry->output_count; i++) {
            const size_t bytes = pe_tensor_bytes(&entry->outputs[i]);
            status = pe_st_write_at(&writer, start + (uint64_t)batch * bytes,
                                    pe_tensor_data(session, &entry->outputs[i]), bytes,
                                    session->message);
            start += (uint64_t)data->batches * bytes;
        }
    }
    return status == PE_OK ? pe_st_commit(&writer, session->message) : status;
}

/* Opens weights and data for an entry and runs the command on them. */
static int run(const char *entry_name, const options *o) {
    static char message[PE_MESSAGE_BYTES];
    const long long begin = now_ns();
    pe_session *session = pe_open((int)o->threads, message);
    if (!session) {
        return fail(message);
    }
    const pe_entry *entry = pe_find_entry(session->program, entry_name);
    pe_data data = {.file = -1};
    pe_status status =
        entry ? pe_load_weights(session, o->weights)
              : pe_fail(session->message, PE_ERROR_NAME, "program %s has no entry \"%s\"",
                        session->program->name, entry_name);
    if (status == PE_OK) {
        status = pe_data_open(&data, o->data, entry, session->message);
    }
    const long long init_ns = now_ns() - begin;
    if (status == PE_OK) {
        status = o->output ? predict_on(session, &data, o) : train_on(session, &data, o);
    }
    const int result = status == PE_OK ? 0 : fail(session->message);
    if (status == PE_OK && session->program->report) {
        session->program->report();
    }
    if (status == PE_OK) {
        print_summary(session, init_ns);
    }
    pe_data_close(&data);
    pe_shut(session);
    return fflush(stdout) == 0 ? result : fail("cannot write to standard output");
}

int main(int count, char **arguments) {
    static char line[4096]; /* stdio allocates a buffer of its own otherwise */
    setvbuf(stdout, line, _IOLBF, sizeof line);
    options o = {.steps = -1, .threads = 1, .rate = NAN, .first = 1, .micro_batches = 1};
    const char *command = count > 1 ? arguments[1] : "";
    const bool train = strcmp(command, "train") == 0;
    bool sound = (train || strcmp(command, "predict") == 0) &&
                 parse_options(&o, count - 2, arguments + 2) && o.weights && o.data;
    if (o.schedule.total == 0) {
        o.schedule.total = o.first - 1 + (o.steps + o.micro_batches - 1) / o.micro_batches;
    }
    sound = sound && (train ? o.steps >= 0 && isfinite(o.rate) && !o.output : o.output != NULL);
    if (!sound) {
        fprintf(stderr, usage, arguments[0], arguments[0]);
        return 2;
    }
    return run(command, &o);
}
