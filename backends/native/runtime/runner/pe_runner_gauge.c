#include "pe_runner_gauge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_BYTES = 32 };

/* Reads the start of a file; false, with errno, on failure. Does not wait for a FIFO. */
static bool read_text(const char *path, char text[NUMBER_BYTES]) {
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    const ssize_t count = read(file, text, NUMBER_BYTES - 1);
    const int error = errno;
    close(file);
    text[count > 0 ? count : 0] = '\0';
    errno = error;
    return count >= 0;
}

pe_status pe_gauge_read(const pe_gauge *gauge, double *value, char *message) {
    char text[NUMBER_BYTES], *end;
    const pe_quantity *q = gauge->quantity;
    if (!read_text(gauge->path, text)) {
        return pe_fail(message, PE_ERROR_SYSTEM,
                       "cannot read the %s from %s: %s; name a file that has it by --%s", q->kind,
                       gauge->path, strerror(errno), q->option);
    }
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    const bool whole = errno == 0 && end != text && (*end == '\n' || *end == '\0');
    if (!whole || number < q->least * q->scale || number > q->most * q->scale) {
        text[strcspn(text, "\n")] = '\0';
        return pe_fail(message, PE_ERROR_FORMAT,
                       "%s has \"%s\", and a %s is a whole number from %lld to %lld; name a file "
                       "that has it by --%s",
                       gauge->path, text, q->kind, (long long)(q->least * q->scale),
                       (long long)(q->most * q->scale), q->option);
    }
    *value = (double)number / (double)q->scale;
    return PE_OK;
}

/* Sets `last` to the next item by name; false if there is none. */
static bool find_next(const pe_quantity *q, char last[NAME_MAX + 1]) {
    char next[NAME_MAX + 1] = "";
    DIR *items = opendir(q->folder);
    for (const struct dirent *one = items ? readdir(items) : NULL; one; one = readdir(items)) {
        const char *name = one->d_name;
        const bool is_one = *name != '.' && strncmp(name, q->item, strlen(q->item)) == 0;
        if (is_one && strcmp(name, last) > 0 && (!*next || strcmp(name, next) < 0)) {
            snprintf(next, sizeof next, "%s", name);
        }
    }
    if (items) {
        closedir(items);
    }
    memcpy(last, next, sizeof next);
    return *next != '\0';
}

pe_status pe_gauge_open(pe_gauge *gauge, const char *given, double *value, char *message) {
    const pe_quantity *q = gauge->quantity;
    if (given) {
        const int length = snprintf(gauge->path, sizeof gauge->path, "%s", given);
        return length < (int)sizeof gauge->path ? pe_gauge_read(gauge, value, message)
                                                : pe_fail(message, PE_ERROR_SYSTEM, "--%s: %s",
                                                          q->option, strerror(ENAMETOOLONG));
    }
    char item[NAME_MAX + 1] = "";
    while (find_next(q, item)) {
        snprintf(gauge->path, sizeof gauge->path, "%s/%s/%s", q->folder, item, q->name);
        if (pe_gauge_read(gauge, value, message) == PE_OK) {
            return PE_OK;
        }
    }
    return pe_fail(message, PE_ERROR_SYSTEM,
                   "no %s can be read below %s; name a file that has it by --%s", q->kind,
                   q->folder, q->option);
}
