/* Signals and the working folder; WASI has no signals, and starts in the root folder. */
#ifndef PE_SYSTEM_H
#define PE_SYSTEM_H

#ifdef __wasi__

#include <stdlib.h>
#include <unistd.h>

typedef int sig_atomic_t;

static inline void pe_catch_signals(void (*handler)(int)) { (void)handler; }

/* Relative paths start at $PWD if the host sets it. */
static inline void pe_prepare_process(void) {
    const char *folder = getenv("PWD");
    if (folder) {
        (void)!chdir(folder);
    }
}

#else

#include <signal.h>
#include <stddef.h>

/* The first signal calls the handler, the second one ends the program at once. */
static inline void pe_catch_signals(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static inline void pe_prepare_process(void) {
    signal(SIGPIPE, SIG_IGN); /* the training continues if the reader of the report exits */
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error like a full disk */
}

#endif

#endif
