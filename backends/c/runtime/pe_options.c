#include "pe_options.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PE_COUNT_LIMIT 1000000000

/* An option with a number, and what the number may be. */
typedef struct count_option {
    const char *name;
    int64_t *value;
    int64_t least, most;
} count_option;

static bool parse_count(const count_option *option, const char *text) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    *option->value = value;
    return errno == 0 && end != text && *end == '\0' && value >= option->least &&
           value <= option->most;
}

/* A rate is a number that f32 can hold, and does not round to 0. */
static bool parse_rate(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    const bool held = *value >= 0 && *value <= (double)FLT_MAX;
    return end != text && *end == '\0' && held && ((float)*value > 0 || *value == 0);
}

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

/* Takes one option and its value; false when either is unknown or malformed. */
static bool parse_option(pe_options *o, const char *name, const char *value) {
    const count_option counts[] = {
        {"--steps", &o->steps, 0, PE_COUNT_LIMIT},
        {"--threads", &o->threads, 1, PE_COUNT_LIMIT},
        {"--repeat", &o->repeat, 0, PE_COUNT_LIMIT},
        {"--first-step", &o->first_step, 1, PE_COUNT_LIMIT},
        {"--seed", &o->seed, 0, UINT32_MAX},
        {"--warmup", &o->warmup, 0, PE_COUNT_LIMIT},
        {"--total", &o->total, 1, PE_COUNT_LIMIT},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (strcmp(name, counts[i].name) == 0) {
            return parse_count(&counts[i], value);
        }
    }
    if (strcmp(name, "--schedule") == 0) {
        return parse_schedule(value, &o->schedule);
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
    return text && *value;
}

/* Checks that a command has what it needs, and nothing of the other one's. */
static pe_status check_complete(const pe_options *o, char *message) {
    const char *fact = NULL;
    if (!o->weights || !o->data) {
        fact = "--weights and --data are needed";
    } else if (!o->train && !o->output) {
        fact = "predict needs --output";
    } else if (o->train && o->output) {
        fact = "train has no --output";
    } else if (o->train && (o->steps < 0 || !isfinite(o->rate))) {
        fact = "train needs --steps and --lr";
    }
    return fact ? pe_fail(message, PE_ERROR_ARGUMENT, "%s", fact) : PE_OK;
}

pe_status pe_parse_options(pe_options *options, int count, char **arguments, char *message) {
    const char *command = count > 1 ? arguments[1] : "";
    *options = (pe_options){
        .train = strcmp(command, "train") == 0,
        .steps = -1,
        .threads = 1,
        .first_step = -1,
        .seed = -1,
        .total = -1,
        .schedule = PE_CONSTANT,
        .rate = NAN,
    };
    if (!options->train && strcmp(command, "predict") != 0) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "the command is train or predict");
    }
    for (int i = 2; i < count; i += 2) {
        if (i + 1 == count || !parse_option(options, arguments[i], arguments[i + 1])) {
            return pe_fail(message, PE_ERROR_ARGUMENT,
                           "option %s is unknown or its value is not valid", arguments[i]);
        }
    }
    return check_complete(options, message);
}
