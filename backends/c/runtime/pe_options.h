/* The runner's arguments. */
#ifndef PE_OPTIONS_H
#define PE_OPTIONS_H

#include "pe.h"
#include "pe_schedule.h"

/* What the command says; -1 stands for a number that it does not give. */
typedef struct pe_options {
    bool train;
    const char *weights, *data, *save, *output;
    int64_t steps, threads, repeat, first_step, seed, warmup, total;
    pe_schedule_kind schedule;
    double rate;
} pe_options;

/* Reads arguments[1] and what follows; an error is one of usage. */
pe_status pe_parse_options(pe_options *options, int count, char **arguments, char *message);

#endif
