/* PockEngine's runtime: runs programs that the compiler planned. C99 and C++11.
 *
 * A program is constant data and functions, generated with its kernels; `pe_program_NAME.h` of an
 * artifact declares it. A session is a program with its memory: the params that some entry writes
 * (weights that train, states), the frozen ones (all other weights, constant tensors), and the
 * arena (everything else, at offsets fixed at compile time). pe_init takes params and arena from
 * the caller; nothing allocates afterwards. pe_open (pe_host.h) takes them from the operating
 * system.
 *
 * Frozen params are never copied: pe_load_weights maps the file that holds them, so that sessions
 * and processes share its pages. Such a file must not be changed in place while a session is open;
 * renaming another file over it is safe. A program for a device without files has them compiled in.
 * If an accelerator runs the entries, the params are in its memory between runs.
 *
 *     static pe_session session;
 *     pe_init(&session, &pe_program_digits, params, arena, threads);
 *     pe_load_weights(&session, "weights.safetensors");
 *     const void *inputs[] = {images, labels, NULL};  // the order of the entry "train"
 *     void *outputs[] = {&loss};
 *     const pe_controls controls = {0.01f, 1, 0};
 *     pe_train_step(&session, inputs, &controls, outputs);
 *
 * Errors. Functions return PE_OK or an error, whose text is in session->message until the next
 * error. A call that fails has changed nothing, unless it says otherwise. A required argument that
 * is NULL, a session that is not open, and a number outside its range are PE_ERROR_ARGUMENT;
 * functions without a status then return NULL, 0 or false.
 *
 * Threads. A session is used by one thread at a time; different sessions, of the same or of
 * different programs, may be used at once. Its own threads start in pe_init, sleep between calls
 * and end in pe_close. fork does not copy them: open sessions after it.
 *
 * Ownership. Programs, entries and tensors are constant and live as long as the library. Memory and
 * files belong to the caller: params and arena until pe_close, arguments of a call until it
 * returns. Data that pe_tensor_data points to is the session's, and valid until the next run.
 */
#ifndef PE_H
#define PE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pe_limits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Exported by a library; everything else is hidden, so that libraries do not conflict. */
#define PE_API __attribute__((visibility("default")))
#pragma GCC visibility push(default)

#define PE_VERSION "0.1.0"

/* Version of the interface compiled into programs and callers: pe_init and pe_open refuse another
 * number, of a program or of a caller. */
#define PE_ABI 15

#define PE_MAX_RANK 8
#define PE_MESSAGE_BYTES 512

typedef enum pe_status {
    PE_OK = 0,
    PE_ERROR_ARGUMENT = 1, /* a NULL, a size or a count that does not fit */
    PE_ERROR_NAME = 2,     /* no such entry, param or input */
    PE_ERROR_SYSTEM = 3,   /* the operating system refused: threads, memory, a file */
    PE_ERROR_FORMAT = 4,   /* a file that is not a safetensors file, or a damaged one */
    PE_ERROR_MISMATCH = 5, /* a sound file of another program; code of another PE_ABI */
    PE_ERROR_VALUE = 6,    /* an index outside its range */
    PE_ERROR_DIVERGED = 7, /* a loss or a param that is not finite */
} pe_status;

/* The element types. bf16, f16, i8 and u8 are only stored and moved, not computed with. */
typedef enum pe_dtype {
    PE_F32,
    PE_I32,
    PE_I64,
    PE_BOOL,
    PE_BF16,
    PE_F16,
    PE_I8,
    PE_U8,
} pe_dtype;

/* Flags of a param or an input. */
enum {
    PE_WRITTEN = 1,  /* some entry writes it: it is a part of every checkpoint */
    PE_FINITE = 2,   /* written, and began as finite numbers: it must be finite to be saved */
    PE_STATE = 4,    /* an optimizer's state, not a param of the model */
    PE_CONSTANT = 8, /* a constant of the compiler: no table in flash lists it */
    PE_RATE = 16,    /* an input that is `lr` of pe_controls, an f32 */
    PE_STEP = 32,    /* likewise `step`, an i32 */
    PE_SEED = 64,    /* likewise `seed`, an i32 */
};

/* A named tensor, row-major, at an offset into the arena, or as a param into the params if some
 * entry writes it, else into the frozen ones. If the compiler changed the order of dimensions,
 * the model's dimension i is `order[i]` here; otherwise all are 0. */
typedef struct pe_tensor {
    const char *name;
    pe_dtype dtype;
    int rank;
    int64_t shape[PE_MAX_RANK];
    size_t offset;
    unsigned flags;
    signed char order[PE_MAX_RANK];
} pe_tensor;

/* Valid range of an integer input's elements, which are read as indices: low to high, or
 * `also`. The elements are start + i * row_stride + j * stride for i < rows and j < count. */
typedef struct pe_index_range {
    int input;
    int64_t low, high, also;
    int64_t start, rows, row_stride, count, stride;
} pe_index_range;

struct pe_worker;
struct pe_session;
struct pe_schedule;

/* One way to run a program: "train", "predict". Its inputs are read from the arena. */
typedef struct pe_entry {
    const char *name;
    const pe_tensor *inputs;
    const pe_tensor *outputs;
    const pe_index_range *ranges;
    int input_count;
    int output_count;
    int range_count;
    void (*run)(struct pe_worker *w, unsigned char *params, const unsigned char *frozen,
                unsigned char *arena);
} pe_entry;

/* An input with a varying dimension, its axis, and the padding value. */
typedef struct pe_size_axis {
    const char *input;
    int axis;
    double pad;
} pe_size_axis;

/* A size that varies from run to run, such as the batch. The program has each entry once for each
 * bucket, named "train@8"; data are padded to the smallest bucket that holds them. */
typedef struct pe_size_range {
    const char *name;
    int64_t low, high;
    const int64_t *buckets; /* rising; the last is `high` */
    const pe_size_axis *axes;
    int bucket_count;
    int axis_count;
} pe_size_range;

/* Runs entries instead of the CPU: a GPU. It has its own copy of each memory, which it exchanges
 * with the session's. */
typedef struct pe_accelerator {
    pe_status (*open)(struct pe_session *session); /* at the end of pe_init */
    void (*close)(struct pe_session *session);     /* also after an `open` that failed */
    pe_status (*run)(struct pe_session *session, const pe_entry *entry);
    pe_status (*fetch)(struct pe_session *session); /* copies its params to the session */
    const void *code;                               /* its private data */
} pe_accelerator;

typedef struct pe_program {
    int abi; /* PE_ABI */
    const char *name;
    const char *specification; /* digest of names, types and sizes; the manifest has the same */
    const pe_tensor *params;
    const pe_entry *entries;
    int param_count;
    int entry_count;
    int max_threads;   /* the arena has per-thread scratch for this many threads */
    int micro_batches; /* runs of "train" whose gradients one run of "update" applies */
    size_t params_bytes;
    size_t frozen_bytes;
    size_t arena_bytes;
    const unsigned char *frozen;  /* frozen params that are compiled in; NULL: they are in a file */
    const unsigned char *initial; /* the params' first `initial_bytes`; the rest is zeros */
    size_t initial_bytes;
    void (*report)(void);              /* prints the times of a profiled program; else NULL */
    const pe_size_range *sizes;        /* NULL if none varies */
    const pe_accelerator *accelerator; /* NULL: this processor runs it */
    /* Writes the prepared forms of frozen params, which kernels read, after the params; NULL:
     * none. It runs before an entry if the frozen params are new. */
    void (*prepare)(struct pe_worker *w, unsigned char *params, const unsigned char *frozen);
} pe_program;

/* A training's progress: the state of its next step besides the params. A file of params that is
 * not a checkpoint has the initial progress, all zeros. */
/* state_text.py: begin */
typedef struct pe_progress {
    int64_t steps;     /* runs of the entry "train", which is the position in the data */
    int64_t updates;   /* updates of the weights */
    int64_t collected; /* micro-batches since the last update */
    uint32_t seed;     /* seed of random numbers */
} pe_progress;
/* state_text.py: end */

/* The contents of a file of params. */
typedef enum pe_content {
    PE_TRAINED, /* the params that training writes; loads on top of the program's weights */
    PE_WHOLE,   /* frozen weights and constants too */
} pe_content;

/* Memory that a session has from the operating system. */
typedef struct pe_mapping {
    void *address;
    size_t bytes;
} pe_mapping;

/* Memory for a team of threads, which pe_pool.h describes. */
#define PE_TEAM_BYTES 2304

/* The side on which a memory was written last, if the session and an accelerator both have it. */
enum {
    PE_PARAMS_HERE = 1,  /* in the session */
    PE_FROZEN_HERE = 2,  /* likewise; also new to the program's `prepare` */
    PE_PARAMS_THERE = 4, /* by the accelerator */
};

/* A session; must be aligned to PE_ALIGN. Its fields are read-only except progress, schedule and
 * size. */
typedef struct pe_session {
    const pe_program *program;
    unsigned char *params;
    const unsigned char *frozen;
    unsigned char *arena;
    pe_progress progress;         /* set by loading, stored by saving; its caller counts */
    struct pe_schedule *schedule; /* the caller's (pe_train.h), also loaded and saved; NULL: none */
    int64_t size;                 /* size of the current data, if it varies; 0: the largest */
    pe_mapping frozen_memory;     /* the frozen params, unless they are compiled in */
    uint32_t frozen_sum;          /* their checksum, if it is known */
    bool frozen_known;
    int threads;       /* number of threads, including the caller */
    unsigned newer;    /* PE_PARAMS_HERE and the like */
    void *accelerated; /* private data of the accelerator */
    char message[PE_MESSAGE_BYTES];
    unsigned char team[PE_TEAM_BYTES] __attribute__((aligned(PE_ALIGN)));
} pe_session;

/* How a caller was compiled. Its layout is the same in every PE_ABI. */
typedef struct pe_caller {
    int abi;              /* PE_ABI */
    size_t session_bytes; /* sizeof(pe_session) */
    char *message;        /* buffer of `message_bytes` for an error message; NULL: none */
    size_t message_bytes;
} pe_caller;

/* pe_init for languages that cannot call inline functions. They pass the values that the C
 * compiler would. A caller with another interface is PE_ERROR_MISMATCH, and the session is not
 * changed. */
pe_status pe_init_by(pe_session *session, const pe_program *program, void *params, void *arena,
                     int threads, const pe_caller *caller);

/* Prepares a session. `params` and `arena` have the program's sizes (PE_NAME_PARAMS_BYTES and
 * PE_NAME_ARENA_BYTES of its header) and are aligned to PE_ALIGN. Params, also frozen ones, start
 * with the values compiled into the program, or else with zeros. `threads`, from 1 to
 * PE_MOST_THREADS, are limited to the program's maximum. After an error there is nothing to
 * close. */
static inline pe_status pe_init(pe_session *session, const pe_program *program, void *params,
                                void *arena, int threads) {
    const pe_caller caller = {PE_ABI, sizeof(pe_session), session ? session->message : NULL,
                              PE_MESSAGE_BYTES};
    return pe_init_by(session, program, params, arena, threads, &caller);
}

/* Ends the threads and unmaps the frozen params; the other memory is the caller's again. Any
 * thread may call it; a session that is not open is unchanged. */
void pe_close(pe_session *session);

/* The entry of this name, or NULL. */
const pe_entry *pe_find_entry(const pe_program *program, const char *name);

/* As pe_find_entry, for programs with a varying size: the variant of the smallest bucket that holds
 * `size`, or of the largest bucket for 0. Without a varying size it is the entry of this name. */
const pe_entry *pe_find_variant(const pe_program *program, const char *name, int64_t size);

/* The address of an entry's input or output. Before each run, inputs may be written there instead
 * of passed (the program reuses their memory). Outputs stay valid until the next run. */
void *pe_tensor_data(const pe_session *session, const pe_tensor *tensor);

/* Runs an entry: copies inputs[i] in (unless NULL) and outputs[i] out (unless NULL); the order is
 * the entry's. Either array may be NULL as a whole. PE_ERROR_VALUE names an index outside its
 * range, or a rate that is not a finite number of at least 0, before anything is computed. */
pe_status pe_run(pe_session *session, const pe_entry *entry, const void *const *inputs,
                 void *const *outputs);

/* Scalars of a step besides the data: the inputs with the flags PE_RATE, PE_STEP and PE_SEED, if an
 * entry has them. */
typedef struct pe_controls {
    float lr;     /* learning rate */
    int32_t step; /* number of the step, the first is 1 */
    int32_t seed; /* of random numbers; another one for every step */
} pe_controls;

/* Whether an input is one of the controls. */
bool pe_is_control(const pe_tensor *input);

/* Writes the controls that an entry reads to their inputs. */
void pe_set_controls(pe_session *session, const pe_entry *entry, const pe_controls *controls);

/* Runs entry "train" (its variant for session->size) with these controls; their elements of
 * `inputs` are NULL. If the program has an entry "update", this only accumulates gradients:
 * pe_train and pe_train_next (pe_train.h) run the update after `micro_batches` of them. */
pe_status pe_train_step(pe_session *session, const void *const *inputs, const pe_controls *controls,
                        void *const *outputs);

/* Runs entry "predict", like pe_train_step. */
pe_status pe_predict(pe_session *session, const void *const *inputs, void *const *outputs);

/* Copies the params that an accelerator wrote into the session, for pe_param_data. Functions that
 * read params by name or write files call it themselves; without an accelerator it does
 * nothing. */
pe_status pe_fetch_params(pe_session *session);

/* Address of a param, read-only. After runs on an accelerator, call pe_fetch_params first. */
const void *pe_param_data(const pe_session *session, const pe_tensor *param);

/* Copies one param; `bytes` must be its exact size. Setting a frozen param gives the session its
 * own copy; the file is unchanged. Setting one that is compiled in is PE_ERROR_ARGUMENT. */
pe_status pe_get_param(pe_session *session, const char *name, void *data, size_t bytes);
pe_status pe_set_param(pe_session *session, const char *name, const void *data, size_t bytes);

/* Replaces params, progress and schedule by those of a safetensors file. The file has all params,
 * or, as a checkpoint, those that training writes; the session must then have the same frozen
 * weights. Nothing changes unless the whole file is valid, including the checksums of a
 * checkpoint. Frozen params are mapped if the file has the program's layout, as an artifact's
 * weights do; from other files they are copied. */
pe_status pe_load_weights(pe_session *session, const char *path);

/* Writes a checkpoint for pe_load_weights: to a temporary file, which is synced and renamed, so
 * that a kill at any moment leaves the old file or the new one. If params are no longer finite
 * (PE_FINITE), it fails with PE_ERROR_DIVERGED, and the old file stays. */
pe_status pe_save_checkpoint(pe_session *session, const char *path, pe_content content);

/* Whether a checkpoint could be written there now: the folder's permissions, and the space. */
pe_status pe_try_checkpoint(pe_session *session, const char *path, pe_content content);

/* Writes the trained weights, or all of the model's, with the model's names and order of
 * dimensions, without states, constants and progress. */
pe_status pe_export_weights(pe_session *session, const char *path, bool all);

/* As pe_try_checkpoint, for pe_export_weights. */
pe_status pe_try_export(pe_session *session, const char *path, bool all);

/* Checks the inputs in the arena against the entry's ranges, as pe_run does. */
pe_status pe_check_ranges(pe_session *session, const pe_entry *entry);

/* As pe_check_ranges, for part `part` of `parts` equal parts of each input, such as a row of a
 * batch. Does not check the learning rate. */
pe_status pe_check_part(pe_session *session, const pe_entry *entry, int64_t part, int64_t parts);

/* Size of a tensor's elements, and of one element. */
size_t pe_tensor_bytes(const pe_tensor *tensor);
size_t pe_dtype_bytes(pe_dtype dtype);

/* The name of a type in safetensors, such as "F32". */
const char *pe_dtype_name(pe_dtype dtype);

/* Formats a message and returns the status, so that `return pe_fail(...)` reads well. */
__attribute__((format(printf, 3, 4))) pe_status pe_fail(char *message, pe_status status,
                                                        const char *format, ...);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
