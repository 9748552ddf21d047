#include "pe_options.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pe_checkpoint.h"
#include "pe_data_bad.h"

#define PE_COUNT_LIMIT 1000000000

typedef enum value_kind { COUNT, RATE, SHARE, TEXT, STOP, CHOICE, FLAG, OPTIONAL } value_kind;

enum {
    FINETUNE = 1 << PE_COMMAND_FINETUNE,
    TRAIN = 1 << PE_COMMAND_TRAIN | FINETUNE,
    EVALUATE = 1 << PE_COMMAND_EVALUATE,
    PREDICT = 1 << PE_COMMAND_PREDICT,
    EXPORT = 1 << PE_COMMAND_EXPORT,
    INFO = 1 << PE_COMMAND_INFO,
    CHAT = 1 << PE_COMMAND_CHAT,
    RUNS = TRAIN | EVALUATE | PREDICT
};

/* An option: its commands, the type of its value, and its destination. */
typedef struct option {
    const char *name;
    int commands;
    value_kind kind;
    size_t place;
    int64_t least, most;
    const char *const *choices; /* ended by NULL */
    const char *value, *help;
} option;

static const char *const reactions[] = {"stop", "rollback", NULL};

#define AT(field) offsetof(pe_options, field)

static const option rows[] = {
    {"weights", ~0, TEXT, AT(weights), 0, 0, NULL, "FILE", "the program's weights"},
    {"checkpoint", RUNS | EXPORT | CHAT, TEXT, AT(checkpoint), 0, 0, NULL, "FILE",
     "a checkpoint of a training, loaded on top of the weights"},
    {"data", RUNS, TEXT, AT(data), 0, 0, NULL, "FILE|FOLDER|NAME=FILE,...",
     "rows: .safetensors, .npz, .npy, a folder of NAME.npy or of pictures"},
    {"mean", RUNS, TEXT, AT(mean), 0, 0, NULL, "X[,X,X]",
     "subtracted from pixels of 0 to 1; default: 0"},
    {"std", RUNS, TEXT, AT(spread), 0, 0, NULL, "X[,X,X]",
     "divisor of pixels, after --mean; default: 1"},
    {"megapixels", RUNS, COUNT, AT(megapixels), 1, 200, NULL, "N",
     "maximum size of a picture in millions of pixels; default: 50"},
    {"threads", RUNS | CHAT, COUNT, AT(threads), 1, PE_MOST_THREADS, NULL, "N",
     "number of threads; default: 1"},
    {"batch", RUNS, COUNT, AT(batch), 1, PE_COUNT_LIMIT, NULL, "N",
     "rows per batch, if the program has a range of sizes; default: the maximum"},
    {"steps", TRAIN, COUNT, AT(steps), 0, PE_COUNT_LIMIT, NULL, "N",
     "number of steps; with --resume, counted from the start of the training"},
    {"lr", TRAIN, RATE, AT(rate), 0, 0, NULL, "RATE", "maximum learning rate"},
    {"schedule", TRAIN, CHOICE, AT(schedule), 0, 0, pe_schedule_names,
     "constant|linear|cosine|polynomial|exponential|step|multistep|restarts|cyclic|one-cycle",
     "learning rate over the updates; default: constant"},
    {"factor", TRAIN, RATE, AT(factor), 0, 0, NULL, "NUMBER",
     "power, decay, growth of periods, or share, as the schedule needs"},
    {"period", TRAIN, COUNT, AT(period), 1, PE_COUNT_LIMIT, NULL, "N",
     "updates per step of the schedule, first restart, or half cycle"},
    {"milestones", TRAIN, TEXT, AT(milestones), 0, 0, NULL, "N,N,...",
     "updates at which multistep lowers the rate, at most 8"},
    {"warmup", TRAIN, COUNT, AT(warmup), 0, PE_COUNT_LIMIT, NULL, "N",
     "updates until the maximum rate; default: 0"},
    {"total", TRAIN, COUNT, AT(total), 1, PE_COUNT_LIMIT, NULL, "N",
     "last update of the schedule; default: that of the training"},
    {"seed", TRAIN | CHAT, COUNT, AT(seed), 0, UINT32_MAX, NULL, "N",
     "seed of random numbers and of the order of rows; default: 0"},
    {"shuffle", TRAIN, FLAG, AT(shuffle), 0, 0, NULL, NULL, "shuffle the rows in each epoch"},
    {"flip", TRAIN, FLAG, AT(flip), 0, 0, NULL, NULL, "mirror half of the pictures, by the seed"},
    {"crop", TRAIN, COUNT, AT(crop), 0, PE_COUNT_LIMIT, NULL, "N",
     "shift each picture by up to N pixels, filling with zeros, by the seed"},
    {"skip-bad", TRAIN, COUNT, AT(skip_bad), 0, PE_MAX_BAD_ROWS, NULL, "N",
     "skip up to N rows with invalid numbers, indices or pictures; name each"},
    {"first-step", TRAIN, COUNT, AT(first_step), 1, PE_COUNT_LIMIT, NULL, "N",
     "number of the first step, which selects its epoch and batch"},
    {"save", TRAIN, TEXT, AT(save), 0, 0, NULL, "PLACE",
     "checkpoint file, or a folder if it exists as one or ends in '/'"},
    {"save-every", TRAIN, COUNT, AT(save_every), 1, PE_COUNT_LIMIT, NULL, "N",
     "steps between checkpoints; default: one at the end"},
    {"keep", TRAIN, COUNT, AT(keep), 1, PE_COUNT_LIMIT, NULL, "N",
     "number of newest checkpoints to keep in a folder; default: 2"},
    {"save-whole", TRAIN, FLAG, AT(whole), 0, 0, NULL, NULL,
     "include frozen weights in checkpoints, which then load without --weights"},
    {"resume", TRAIN, OPTIONAL, AT(resume_from), 0, 0, NULL, "PLACE",
     "continue from the newest checkpoint of PLACE, by default of --save"},
    {"on-nan", TRAIN, CHOICE, AT(roll_back), 0, 0, reactions, "stop|rollback",
     "on a loss that is not finite: stop, or continue from the last checkpoint"},
    {"duty", TRAIN, COUNT, AT(duty), 1, 100, NULL, "PERCENT",
     "maximum share of time to compute; rests after each step; default: 100"},
    {"pause-above", TRAIN, COUNT, AT(pause_above), 1, 150, NULL, "CELSIUS",
     "pause above this temperature, until 5 degrees below it"},
    {"thermal", TRAIN, TEXT, AT(thermal), 0, 0, NULL, "FILE",
     "temperature file in 0.001 degrees; default: the first thermal zone's"},
    {"pause-below", TRAIN, COUNT, AT(pause_below), 1, 100, NULL, "PERCENT",
     "pause below this battery charge, until 5 points above it"},
    {"battery", TRAIN, TEXT, AT(battery), 0, 0, NULL, "FILE",
     "battery charge file, in percent; default: the first power supply's"},
    {"repeat", TRAIN, COUNT, AT(repeat), 0, PE_COUNT_LIMIT, NULL, "N",
     "additional steps after the checkpoint, for timing only"},
    {"output", PREDICT | EXPORT | FINETUNE, TEXT, AT(output), 0, 0, NULL, "FILE",
     "output file; for finetune, the trained weights or adapters"},
    {"tokenizer", TRAIN | EVALUATE | CHAT, TEXT, AT(tokenizer), 0, 0, NULL, "FILE",
     "tokenizer table; --data may then be texts (.jsonl)"},
    {"truncate", TRAIN | EVALUATE, FLAG, AT(truncate), 0, 0, NULL, NULL,
     "cut texts that are longer than a row instead of leaving them out"},
    {"no-pack", TRAIN | EVALUATE, FLAG, AT(apart), 0, 0, NULL, NULL, "give each text its own row"},
    {"epochs", FINETUNE, COUNT, AT(epochs), 1, PE_COUNT_LIMIT, NULL, "N",
     "passes over the data, without --steps; default: 1"},
    {"adapter", CHAT, TEXT, AT(adapter), 0, 0, NULL, "FILE",
     "output of finetune --output; a line \"/adapter FILE\" switches to another"},
    {"limit", CHAT, COUNT, AT(limit), 1, PE_COUNT_LIMIT, NULL, "N",
     "maximum number of tokens per answer; default: all positions"},
    {"temperature", CHAT, RATE, AT(temperature), 0, 0, NULL, "NUMBER",
     "sampling temperature; default: 0, the most likely tokens"},
    {"top-p", CHAT, SHARE, AT(top_p), 0, 0, NULL, "SHARE",
     "sample from the fewest tokens with this total probability; default: 1"},
    {"stop", CHAT, STOP, 0, 0, PE_MOST_STOPS, NULL, "TEXT",
     "end an answer before this text; up to 16 of them"},
    {"all", EXPORT, FLAG, AT(all), 0, 0, NULL, NULL, "frozen weights too"},
    {"params", INFO, FLAG, AT(params), 0, 0, NULL, NULL, "a line for each param"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static const struct {
    const char *name, *help;
} commands[PE_COMMANDS] = {
    [PE_COMMAND_TRAIN] = {"train", "train on batches of rows, one per step, epoch after epoch"},
    [PE_COMMAND_FINETUNE] = {"finetune",
                             "train a language model on shuffled texts, by default with a "
                             "cosine schedule"},
    [PE_COMMAND_EVALUATE] = {"evaluate", "means of losses and metrics over all whole batches"},
    [PE_COMMAND_PREDICT] = {"predict", "outputs of all rows, as safetensors"},
    [PE_COMMAND_EXPORT] = {"export", "trained weights in the model's order, as safetensors"},
    [PE_COMMAND_INFO] = {"info", "the program's entries, inputs and memory"},
    [PE_COMMAND_CHAT] = {"chat", "a language model's answers to the lines of standard input"},
};

static bool parse_count(const option *row, const char *text, int64_t *value) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= row->least && *value <= row->most;
}

/* A rate is a number that f32 can hold, and does not round to 0; a share is in (0, 1]. */
static bool parse_rate(const option *row, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    const double most = row->kind == SHARE ? 1 : (double)FLT_MAX;
    const bool held = *value >= 0 && *value <= most;
    const bool zero = row->kind == RATE && *value == 0;
    return end != text && *end == '\0' && held && ((float)*value > 0 || zero);
}

static bool parse_choice(const option *row, const char *text, int *value) {
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

/* Parses the value of an option; false if it is invalid. */
static bool take(pe_options *o, const option *row, const char *text) {
    void *place = (char *)o + row->place;
    switch (row->kind) {
    case COUNT:
        return parse_count(row, text, place);
    case RATE:
    case SHARE:
        return parse_rate(row, text, place);
    case CHOICE:
        return parse_choice(row, text, place);
    case STOP:
        return *text && o->stop_count < PE_MOST_STOPS && (o->stops[o->stop_count++] = text);
    case FLAG:
        *(int *)place = 1;
        return text == NULL;
    case OPTIONAL:
        o->resume = true;
        *(const char **)place = text;
        return !text || *text;
    default:
        *(const char **)place = text;
        return *text != '\0';
    }
}

static const option *find_option(const char *name, size_t length) {
    for (int i = 0; i < ROWS; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Explains which values an option takes. */
static pe_status refuse(const option *row, const char *value, char *message) {
    char range[64] = "";
    if (row->kind == COUNT) {
        snprintf(range, sizeof range, " from %lld to %lld", (long long)row->least,
                 (long long)row->most);
    } else if (row->kind == STOP) {
        snprintf(range, sizeof range, ", at most %d that are not empty", PE_MOST_STOPS);
    } else if (row->kind == SHARE) {
        snprintf(range, sizeof range, " above 0, of at most 1");
    } else if (row->kind == RATE) {
        snprintf(range, sizeof range, " that is 0, or from %.2g to %.2g", FLT_TRUE_MIN, FLT_MAX);
    }
    return pe_fail(message, PE_ERROR_ARGUMENT, "option --%s takes %s%s, not \"%.100s\"", row->name,
                   row->value ? row->value : "no value", range, value);
}

/* Takes the option at arguments[*i]; *i becomes its last argument. */
static pe_status parse_option(pe_options *o, int count, char **arguments, int *i, char *message) {
    const char *argument = arguments[*i];
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        o->help = true;
        return PE_OK;
    }
    const size_t length = strcspn(argument, "=");
    const option *row =
        strncmp(argument, "--", 2) == 0 ? find_option(argument + 2, length - 2) : NULL;
    if (!row || !(row->commands & 1 << o->command)) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "%s has no option %.*s; see %s --help",
                       commands[o->command].name, (int)(length < 100 ? length : 100), argument,
                       commands[o->command].name);
    }
    const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
    if (!value && row->kind < FLAG) {
        if (++*i == count) {
            return pe_fail(message, PE_ERROR_ARGUMENT, "option --%s needs a value: %s", row->name,
                           row->value);
        }
        value = arguments[*i];
    }
    return take(o, row, value) ? PE_OK : refuse(row, value, message);
}

/* A missing option of a command, or NULL. */
static const char *find_fault(const pe_options *o) {
    const bool tunes = o->command == PE_COMMAND_FINETUNE;
    const bool train = o->command == PE_COMMAND_TRAIN || tunes;
    if (o->command != PE_COMMAND_INFO && !o->weights) {
        return "--weights is needed";
    }
    if (o->command < PE_COMMAND_EXPORT && !o->data) {
        return "--data is needed";
    }
    if ((o->command == PE_COMMAND_PREDICT || o->command == PE_COMMAND_EXPORT) && !o->output) {
        return "--output is needed";
    }
    if ((o->command == PE_COMMAND_CHAT || tunes) && !o->tokenizer) {
        return "--tokenizer is needed";
    }
    if (train && ((o->steps < 0 && !tunes) || (!isfinite(o->rate) && !o->resume))) {
        return tunes ? "finetune needs --lr unless it resumes"
                     : "train needs --steps, and --lr unless it resumes";
    }
    if (o->steps >= 0 && o->epochs >= 0) {
        return "--steps and --epochs both say where the training ends; leave out one";
    }
    if (o->resume && !o->resume_from && !o->save) {
        return "--resume needs a place: --save, or --resume=PLACE";
    }
    if (o->resume && o->first_step > 0) {
        return "--resume continues from a checkpoint; leave out --first-step";
    }
    if (train && !o->save && (o->save_every > 0 || o->keep > 0 || o->whole || o->roll_back)) {
        return "--save-every, --keep, --save-whole and --on-nan=rollback need --save";
    }
    if ((o->thermal && o->pause_above < 0) || (o->battery && o->pause_below < 0)) {
        return "--thermal needs --pause-above, and --battery --pause-below";
    }
    return NULL;
}

static pe_command find_command(const char *name) {
    for (int i = 1; i < PE_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return (pe_command)i;
        }
    }
    return PE_COMMAND_NONE;
}

/* Defaults. */
static const pe_options unset = {
    .steps = -1,
    .epochs = -1,
    .threads = 1,
    .first_step = -1,
    .seed = -1,
    .warmup = -1,
    .total = -1,
    .period = -1,
    .save_every = -1,
    .keep = -1,
    .skip_bad = -1,
    .batch = -1,
    .crop = -1,
    .megapixels = -1,
    .duty = -1,
    .pause_above = -1,
    .pause_below = -1,
    .schedule = -1,
    .limit = -1,
    .temperature = NAN,
    .top_p = NAN,
    .rate = NAN,
    .factor = NAN,
};

/* Names the commands, and a word that is none of them. */
static pe_status no_command(const char *word, char *message) {
    static const char known[] = "train, finetune, evaluate, predict, export, info or chat";
    return *word ? pe_fail(message, PE_ERROR_ARGUMENT, "there is no command \"%.100s\"; it is %s",
                           word, known)
                 : pe_fail(message, PE_ERROR_ARGUMENT, "the command is %s", known);
}

pe_status pe_parse_options(pe_options *options, int count, char **arguments, char *message) {
    const char *command = count > 1 ? arguments[1] : "";
    *options = unset;
    options->command = find_command(command);
    options->help = strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0;
    if (options->command == PE_COMMAND_NONE) {
        return options->help ? PE_OK : no_command(command, message);
    }
    for (int i = 2; i < count; i++) {
        const pe_status status = parse_option(options, count, arguments, &i, message);
        if (status != PE_OK) {
            return status;
        }
    }
    if (options->command == PE_COMMAND_FINETUNE) {
        options->shuffle = 1;
    }
    const char *fault = options->help ? NULL : find_fault(options);
    return fault ? pe_fail(message, PE_ERROR_ARGUMENT, "%s", fault) : PE_OK;
}

void pe_print_help(FILE *out, const char *program, pe_command command) {
    if (command == PE_COMMAND_NONE) {
        fprintf(out, "usage: %s COMMAND [--OPTION VALUE | --OPTION=VALUE]...\n\n", program);
        for (int i = 1; i < PE_COMMANDS; i++) {
            fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
        }
        fprintf(out, "\n%s COMMAND --help lists a command's options.\n", program);
        return;
    }
    fprintf(out, "usage: %s %s [OPTION]...\n%s\n\n", program, commands[command].name,
            commands[command].help);
    for (int i = 0; i < ROWS; i++) {
        const option *row = &rows[i];
        if (row->commands & 1 << command) {
            fprintf(out,
                    row->kind == OPTIONAL ? "  --%s[=%s]\n      %s\n" : "  --%s %s\n      %s\n",
                    row->name, row->value ? row->value : "", row->help);
        }
    }
}
