/* The runner: a command line over one program. Its options, lines and exit codes are described in
 * docs/runner.md.
 */
#ifndef PE_RUNNER_H
#define PE_RUNNER_H

#include "pe_data.h"
#include "pe_host.h"
#include "pe_options.h"

/* Exit codes. */
enum {
    PE_EXIT_SUCCESS = 0,
    PE_EXIT_FAILURE = 1, /* standard error explains it */
    PE_EXIT_USAGE = 2,
    PE_EXIT_DIVERGED = 3,   /* the last valid checkpoint is kept */
    PE_EXIT_UNREPORTED = 4, /* all is done and saved, but standard output was closed or full */
    PE_EXIT_STOPPED = 5,    /* by SIGTERM or SIGINT, after the current step; saved */
};

/* Runs a command with main's arguments; returns the exit code. */
int pe_runner(const pe_program *program, int count, char **arguments);

/* Trains on batches of the data; *stopped is whether a signal ended it. */
pe_status pe_run_training(pe_session *session, pe_data *data, const pe_options *options,
                          bool *stopped);

/* Maps a file with the table of a tokenizer. */
pe_status pe_map_tokenizer(pe_tokenizer *tokenizer, pe_mapping *mapping, const char *path,
                           char *message);

/* Writes the outputs of all rows to a safetensors file. */
pe_status pe_run_prediction(pe_session *session, pe_data *data, const pe_options *options);

/* Answers the lines of standard input, each as the next question of one chat. */
pe_status pe_run_chat(pe_session *session, const pe_options *options);

/* Prints the means of scalar outputs over all whole batches. */
pe_status pe_run_evaluation(pe_session *session, pe_data *data);

#endif
