#include "pe_train.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "pe_arguments.h"
#include "pe_mark.h"
#include "pe_place.h"
#include "pe_schedule.h"

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The rate of the next update. */
static float next_rate(const pe_session *session) {
    const pe_schedule *schedule = session->schedule;
    return (float)(schedule->rate * pe_schedule_factor(schedule, session->progress.updates + 1));
}

/* The controls of the next step, for the entry that updates weights or one that only accumulates
 * gradients. Random numbers depend only on seed and step. */
static pe_controls next_controls(const pe_session *session, bool updates) {
    const pe_progress *p = &session->progress;
    const uint32_t seed = p->seed * 0x9E3779B9U + (uint32_t)(p->steps + 1);
    const int64_t number = (updates ? p->updates : p->steps) + 1;
    return (pe_controls){.lr = next_rate(session), .step = (int32_t)number, .seed = (int32_t)seed};
}

/* The output "loss", or NULL. */
static const pe_tensor *find_loss(const pe_session *session) {
    const pe_entry *train = pe_find_variant(session->program, "train", session->size);
    for (int i = 0; train && i < train->output_count; i++) {
        const pe_tensor *output = &train->outputs[i];
        if (strcmp(output->name, "loss") == 0 && output->dtype == PE_F32 && output->rank == 0) {
            return output;
        }
    }
    return NULL;
}

/* Counts a completed step. */
static void count_step(pe_progress *p, bool collects, bool updated) {
    p->steps++;
    p->collected = collects && !updated ? p->collected + 1 : 0;
    p->updates += updated || !collects;
}

static const char *fault_of(const pe_schedule *schedule) {
    return schedule ? pe_schedule_fault(schedule)
                    : "a training needs session->schedule; point it to a pe_schedule";
}

/* Checks what a step needs besides its batch. */
static pe_status check_step(pe_session *session, const pe_event *event) {
    const pe_status status = pe_check_arguments(session, "pe_train_next", event != NULL);
    if (status != PE_OK) {
        return status;
    }
    const pe_progress *p = &session->progress;
    const char *fault = fault_of(session->schedule);
    if (p->steps < 0 || p->steps >= INT32_MAX || p->updates < 0 || p->updates >= INT32_MAX ||
        p->collected < 0 || p->collected >= INT32_MAX) {
        fault = "the steps, updates or micro-batches of the session are out of their range";
    }
    return fault ? pe_fail(session->message, PE_ERROR_ARGUMENT, "%s", fault) : PE_OK;
}

pe_status pe_train_next(pe_session *session, pe_event *event) {
    pe_status status = check_step(session, event);
    if (status != PE_OK) {
        return status;
    }
    const pe_program *program = session->program;
    const pe_tensor *loss = find_loss(session);
    const pe_entry *update = pe_find_variant(program, "update", 0);
    pe_progress *p = &session->progress;
    const bool apply = update && p->collected + 1 >= program->micro_batches;
    const pe_controls controls = next_controls(session, !update);
    const pe_controls of_update = next_controls(session, true);
    *event = (pe_event){.kind = PE_STEPPED, .step = p->steps + 1, .rate = controls.lr, .loss = NAN};
    const int64_t begin = now_ns();
    PE_MARK_BEGIN();
    status = pe_train_step(session, NULL, &controls, NULL);
    if (loss) { /* before the update, which reuses its memory */
        memcpy(&event->loss, pe_tensor_data(session, loss), sizeof event->loss);
    }
    if (apply && status == PE_OK) {
        pe_set_controls(session, update, &of_update);
        status = pe_run(session, update, NULL, NULL);
    }
    PE_MARK_END();
    event->ns = now_ns() - begin;
    if (status == PE_OK) {
        count_step(p, update != NULL, apply);
    }
    return status;
}

static bool notify(const pe_training *training, const pe_event *event) {
    return !training->notify || training->notify(training->context, event);
}

static pe_status save(pe_session *session, const pe_training *training) {
    char path[PE_ST_PATH_BYTES];
    const pe_place *place = &training->place;
    const int64_t step = session->progress.steps;
    pe_status status = pe_place_path(place, step, path, session->message);
    if (status == PE_OK) {
        status = pe_save_checkpoint(session, path, place->content);
    }
    if (status == PE_OK) {
        pe_place_tidy(place);
        notify(training, &(pe_event){.kind = PE_SAVED, .step = step, .path = path});
    }
    return status;
}

pe_status pe_try_place(pe_session *session, const pe_place *place) {
    char path[PE_ST_PATH_BYTES];
    pe_status status = pe_check_arguments(session, "pe_try_place", place && place->path);
    if (status != PE_OK) {
        return status;
    }
    if (place->keep < 1 && pe_place_is_folder(place)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "at least 1 checkpoint of %s must be kept, not %d", place->path,
                       place->keep);
    }
    status = pe_place_path(place, session->progress.steps, path, session->message);
    if (status == PE_OK && pe_place_is_folder(place) && mkdir(place->path, 0777) != 0 &&
        errno != EEXIST) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "cannot make the folder %s: %s",
                       place->path, strerror(errno));
    }
    return status == PE_OK ? pe_try_checkpoint(session, path, place->content) : status;
}

pe_status pe_resume(pe_session *session, const pe_training *training, bool *found) {
    char path[PE_ST_PATH_BYTES];
    const bool given = training && training->place.path && found;
    pe_status status = pe_check_arguments(session, "pe_resume", given);
    if (found) {
        *found = false;
    }
    if (status != PE_OK) {
        return status;
    }
    const pe_place *place = &training->place;
    int64_t step = pe_place_newest(place, INT64_MAX);
    for (; step >= 0; step = pe_place_newest(place, step)) {
        status = pe_place_path(place, step, path, session->message);
        if (status == PE_OK) {
            status = pe_load_weights(session, path);
        }
        if (status == PE_OK) {
            *found = true;
            notify(training,
                   &(pe_event){.kind = PE_RESUMED, .step = session->progress.steps, .path = path});
            return PE_OK;
        }
        notify(training,
               &(pe_event){.kind = PE_UNSOUND, .path = path, .message = session->message});
    }
    return status;
}

/* One step with its batch; a loss that is not finite is an error. */
static pe_status step_once(pe_session *session, const pe_training *training, bool *go_on) {
    pe_event event;
    pe_status status = training->read(training->context, session, session->progress.steps + 1);
    if (status == PE_OK) {
        status = pe_train_next(session, &event);
    }
    if (status != PE_OK) {
        return status;
    }
    *go_on = notify(training, &event);
    if (!isfinite(event.loss) && find_loss(session)) {
        return pe_fail(session->message, PE_ERROR_DIVERGED,
                       "the loss of step %lld is not finite (%g), and nothing is saved; take a "
                       "lower rate, or look at this batch",
                       (long long)event.step, (double)event.loss);
    }
    return PE_OK;
}

/* Returns to the last checkpoint, but not to its position in the data: the same batches would
 * fail again. */
static pe_status roll_back(pe_session *session, const pe_training *training) {
    char why[PE_MESSAGE_BYTES];
    bool found;
    const int64_t steps = session->progress.steps;
    const pe_schedule schedule = *session->schedule;
    memcpy(why, session->message, sizeof why);
    const pe_status status = pe_resume(session, training, &found);
    if (status != PE_OK) {
        return status;
    }
    if (!found) {
        return pe_fail(session->message, PE_ERROR_DIVERGED, "%s: its checkpoint is gone: %.200s",
                       training->place.path, why);
    }
    session->progress.steps = steps;
    *session->schedule = schedule;
    notify(training, &(pe_event){.kind = PE_ROLLED_BACK, .step = steps, .message = why});
    return PE_OK;
}

/* Whether a checkpoint is due now. */
static bool is_due(const pe_session *session, const pe_training *training, bool last) {
    const int64_t every = training->save_every;
    return training->place.path && (last || (every > 0 && session->progress.steps % every == 0));
}

/* Checks all requirements of a training before its first step, and creates its folder. */
static pe_status check_training(pe_session *session, const pe_training *training) {
    const pe_status status = pe_check_arguments(session, "pe_train", training && training->read);
    if (status != PE_OK) {
        return status;
    }
    if (fault_of(session->schedule)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "%s", fault_of(session->schedule));
    }
    if (training->place.path) {
        return pe_try_place(session, &training->place);
    }
    return training->roll_back
               ? pe_fail(session->message, PE_ERROR_ARGUMENT,
                         "pe_train: roll_back needs a place of checkpoints to go back to")
               : PE_OK;
}

pe_status pe_train(pe_session *session, const pe_training *training) {
    int rollbacks = 0;
    bool go_on = true;
    pe_status status = check_training(session, training);
    if (status != PE_OK) {
        return status;
    }
    if (training->roll_back && pe_place_newest(&training->place, INT64_MAX) < 0) {
        status = save(session, training); /* a rollback needs a checkpoint */
    }
    bool dirty = true;
    while (status == PE_OK && go_on && session->progress.steps < training->until) {
        const pe_event ready = {.kind = PE_READY, .step = session->progress.steps + 1};
        if (!notify(training, &ready)) {
            break;
        }
        status = step_once(session, training, &go_on);
        dirty = true;
        const bool last = !go_on || session->progress.steps >= training->until;
        if (status == PE_OK && is_due(session, training, last)) {
            status = save(session, training);
            rollbacks = status == PE_OK ? 0 : rollbacks;
            dirty = status != PE_OK;
        }
        if (status == PE_ERROR_DIVERGED && training->roll_back && rollbacks++ < PE_ROLLBACKS) {
            status = roll_back(session, training);
        }
    }
    return status == PE_OK && dirty && training->place.path ? save(session, training) : status;
}
