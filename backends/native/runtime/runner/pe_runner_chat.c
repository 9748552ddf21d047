/* The command "chat". */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pe_adapter.h"
#include "pe_chat.h"
#include "pe_memory.h"
#include "pe_runner.h"

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool print_text(void *context, const char *text, size_t bytes) {
    (void)context;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

pe_status pe_map_tokenizer(pe_tokenizer *tokenizer, pe_mapping *mapping, const char *path,
                           char *message) {
    struct stat facts;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const unsigned char *table = NULL;
    if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size > 0) {
        table = pe_map_file(mapping, file, 0, (size_t)facts.st_size);
    }
    if (file >= 0) {
        close(file);
    }
    if (!table) {
        return pe_fail(message, PE_ERROR_SYSTEM, "cannot map the tokenizer's table %s", path);
    }
    return pe_tokenizer_init(tokenizer, table, (size_t)facts.st_size, message);
}

/* Whether a line is a command, which changes the adapter; a file that does not fit is reported. */
static bool change_adapter(pe_chat *chat, char *line) {
    static const char command[] = "/adapter ";
    if (strncmp(line, command, sizeof command - 1) != 0) {
        return false;
    }
    const char *path = line + sizeof command - 1;
    const pe_status status = pe_load_adapter(chat->session, path);
    if (status == PE_OK) {
        chat->read_count = 0; /* keys and values are those of the adapter before */
    }
    fprintf(stderr, status == PE_OK ? "adapter: %s\n" : "error: %s\n",
            status == PE_OK ? path : chat->session->message);
    return true;
}

/* Answers each line, and prints the time to standard error. */
static pe_status answer_lines(pe_chat *chat, pe_generation *how) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    pe_status status = PE_OK;
    while (status == PE_OK && (length = getline(&line, &room, stdin)) >= 0) {
        int64_t made;
        const int64_t begin = now_ns();
        size_t bytes = (size_t)length;
        bytes -= bytes && line[bytes - 1] == '\n';
        bytes -= bytes && line[bytes - 1] == '\r';
        line[bytes] = '\0';
        if (change_adapter(chat, line)) {
            continue;
        }
        status = pe_chat_answer(chat, line, bytes, how, &made);
        if (status == PE_OK) {
            puts("");
            fprintf(stderr, "{\"tokens\": %lld, \"ns\": %lld}\n", (long long)made,
                    (long long)(now_ns() - begin));
        }
        how->sampling.seed++;
    }
    free(line);
    return status;
}

pe_status pe_run_chat(pe_session *session, const pe_options *o) {
    pe_tokenizer tokenizer;
    pe_mapping mapping = {0};
    pe_chat chat = {0};
    pe_status status = pe_map_tokenizer(&tokenizer, &mapping, o->tokenizer, session->message);
    if (status == PE_OK) {
        status = pe_chat_open(&chat, session, &tokenizer);
    }
    if (status == PE_OK) {
        pe_generation how = {
            .sampling = {isfinite(o->temperature) ? (float)o->temperature : 0.0f,
                         isfinite(o->top_p) ? (float)o->top_p : 1.0f,
                         o->seed < 0 ? 0u : (uint32_t)o->seed},
            .limit = o->limit < 0 ? INT32_MAX : o->limit,
        };
        chat.stops = o->stops;
        chat.stop_count = o->stop_count;
        chat.write = print_text;
        status = answer_lines(&chat, &how);
    }
    pe_chat_close(&chat);
    pe_unmap(&mapping);
    return status;
}
