/* A training loop: steps, updates, the schedule of rates, checkpoints, and what is done about
 * losses that are not finite.
 *
 * It begins at session->progress, which is a checkpoint's after pe_resume, and leaves out nothing
 * that a training which never stopped would have done. Its caller supplies the data, and is
 * notified of events.
 */
#ifndef PE_TRAIN_H
#define PE_TRAIN_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The learning rate over the updates of a training, and the rows of data that it goes round: what
 * session->schedule points to, where checkpoints put it and take it from. */
/* state_text.py: begin */
typedef enum pe_schedule_kind {
    PE_CONSTANT_RATE,
    PE_LINEAR,
    PE_COSINE,
    PE_POLYNOMIAL, /* this one and those below have a factor */
    PE_EXPONENTIAL,
    PE_STEPS,
    PE_MILESTONES,
    PE_RESTARTS,
    PE_CYCLIC,
    PE_ONE_CYCLE,
    PE_SCHEDULES
} pe_schedule_kind;

#define PE_MOST_MILESTONES 8

typedef struct pe_schedule {
    pe_schedule_kind kind;                  /* how the rate goes */
    double rate;                            /* the highest */
    int64_t warmup;                         /* updates over which the rate rises */
    int64_t total;                          /* updates; 0: there is no schedule */
    int64_t rows;                           /* of the data; 0: not known */
    int64_t batch;                          /* rows of a step; 0: not known */
    bool shuffled;                          /* in each epoch, by the seed (pe_row_order.h) */
    bool flip;                              /* of pictures, by the runner (pe_data_augment.h) */
    int64_t crop;                           /* likewise, in pixels */
    double factor;                          /* these three as pe_schedule.h says */
    int64_t period;                         /* in updates */
    int64_t milestones[PE_MOST_MILESTONES]; /* rising; 0 after the last */
} pe_schedule;
/* state_text.py: end */

/* Rollbacks without a checkpoint between them, after which a training has diverged. */
#define PE_ROLLBACKS 3

typedef enum pe_event_kind {
    PE_STEPPED,     /* step, loss, rate, ns */
    PE_SAVED,       /* step, path */
    PE_RESUMED,     /* step: the last one made; path */
    PE_ROLLED_BACK, /* step: the last one made; message: why */
    PE_UNSOUND,     /* path: a checkpoint that was passed over; message: why */
    PE_READY,       /* step: the one that comes, behind the last one's checkpoint */
} pe_event_kind;

typedef struct pe_event {
    pe_event_kind kind;
    int64_t step; /* the first is 1 */
    float loss;   /* NAN where the entry "train" has no output "loss" */
    float rate;
    int64_t ns; /* of the step, without its data */
    const char *path;
    const char *message;
} pe_event;

/* Where checkpoints are kept. A `path` that ends in '/', or is a folder, gets a file for each, by
 * the number of the step; else it is one file, which each checkpoint replaces. */
typedef struct pe_place {
    const char *path;
    pe_content content;
    int keep; /* newest files of a folder that are kept, at least 1 */
} pe_place;

typedef struct pe_training {
    /* Puts the batch of a step (the first is 1) into the memory of the inputs of "train". */
    pe_status (*read)(void *context, pe_session *session, int64_t step);
    /* Called for each event; may be NULL. When it returns false, the step is the last one; for
     * PE_READY, false ends the training before the step. It may block: the training waits. */
    bool (*notify)(void *context, const pe_event *event);
    void *context;
    int64_t until;      /* number of the last step */
    pe_place place;     /* path NULL: no checkpoints */
    int64_t save_every; /* steps; 0: only at the end */
    bool roll_back;     /* a loss that is not finite: go on from the last checkpoint of the place */
} pe_training;

/* Trains until the step `until` by session->schedule, once pe_try_place found no fault. Checkpoints
 * are saved every `save_every` steps, at the end, and when notify stops the training. A loss that
 * is not finite, or a param, is PE_ERROR_DIVERGED and never saved. With `roll_back` params, states
 * and updates become those of the last checkpoint again, and the training goes on with the batch
 * after the one that failed. */
pe_status pe_train(pe_session *session, const pe_training *training);

/* Makes the next step, whose batch is in place, and counts it. */
pe_status pe_train_next(pe_session *session, pe_event *event);

/* Checks before a training that its checkpoints can be written, and makes their folder. */
pe_status pe_try_place(pe_session *session, const pe_place *place);

/* Loads the newest checkpoint of a place that is sound, on top of the weights in the session.
 * *found is false where there is none. Where all are damaged that is an error. */
pe_status pe_resume(pe_session *session, const pe_training *training, bool *found);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
