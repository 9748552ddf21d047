#include "pe_runner.h"

#include <string.h>
#include <time.h>

#include "pe_adapter.h"
#include "pe_memory.h"
#include "pe_report.h"
#include "pe_system.h"

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int fail(pe_status status, const char *message) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", message);
    return status == PE_ERROR_ARGUMENT   ? PE_EXIT_USAGE
           : status == PE_ERROR_DIVERGED ? PE_EXIT_DIVERGED
                                         : PE_EXIT_FAILURE;
}

/* The entry of a command that reads data. */
static const char *entry_name(pe_command command) {
    return command == PE_COMMAND_TRAIN || command == PE_COMMAND_FINETUNE ? "train"
           : command == PE_COMMAND_EVALUATE                              ? "evaluate"
                                                                         : "predict";
}

static pe_status load(pe_session *session, const pe_options *o) {
    const pe_status status = pe_load_weights(session, o->weights);
    return status == PE_OK && o->checkpoint ? pe_load_weights(session, o->checkpoint) : status;
}

/* How texts become rows. */
static pe_row_form form_of(const pe_options *o, const pe_tokenizer *tokenizer) {
    return (pe_row_form){.tokenizer = o->tokenizer ? tokenizer : NULL,
                         .truncate = o->truncate != 0,
                         .apart = o->apart != 0};
}

/* Runs a command that reads data. */
static pe_status run_on_data(pe_session *session, const pe_options *o, int64_t begin,
                             bool *stopped) {
    pe_data data = {.file_count = 0};
    pe_tokenizer tokenizer = {0};
    pe_mapping table = {0};
    pe_status status = load(session, o);
    if (status == PE_OK && o->tokenizer) {
        status = pe_map_tokenizer(&tokenizer, &table, o->tokenizer, session->message);
    }
    if (status == PE_OK) {
        const pe_row_form form = form_of(o, &tokenizer);
        status = pe_data_open(&data, o->data, session->program, entry_name(o->command), o->batch,
                              &form, session->message);
    }
    if (status == PE_OK) {
        status = pe_pictures_settle(&data, o->mean, o->spread, o->megapixels, session->message);
    }
    if (status == PE_OK) {
        pe_print_classes(data.pictures);
        pe_print_texts(&data.texts, o->data);
        data.lenient = o->skip_bad >= 0;
    }
    const int64_t init_ns = now_ns() - begin;
    if (status == PE_OK) {
        const bool trains = strcmp(data.name, "train") == 0;
        status = trains                              ? pe_run_training(session, &data, o, stopped)
                 : o->command == PE_COMMAND_EVALUATE ? pe_run_evaluation(session, &data)
                                                     : pe_run_prediction(session, &data, o);
    }
    if (status == PE_OK) {
        if (session->program->report) {
            session->program->report();
        }
        pe_print_summary(session, data.rows, init_ns);
    }
    pe_data_close(&data);
    pe_unmap(&table);
    return status;
}

static pe_status export(pe_session *session, const pe_options *o) {
    pe_status status = load(session, o);
    if (status == PE_OK) {
        status = pe_export_weights(session, o->output, o->all);
    }
    if (status == PE_OK) {
        printf("{\"exported\": true, \"path\": ");
        pe_print_text(o->output);
        puts("}");
    }
    return status;
}

static pe_status chat(pe_session *session, const pe_options *o) {
    pe_status status = load(session, o);
    if (status == PE_OK && o->adapter) {
        status = pe_load_adapter(session, o->adapter);
    }
    return status == PE_OK ? pe_run_chat(session, o) : status;
}

static int run(const pe_program *program, const pe_options *o) {
    static char message[PE_MESSAGE_BYTES];
    const int64_t begin = now_ns();
    bool stopped = false;
    pe_session *session = pe_open(program, (int)o->threads, message);
    if (!session) {
        return fail(PE_ERROR_SYSTEM, message);
    }
    const pe_status status = o->command == PE_COMMAND_EXPORT ? export(session, o)
                             : o->command == PE_COMMAND_CHAT
                                 ? chat(session, o)
                                 : run_on_data(session, o, begin, &stopped);
    const int result = status != PE_OK ? fail(status, session->message)
                       : stopped       ? PE_EXIT_STOPPED
                                       : PE_EXIT_SUCCESS;
    pe_shut(session);
    return result;
}

int pe_runner(const pe_program *program, int count, char **arguments) {
    static char line[4096]; /* stdio allocates a buffer of its own otherwise */
    static char message[PE_MESSAGE_BYTES];
    setvbuf(stdout, line, _IOLBF, sizeof line);
    pe_prepare_process();
    const char *name = count > 0 ? arguments[0] : "pockengine-run";
    pe_options options;
    if (pe_parse_options(&options, count, arguments, message) != PE_OK) {
        fprintf(
            stderr,
            "error: %s\nusage: %s train|finetune|evaluate|predict|export|info|chat [OPTION]...; "
            "with --help a command lists its options\n",
            message, name);
        return PE_EXIT_USAGE;
    }
    int result = PE_EXIT_SUCCESS;
    if (options.help) {
        pe_print_help(stdout, name, options.command);
    } else if (options.command == PE_COMMAND_INFO) {
        pe_print_info(program, options.params);
    } else {
        result = run(program, &options);
    }
    const bool done = result == PE_EXIT_SUCCESS || result == PE_EXIT_STOPPED;
    if (done && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "error: cannot write to standard output; all else is done\n");
        return PE_EXIT_UNREPORTED;
    }
    return result;
}
