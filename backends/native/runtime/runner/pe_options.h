/* The runner's arguments: a command, then options as `--key value` or `--key=value`. */
#ifndef PE_OPTIONS_H
#define PE_OPTIONS_H

#include <stdio.h>

#include "pe.h"

typedef enum pe_command {
    PE_COMMAND_NONE,
    PE_COMMAND_TRAIN,
    PE_COMMAND_FINETUNE,
    PE_COMMAND_EVALUATE,
    PE_COMMAND_PREDICT,
    PE_COMMAND_EXPORT,
    PE_COMMAND_INFO,
    PE_COMMAND_CHAT,
    PE_COMMANDS
} pe_command;

enum { PE_MOST_STOPS = 16 };

/* The parsed arguments; -1 is a missing number, NULL a missing text. */
typedef struct pe_options {
    pe_command command;
    bool help;
    const char *weights, *checkpoint, *data, *save, *output;
    bool resume;
    const char *resume_from;
    int64_t steps, threads, repeat, first_step, seed, warmup, total, period, save_every, keep;
    int64_t skip_bad, batch, crop;
    int schedule; /* pe_schedule_kind, or -1 */
    int roll_back, whole, all, params, shuffle, flip;
    double rate, factor;       /* NAN if missing */
    double temperature, top_p; /* likewise */
    int64_t limit;
    const char *tokenizer, *adapter;
    const char *stops[PE_MOST_STOPS];
    int stop_count;
    int64_t epochs;
    int truncate, apart;
    const char *milestones;    /* "30,60" */
    const char *mean, *spread; /* "0.485,0.456,0.406" */
    int64_t megapixels;
    int64_t duty, pause_above, pause_below;
    const char *thermal, *battery;
} pe_options;

/* Parses arguments[1] and the following ones; an error is a usage error. */
pe_status pe_parse_options(pe_options *options, int count, char **arguments, char *message);

/* Prints the commands, or the options of one of them. */
void pe_print_help(FILE *out, const char *program, pe_command command);

#endif
