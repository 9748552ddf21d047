/* A training loop: steps, updates, the learning-rate schedule, checkpoints, and recovery from
 * losses that are not finite.
 *
 * It starts at session->progress, which pe_resume sets from a checkpoint, and continues exactly as
 * an uninterrupted training. The caller supplies the data and is notified of events.
 */
#ifndef PE_TRAIN_H
#define PE_TRAIN_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The schedule of a training: its learning rate over the updates, and the order of its data.
 * session->schedule points to it; checkpoints store and restore it. */
/* state_text.py: begin */
typedef enum pe_schedule_kind {
    PE_CONSTANT_RATE,
    PE_LINEAR,
    PE_COSINE,
    PE_POLYNOMIAL, /* this and all later kinds have a factor */
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
    pe_schedule_kind kind;                  /* kind of schedule */
    double rate;                            /* maximum learning rate */
    int64_t warmup;                         /* updates until the maximum rate */
    int64_t total;                          /* number of updates; 0: no schedule */
    int64_t rows;                           /* rows of the data; 0: unknown */
    int64_t batch;                          /* rows per step; 0: unknown */
    bool shuffled;                          /* shuffle in each epoch (pe_row_order.h) */
    bool flip;                              /* mirror pictures (pe_data_augment.h) */
    int64_t crop;                           /* shift pictures by up to this many pixels */
    double factor;                          /* parameters of the kind, see pe_schedule.h */
    int64_t period;                         /* number of updates */
    int64_t milestones[PE_MOST_MILESTONES]; /* ascending updates; 0 after the last */
} pe_schedule;
/* state_text.py: end */

/* Number of rollbacks without a checkpoint in between after which a training has diverged. */
#define PE_ROLLBACKS 3

typedef enum pe_event_kind {
    PE_STEPPED,     /* step, loss, rate, ns */
    PE_SAVED,       /* step, path */
    PE_RESUMED,     /* step: the last completed one; path */
    PE_ROLLED_BACK, /* step: the last completed one; message: the reason */
    PE_UNSOUND,     /* path: a checkpoint that was skipped; message: the reason */
    PE_READY,       /* step: the next one, after the checkpoint of the previous one */
} pe_event_kind;

typedef struct pe_event {
    pe_event_kind kind;
    int64_t step; /* the first is 1 */
    float loss;   /* NAN if the entry "train" has no output "loss" */
    float rate;
    int64_t ns; /* duration of the step, without reading its data */
    const char *path;
    const char *message;
} pe_event;

/* The place of checkpoints. If `path` ends in '/' or is a folder, each checkpoint is a file in
 * it, named by the number of the step. Otherwise it is one file, which each checkpoint
 * replaces. */
typedef struct pe_place {
    const char *path;
    pe_content content;
    int keep; /* number of newest files to keep in a folder, at least 1 */
} pe_place;

typedef struct pe_training {
    /* Writes the batch of a step (the first is 1) to the inputs of "train". */
    pe_status (*read)(void *context, pe_session *session, int64_t step);
    /* Called for each event; may be NULL. If it returns false, the training ends after this step,
     * or for PE_READY before it. The training waits while it blocks. */
    bool (*notify)(void *context, const pe_event *event);
    void *context;
    int64_t until;      /* number of the last step */
    pe_place place;     /* path NULL: no checkpoints */
    int64_t save_every; /* steps; 0: only at the end */
    bool roll_back;     /* if a loss is not finite, continue from the last checkpoint */
} pe_training;

/* Trains up to the step `until` with session->schedule; call pe_try_place first. Checkpoints are
 * saved every `save_every` steps, at the end, and when notify stops the training. A loss or a
 * param that is not finite is PE_ERROR_DIVERGED and never saved. With `roll_back`, params, states
 * and updates return to the last checkpoint, and the training continues with the batch after the
 * failed one. */
pe_status pe_train(pe_session *session, const pe_training *training);

/* Runs the next step, whose batch is already in the inputs, and counts it. */
pe_status pe_train_next(pe_session *session, pe_event *event);

/* Checks before a training that its checkpoints can be written, and creates their folder. */
pe_status pe_try_place(pe_session *session, const pe_place *place);

/* Loads the newest valid checkpoint of the place, on top of the weights in the session. *found is
 * false if there is none. It is an error if all are damaged. */
pe_status pe_resume(pe_session *session, const pe_training *training, bool *found);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
