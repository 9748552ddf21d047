/* The runner's output: one JSON object per line, on standard output. */
#ifndef PE_REPORT_H
#define PE_REPORT_H

#include "pe_data_pictures.h"
#include "pe_runner_gauge.h"
#include "pe_train.h"

/* A text with its quotes. */
void pe_print_text(const char *text);

/* Prints an event of a training. */
void pe_print_event(const pe_event *event);

/* A bad row that was left out of a training. */
void pe_print_bad_row(int64_t row, const char *why);

/* A file that a training watches, and its initial value. */
void pe_print_gauge(const pe_gauge *gauge, double value);

/* A pause after the step `after`, because of the file's value; and its end. */
void pe_print_pause(const pe_gauge *gauge, double value, int64_t after);
void pe_print_end_of_pause(int64_t after, int64_t ns);

/* A line for each class of a folder of pictures; `pictures` may be NULL. */
void pe_print_classes(const pe_pictures *pictures);

/* The last line of a command: rows of its data, threads, memory, and startup time. */
void pe_print_summary(const pe_session *session, int64_t rows, int64_t init_ns);

/* The program: sizes, entries with their inputs and outputs, and with `params` every param. */
void pe_print_info(const pe_program *program, bool params);

/* Prints to standard error which lines of texts were left out or cut. */
void pe_print_texts(const pe_texts *texts, const char *path);

#endif
