/* The runner: trains or predicts from files and reports on standard output, one JSON object a line.
 *
 *     train --weights W --data D --steps N --lr X [--threads T] [--save OUT] [--repeat K]
 *           [--first-step S] [--seed S]
 *           [--schedule constant|linear|cosine] [--warmup W] [--total T]
 *         {"step": 1, "loss": 2.30258509, "lr": 0.1, "ns": 1234567}  for each of N steps
 *         {"saved": true}                                        once OUT is safely on the disk
 *         {"repeat": 1, "ns": 1234567}                           for each of K further, timed steps
 *         {"kernel": 0, "samples": 9, "least_ns": 123, "median_ns": 124, "most_ns": 130}  if the
 *             program is profiled, once for each kernel
 *         {"threads", "params_bytes", "arena_bytes", "peak_rss_bytes", "init_ns"}
 *     A step reads one batch. With the entry "update", steps only collect gradients, and as many of
 *     them are applied as the program was compiled for. When W is a checkpoint, it goes on: step,
 *     batch, schedule and random numbers, as if it had never stopped. --first-step says otherwise:
 *     step S comes next, with batch S of the data (from the first again after the last). --seed
 *     replaces the checkpoint's seed; random numbers depend on it and the step's number alone. X is
 *     the highest rate of the schedule, which ends with update T: the last of this call unless
 *     given. A loss that is not finite ends the training, and nothing is saved.
 *     predict --weights W --data D --output O [--threads T]
 *         {"batch": 1, "ns": 1234567}                            for each batch of D
 *         ... and the same last line
 *
 * Exit status: 0 success, 1 a failure that standard error explains, 2 wrong usage, 3 the training
 * diverged, 4 all is done and saved, but standard output was closed or full. Between two marks lies
 * exactly one step: on aarch64 `hint #100` and `hint #101`, no-ops that an emulator's plugin counts
 * instructions between.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pe_data.h"
#include "pe_host.h"
#include "pe_options.h"

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
    "          [--repeat K] [--first-step S] [--seed S]\n"
    "          [--schedule constant|linear|cosine] [--warmup W] [--total T]\n"
    "       %s predict --weights W --data D --output O [--threads T]\n";

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

enum { SUCCESS, FAILURE, USAGE, DIVERGED, UNREPORTED };

/* What the training of a call depends on; `next` is the step that comes. */
typedef struct training {
    const pe_options *options;
    const pe_entry *update; /* or NULL */
    const pe_tensor *loss;  /* or NULL */
    pe_schedule schedule;
    pe_progress *progress;
    int64_t micro_batches;
} training;

static int fail(pe_status status, const char *message) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", message);
    return status == PE_ERROR_ARGUMENT ? USAGE : status == PE_ERROR_DIVERGED ? DIVERGED : FAILURE;
}

static void print_summary(const pe_session *session, long long init_ns) {
    printf(
        "{\"threads\": %d, \"params_bytes\": %zu, \"arena_bytes\": %zu, \"peak_rss_bytes\": %lld, "
        "\"init_ns\": %lld}\n",
        session->team.count, session->program->params_bytes, session->program->arena_bytes,
        pe_peak_rss_bytes(), init_ns);
}

/* The controls of the step that comes; the entry "update" has a count of its own. */
static pe_controls next_controls(const training *t, const pe_entry *entry) {
    const pe_progress *p = t->progress;
    const int64_t step = (entry == t->update ? p->updates : p->steps) + 1;
    const uint32_t seed = p->seed * 0x9E3779B9U + (uint32_t)(p->steps + 1);
    const double factor = pe_schedule_factor(&t->schedule, (long)(p->updates + 1));
    const float rate = (float)(t->options->rate * factor);
    return (pe_controls){.lr = rate, .step = (int32_t)step, .seed = (int32_t)seed};
}

/* The number in a scalar output, NAN where there is none. */
static float number_in(const pe_session *session, const pe_tensor *scalar) {
    float value = NAN;
    if (scalar) {
        memcpy(&value, pe_tensor_data(session, scalar), sizeof value);
    }
    return value;
}

/* Counts a step that has been made. */
static void count_step(const training *t, bool updated) {
    t->progress->steps++;
    t->progress->collected = t->update && !updated ? t->progress->collected + 1 : 0;
    t->progress->updates += updated || !t->update;
}

/* Runs the next step on a batch that is in place; *ns is its time. `*number` becomes the loss, read
 * before the update uses the arena for its own values. */
static pe_status timed_step(pe_session *session, const training *t, float *number, long long *ns) {
    const bool apply = t->update && t->progress->collected + 1 >= t->micro_batches;
    const pe_controls controls = next_controls(t, NULL);
    const pe_controls of_update = next_controls(t, t->update);
    const long long begin = now_ns();
    PE_MARK_BEGIN();
    pe_status status = pe_train_step(session, NULL, &controls, NULL);
    *number = number_in(session, t->loss);
    if (apply && status == PE_OK) {
        pe_set_controls(session, t->update, &of_update);
        status = pe_run(session, t->update, NULL, NULL);
    }
    PE_MARK_END();
    *ns = now_ns() - begin;
    if (status == PE_OK) {
        count_step(t, apply);
    }
    return status;
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

static void print_step(float value, int64_t step, float rate, long long ns) {
    char loss[32] = "null";
    if (isfinite(value)) {
        snprintf(loss, sizeof loss, "%.9g", (double)value);
    }
    printf("{\"step\": %lld, \"loss\": %s, \"lr\": %.9g, \"ns\": %lld}\n", (long long)step, loss,
           (double)rate, ns);
    fflush(stdout);
}

static pe_status save(pe_session *session, const char *path) {
    const pe_status status = pe_save_checkpoint(session, path);
    if (status == PE_OK) {
        puts("{\"saved\": true}");
    }
    return status;
}

/* One reported step; a loss that is not finite is an error. */
static pe_status reported_step(pe_session *session, const training *t) {
    const int64_t step = t->progress->steps + 1;
    const float rate = next_controls(t, NULL).lr;
    float value;
    long long ns;
    const pe_status status = timed_step(session, t, &value, &ns);
    if (status != PE_OK) {
        return status;
    }
    print_step(value, step, rate, ns);
    if (t->loss && !isfinite(value)) {
        return pe_fail(
            session->message, PE_ERROR_DIVERGED,
            "the loss of step %lld is not finite (%g), and nothing is saved; take a lower "
            "rate, or look at this batch",
            (long long)step, (double)value);
    }
    return PE_OK;
}

/* N reported steps, the checkpoint, then K steps that are only timed. */
static pe_status train_on(pe_session *session, const pe_data *data, const training *t) {
    const pe_options *o = t->options;
    for (int64_t step = 0;; step++) {
        pe_status status = step == o->steps && o->save ? save(session, o->save) : PE_OK;
        if (status != PE_OK || step == o->steps + o->repeat) {
            return status;
        }
        status = pe_data_read(data, session, t->progress->steps, session->message);
        if (status == PE_OK && step < o->steps) {
            status = reported_step(session, t);
        } else if (status == PE_OK) {
            float value;
            long long ns;
            status = timed_step(session, t, &value, &ns);
            printf("{\"repeat\": %lld, \"ns\": %lld}\n", (long long)(step - o->steps + 1), ns);
        }
        if (status != PE_OK) {
            return status;
        }
    }
}

/* Where the training begins: by the checkpoint, or by --first-step. */
static void place_training(const training *t) {
    const pe_options *o = t->options;
    if (o->first_step > 0) {
        const int64_t before = o->first_step - 1;
        t->progress->steps = before;
        t->progress->updates = before / t->micro_batches;
        t->progress->collected = before % t->micro_batches;
    }
    if (o->seed >= 0) {
        t->progress->seed = (uint32_t)o->seed;
    }
}

/* Settles what depends on the program and its checkpoint, and tries what would fail at the end. */
static pe_status begin_training(pe_session *session, const pe_entry *entry, const pe_options *o,
                                training *t) {
    *t = (training){.options = o, .loss = find_loss(entry), .progress = &session->progress};
    t->update = pe_find_entry(session->program, "update");
    t->micro_batches = t->update ? session->program->micro_batches : 1;
    place_training(t);
    const pe_progress *p = t->progress;
    const int64_t updates = (p->collected + o->steps + t->micro_batches - 1) / t->micro_batches;
    const int64_t total = o->total > 0 ? o->total : p->updates + updates;
    t->schedule = (pe_schedule){o->schedule, (long)o->warmup, (long)total};
    if (p->steps + o->steps + o->repeat > INT32_MAX) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "steps beyond number %d", INT32_MAX);
    }
    if (o->schedule != PE_CONSTANT && o->steps > 0 && o->warmup >= total) {
        return pe_fail(
            session->message, PE_ERROR_ARGUMENT,
            "a warm-up of %lld leaves nothing of a schedule of %lld updates; say --total",
            (long long)o->warmup, (long long)total);
    }
    return o->save ? pe_st_try_place(o->save, session->message) : PE_OK;
}

/* Computes batch after batch; outputs are collected in a file of the same form as the data's. */
static pe_status predict_on(pe_session *session, const pe_data *data, const pe_options *o) {
    const pe_entry *entry = data->entry;
    const pe_st_content content = {
        .tensors = entry->outputs, .tensor_count = entry->output_count, .lead = data->batches};
    pe_st_writer writer;
    pe_status status = pe_st_create(&writer, o->output, &content, session->message);
    for (int64_t batch = 0; status == PE_OK && batch < data->batches; batch++) {
        status = pe_data_read(data, session, batch, session->message);
        if (status != PE_OK) {
            pe_st_abandon(&writer);
            return status;
        }
        const long long begin = now_ns();
        PE_MARK_BEGIN();
        status = pe_run(session, entry, NULL, NULL);
        PE_MARK_END();
        if (status != PE_OK) {
            pe_st_abandon(&writer);
            return status;
        }
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

static pe_status run_command(pe_session *session, const pe_entry *entry, const pe_data *data,
                             const pe_options *o) {
    if (!o->train) {
        return predict_on(session, data, o);
    }
    training t;
    const pe_status status = begin_training(session, entry, o, &t);
    return status == PE_OK ? train_on(session, data, &t) : status;
}

/* Opens weights and data for an entry and runs the command on them. */
static int run(const pe_options *o) {
    static char message[PE_MESSAGE_BYTES];
    const long long begin = now_ns();
    pe_session *session = pe_open((int)o->threads, message);
    if (!session) {
        return fail(PE_ERROR_SYSTEM, message);
    }
    const char *name = o->train ? "train" : "predict";
    const pe_entry *entry = pe_find_entry(session->program, name);
    pe_data data = {.file = -1};
    pe_status status =
        entry ? pe_load_weights(session, o->weights)
              : pe_fail(session->message, PE_ERROR_NAME, "program %s has no entry \"%s\"",
                        session->program->name, name);
    if (status == PE_OK) {
        status = pe_data_open(&data, o->data, entry, session->message);
    }
    const long long init_ns = now_ns() - begin;
    if (status == PE_OK) {
        status = run_command(session, entry, &data, o);
    }
    if (status == PE_OK) {
        if (session->program->report) {
            session->program->report();
        }
        print_summary(session, init_ns);
    }
    const int result = status == PE_OK ? SUCCESS : fail(status, session->message);
    pe_data_close(&data);
    pe_shut(session);
    return result;
}

int main(int count, char **arguments) {
    static char line[4096]; /* stdio allocates a buffer of its own otherwise */
    static char message[PE_MESSAGE_BYTES];
    setvbuf(stdout, line, _IOLBF, sizeof line);
    signal(SIGPIPE, SIG_IGN); /* whoever reads the report may go: the training is worth more */
    pe_options options;
    if (pe_parse_options(&options, count, arguments, message) != PE_OK) {
        fprintf(stderr, "error: %s\n", message);
        fprintf(stderr, usage, arguments[0], arguments[0]);
        return USAGE;
    }
    const int result = run(&options);
    if (result == SUCCESS && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "error: cannot write to standard output; all else is done\n");
        return UNREPORTED;
    }
    return result;
}
