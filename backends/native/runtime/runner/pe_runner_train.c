/* The command "train". */
#include <math.h>

#include "pe_checkpoint.h"
#include "pe_data_augment.h"
#include "pe_data_bad.h"
#include "pe_data_size.h"
#include "pe_place.h"
#include "pe_report.h"
#include "pe_runner.h"
#include "pe_runner_duty.h"
#include "pe_schedule.h"
#include "pe_system.h"

static volatile sig_atomic_t signaled;

/* Requests the end of the training after the current step, so no write is interrupted. */
static void on_signal(int number) { signaled = number; }

/* Context of the training's callbacks. */
typedef struct context {
    pe_data *data;
    pe_bad_rows *bad;
    pe_augmentation augmentation;
    pe_duty duty;
    pe_status rested; /* an error, in `message`, ends the training after saving */
    char *message;
} context;

static pe_status read_batch(void *argument, pe_session *session, int64_t step) {
    const context *c = argument;
    const int64_t batches = pe_data_batches(c->data);
    if (batches == 0) { /* the entry reads no data */
        return PE_OK;
    }
    const int64_t epoch = (step - 1) / batches, batch = (step - 1) % batches;
    pe_status status = pe_data_read(c->data, session, epoch, batch, session->message);
    if (status == PE_OK) {
        status = pe_data_mend(c->data, session, epoch, batch, c->bad);
    }
    if (status == PE_OK) {
        pe_augment(c->data, session, &c->augmentation, epoch, batch);
    }
    return status;
}

static bool report(void *argument, const pe_event *event) {
    context *c = argument;
    if (event->kind == PE_READY) {
        c->rested = pe_duty_rest(&c->duty, event->step - 1, c->message);
        return c->rested == PE_OK && !signaled;
    }
    pe_print_event(event);
    if (event->kind == PE_UNSOUND) {
        fprintf(stderr, "warning: %s\n", event->message);
    }
    return !signaled;
}

static pe_training training_of(const pe_options *o, context *c) {
    return (pe_training){
        .read = read_batch,
        .notify = report,
        .context = c,
        .place = {.path = o->save,
                  .content = o->whole ? PE_WHOLE : PE_TRAINED,
                  .keep = o->keep > 0 ? (int)o->keep : 2},
        .save_every = o->save_every > 0 ? o->save_every : 0,
        .roll_back = o->roll_back,
    };
}

/* Resumes from a checkpoint, if the command asks for it. */
static pe_status resume(pe_session *session, const pe_options *o, const pe_training *training,
                        bool *found) {
    pe_training from = *training;
    *found = false;
    if (!o->resume) {
        return PE_OK;
    }
    from.place.path = o->resume_from ? o->resume_from : o->save;
    const pe_status status = pe_resume(session, &from, found);
    return status == PE_OK && o->resume_from && !*found
               ? pe_fail(session->message, PE_ERROR_SYSTEM, "%s has no checkpoint", o->resume_from)
               : status;
}

/* Sets the position of the training from the command's options. */
static void place(pe_session *session, const pe_options *o) {
    pe_progress *p = &session->progress;
    const pe_program *program = session->program;
    if (o->first_step > 0) {
        const int64_t before = o->first_step - 1;
        const int64_t group = pe_find_variant(program, "update", 0) ? program->micro_batches : 1;
        p->steps = before;
        p->updates = before / group;
        p->collected = before % group;
    }
    if (o->seed >= 0) {
        p->seed = (uint32_t)o->seed;
    }
}

/* Determines the order of the rows: the command's, or the checkpoint's on resume.
 */
static pe_status settle_order(pe_session *session, pe_data *data, const pe_options *o,
                              bool resumed) {
    pe_schedule *s = session->schedule;
    const bool placed = resumed && s->total > 0;
    if (placed && o->batch < 0 && s->batch > 0 && pe_batch_varies(session->program)) {
        data->batch = s->batch;
    }
    if (data->rows > 0 && pe_data_batches(data) == 0) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s has %lld rows, and a batch of entry %s takes %lld: give more rows, or "
                       "compile for a smaller batch",
                       data->path, (long long)data->rows, data->name, (long long)data->batch);
    }
    if (placed && s->rows != data->rows) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "the training to resume had %lld rows, %s has %lld; start from its "
                       "checkpoint by --checkpoint to train on other data",
                       (long long)s->rows, data->path, (long long)data->rows);
    }
    if (placed && s->batch > 0 && s->batch != data->batch) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "the training to resume had batches of %lld rows, not %lld; start from its "
                       "checkpoint by --checkpoint to train on others",
                       (long long)s->batch, (long long)data->batch);
    }
    if (placed && o->shuffle && !s->shuffled) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "the training to resume has its rows in order; leave out --shuffle, or "
                       "start from its checkpoint by --checkpoint");
    }
    data->shuffled = placed ? s->shuffled : o->shuffle;
    data->seed = session->progress.seed;
    if (data->shuffled && data->whole) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "--shuffle needs inputs that take the same number of rows; those of entry "
                       "%s differ in their first dimensions",
                       data->name);
    }
    return PE_OK;
}

/* Determines the augmentation of pictures: the command's, or the checkpoint's on resume. */
static pe_status settle_augmentation(pe_session *session, const pe_data *data, const pe_options *o,
                                     bool resumed, pe_augmentation *how) {
    const pe_schedule *s = session->schedule;
    *how = (pe_augmentation){o->flip, o->crop > 0 ? o->crop : 0};
    if (resumed && s->total > 0) {
        if ((o->flip && !s->flip) || (o->crop >= 0 && o->crop != s->crop)) {
            return pe_fail(session->message, PE_ERROR_MISMATCH,
                           "the training to resume has its pictures %s, with a crop of %lld; leave "
                           "out --flip and --crop, or start from its checkpoint by --checkpoint",
                           s->flip ? "flipped" : "not flipped", (long long)s->crop);
        }
        *how = (pe_augmentation){s->flip, s->crop};
    }
    return pe_check_augmentation(data, how, session->message);
}

/* Reads the parameters of schedules that have a factor. */
static pe_status settle_numbers(pe_session *session, const pe_options *o) {
    pe_schedule *s = session->schedule;
    s->factor = isfinite(o->factor) ? o->factor : s->factor;
    s->period = o->period > 0 ? o->period : s->period;
    if (o->milestones && !pe_parse_milestones(o->milestones, s->milestones)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "--milestones takes at most %d rising updates, such as 30,60, not %.100s",
                       PE_MOST_MILESTONES, o->milestones);
    }
    const char *fault = pe_schedule_fault(s);
    return fault ? pe_fail(session->message, PE_ERROR_ARGUMENT,
                           "--schedule %s: %s; set --factor, --period or --milestones",
                           pe_schedule_names[s->kind], fault)
                 : PE_OK;
}

/* The last update of the schedule: the command's, or that of its last step. A resumed
 * training whose command names no schedule keeps its own total, unless the training ends later: the
 * rate would stay constant after the old end. */
static int64_t settle_total(const pe_session *session, const pe_options *o, int64_t until,
                            int64_t known) {
    const pe_program *program = session->program;
    const pe_progress *p = &session->progress;
    const int64_t group = pe_find_variant(program, "update", 0) ? program->micro_batches : 1;
    const int64_t left = until > p->steps ? until - p->steps : 0;
    if (o->total > 0) {
        return o->total;
    }
    if (known == 0) {
        const int64_t last = p->updates + (p->collected + left + group - 1) / group;
        return last > 0 ? last : 1;
    }
    const int64_t last = (until + group - 1) / group; /* rollbacks do not move it */
    return left > 0 && (o->schedule >= 0 || last > known) ? last : known;
}

/* Determines the schedule: the command's, or the checkpoint's on resume. */
static pe_status settle_schedule(pe_session *session, const context *c, const pe_options *o,
                                 int64_t until, bool resumed) {
    const bool decays = o->command == PE_COMMAND_FINETUNE; /* as Python's finetune-lm */
    const pe_schedule fresh = {.rate = NAN, .kind = decays ? PE_COSINE : PE_CONSTANT_RATE};
    pe_schedule s = resumed ? *session->schedule : fresh;
    s.kind = o->schedule >= 0 ? (pe_schedule_kind)o->schedule : s.kind;
    s.rate = isfinite(o->rate) || s.total == 0 ? o->rate : s.rate;
    s.warmup = o->warmup >= 0 ? o->warmup : s.warmup;
    s.total = settle_total(session, o, until, s.total);
    s.rows = c->data->rows;
    s.batch = c->data->batch;
    s.shuffled = c->data->shuffled;
    s.flip = c->augmentation.flip;
    s.crop = c->augmentation.crop;
    *session->schedule = s;
    if (!(s.rate >= 0) || !isfinite((float)s.rate)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "train needs --lr");
    }
    const bool trains = until > session->progress.steps;
    if (s.kind != PE_CONSTANT_RATE && trains && s.warmup >= s.total) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "a warm-up of %lld leaves nothing of a schedule of %lld updates; say "
                       "--total",
                       (long long)s.warmup, (long long)s.total);
    }
    return settle_numbers(session, o);
}

/* Steps that are only timed. */
static pe_status repeat(pe_session *session, const pe_training *training, int64_t count) {
    pe_status status = PE_OK;
    for (int64_t i = 1; status == PE_OK && i <= count && !signaled; i++) {
        pe_event event;
        status = training->read(training->context, session, session->progress.steps + 1);
        if (status == PE_OK) {
            status = pe_train_next(session, &event);
        }
        if (status == PE_OK) {
            printf("{\"repeat\": %lld, \"ns\": %lld}\n", (long long)i, (long long)event.ns);
        }
    }
    return status;
}

/* Determines the first and last step. */
static pe_status begin(pe_session *session, context *c, const pe_options *o,
                       pe_training *training) {
    bool found;
    pe_status status = resume(session, o, training, &found);
    if (status != PE_OK) {
        return status;
    }
    place(session, o);
    const int64_t epochs = o->epochs > 0 ? o->epochs : 1;
    const int64_t steps = o->steps >= 0 ? o->steps : epochs * pe_data_batches(c->data);
    training->until = o->resume ? steps : session->progress.steps + steps;
    status = settle_order(session, c->data, o, found);
    if (status == PE_OK) {
        status = settle_augmentation(session, c->data, o, found, &c->augmentation);
    }
    if (status == PE_OK) {
        status = settle_schedule(session, c, o, training->until, found);
    }
    if (status == PE_OK && training->until + o->repeat > INT32_MAX) {
        status = pe_fail(session->message, PE_ERROR_ARGUMENT, "steps beyond number %d", INT32_MAX);
    }
    if (status == PE_OK && o->keep > 0 && !pe_place_is_folder(&training->place)) {
        status = pe_fail(session->message, PE_ERROR_ARGUMENT,
                         "--keep needs a folder: --save %s/ would be one", o->save);
    }
    return status;
}

pe_status pe_run_training(pe_session *session, pe_data *data, const pe_options *o, bool *stopped) {
    pe_bad_rows bad = {.limit = o->skip_bad, .notify = pe_print_bad_row};
    context c = {.data = data, .bad = &bad, .message = session->message};
    pe_training training = training_of(o, &c);
    c.duty.signaled = &signaled;
    pe_status status = pe_duty_begin(&c.duty, o, session->message);
    if (status == PE_OK && o->output) { /* not only after all steps */
        status = pe_try_export(session, o->output, false);
    }
    if (status == PE_OK) {
        status = begin(session, &c, o, &training);
    }
    if (status == PE_OK) {
        pe_catch_signals(on_signal);
        status = pe_train(session, &training);
    }
    status = status == PE_OK ? c.rested : status;
    if (status == PE_OK && !signaled) {
        status = repeat(session, &training, o->repeat > 0 ? o->repeat : 0);
    }
    *stopped = signaled != 0;
    if (status == PE_OK && o->output && !*stopped) {
        status = pe_export_weights(session, o->output, false);
    }
    return status;
}
