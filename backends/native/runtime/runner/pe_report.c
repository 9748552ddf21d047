#include "pe_report.h"

#include <math.h>
#include <stdio.h>

#include "pe_host.h"

void pe_print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if ((unsigned char)*text < ' ') {
            printf("\\u%04x", (unsigned)*text);
        } else {
            if (*text == '"' || *text == '\\') {
                putchar('\\');
            }
            putchar(*text);
        }
    }
    putchar('"');
}

static void print_step(const pe_event *event) {
    char loss[32] = "null";
    if (isfinite(event->loss)) {
        snprintf(loss, sizeof loss, "%.9g", (double)event->loss);
    }
    printf("{\"step\": %lld, \"loss\": %s, \"lr\": %.9g, \"ns\": %lld}\n", (long long)event->step,
           loss, (double)event->rate, (long long)event->ns);
}

void pe_print_event(const pe_event *event) {
    static const char *const kinds[] = {[PE_SAVED] = "saved",
                                        [PE_RESUMED] = "resumed",
                                        [PE_ROLLED_BACK] = "rolled_back",
                                        [PE_UNSOUND] = "unsound"};
    if (event->kind == PE_READY) {
        return;
    }
    if (event->kind == PE_STEPPED) {
        print_step(event);
    } else {
        printf("{\"%s\": true", kinds[event->kind]);
        if (event->kind != PE_UNSOUND) {
            printf(", \"after\": %lld", (long long)event->step);
        }
        if (event->path) {
            printf(", \"path\": ");
            pe_print_text(event->path);
        }
        if (event->message) {
            printf(", \"why\": ");
            pe_print_text(event->message);
        }
        puts("}");
    }
    fflush(stdout);
}

void pe_print_bad_row(int64_t row, const char *why) {
    printf("{\"bad_row\": %lld, \"why\": ", (long long)row);
    pe_print_text(why);
    puts("}");
}

void pe_print_gauge(const pe_gauge *gauge, double value) {
    printf("{\"watching\": ");
    pe_print_text(gauge->path);
    printf(", \"%s\": %.9g}\n", gauge->quantity->kind, value);
    fflush(stdout);
}

void pe_print_pause(const pe_gauge *gauge, double value, int64_t after) {
    printf("{\"paused\": true, \"after\": %lld, \"path\": ", (long long)after);
    pe_print_text(gauge->path);
    printf(", \"why\": \"%.9g %s is %s %lld; it continues at %lld\"}\n", value,
           gauge->quantity->unit, gauge->above ? "above" : "below", (long long)gauge->pause,
           (long long)gauge->go_on);
    fflush(stdout);
}

void pe_print_end_of_pause(int64_t after, int64_t ns) {
    printf("{\"went_on\": true, \"after\": %lld, \"ns\": %lld}\n", (long long)after, (long long)ns);
    fflush(stdout);
}

void pe_print_summary(const pe_session *session, int64_t rows, int64_t init_ns) {
    printf("{\"rows\": %lld, \"threads\": %d, \"params_bytes\": %zu, \"frozen_bytes\": %zu, "
           "\"arena_bytes\": %zu, \"peak_rss_bytes\": %lld, \"init_ns\": %lld}\n",
           (long long)rows, session->threads, session->program->params_bytes,
           session->program->frozen_bytes, session->program->arena_bytes, pe_peak_rss_bytes(),
           (long long)init_ns);
}

static void print_tensor(const pe_tensor *tensor) {
    printf("{\"name\": ");
    pe_print_text(tensor->name);
    printf(", \"dtype\": \"%s\", \"shape\": [", pe_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++) {
        printf("%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    }
    printf("]");
}

static bool is_data(const pe_tensor *input) { return !pe_is_control(input); }

static bool is_any(const pe_tensor *output) { return output != NULL; }

static void print_tensors(const char *key, const pe_tensor *tensors, int count,
                          bool (*takes)(const pe_tensor *tensor)) {
    bool first = true;
    printf(", \"%s\": [", key);
    for (int i = 0; i < count; i++) {
        if (takes(&tensors[i])) {
            printf("%s", first ? "" : ", ");
            print_tensor(&tensors[i]);
            printf("}");
            first = false;
        }
    }
    printf("]");
}

static void print_entry(const pe_entry *entry) {
    printf("{\"entry\": ");
    pe_print_text(entry->name);
    print_tensors("inputs", entry->inputs, entry->input_count, is_data);
    print_tensors("controls", entry->inputs, entry->input_count, pe_is_control);
    print_tensors("outputs", entry->outputs, entry->output_count, is_any);
    puts("}");
}

static void print_range(const pe_size_range *sizes) {
    printf("{\"range\": ");
    pe_print_text(sizes->name);
    printf(", \"low\": %lld, \"high\": %lld, \"buckets\": [", (long long)sizes->low,
           (long long)sizes->high);
    for (int i = 0; i < sizes->bucket_count; i++) {
        printf("%s%lld", i ? ", " : "", (long long)sizes->buckets[i]);
    }
    printf("], \"inputs\": {");
    for (int i = 0; i < sizes->axis_count; i++) {
        printf("%s", i ? ", " : "");
        pe_print_text(sizes->axes[i].input);
        printf(": %d", sizes->axes[i].axis);
    }
    puts("}}");
}

static const char *kind_of(const pe_tensor *param) {
    return param->flags & PE_CONSTANT  ? "constant"
           : param->flags & PE_STATE   ? "state"
           : param->flags & PE_WRITTEN ? "trained"
                                       : "frozen";
}

void pe_print_classes(const pe_pictures *pictures) {
    for (int64_t i = 0; pictures && i < pictures->list.class_count; i++) {
        printf("{\"class\": %lld, \"name\": ", (long long)i);
        pe_print_text(pictures->list.classes[i].name);
        printf(", \"pictures\": %lld}\n", (long long)pictures->list.classes[i].pictures);
    }
}

/* The pictures that an entry takes, if any. */
static void print_pictures(const pe_entry *entry) {
    pe_picture_shape shape;
    const int input = pe_find_pictures(entry, &shape);
    if (input >= 0) {
        printf("{\"pictures\": ");
        pe_print_text(entry->inputs[input].name);
        printf(", \"entry\": ");
        pe_print_text(entry->name);
        printf(", \"height\": %lld, \"width\": %lld, \"channels\": %lld, \"formats\": [%s]}\n",
               (long long)shape.height, (long long)shape.width, (long long)shape.channels,
               pe_picture_decodes() ? "\"jpeg\", \"png\"" : "");
    }
}

void pe_print_info(const pe_program *program, bool params) {
    size_t trained = 0;
    for (int i = 0; i < program->param_count; i++) {
        const pe_tensor *param = &program->params[i];
        trained += param->flags & PE_WRITTEN ? pe_tensor_bytes(param) : 0;
    }
    printf("{\"program\": ");
    pe_print_text(program->name);
    printf(", \"runtime\": \"%s\", \"specification\": ", PE_VERSION);
    pe_print_text(program->specification ? program->specification : "");
    printf(", \"max_threads\": %d, \"micro_batches\": %d, \"params\": %d, \"params_bytes\": %zu, "
           "\"frozen_bytes\": %zu, \"trained_bytes\": %zu, \"arena_bytes\": %zu}\n",
           program->max_threads, program->micro_batches, program->param_count,
           program->params_bytes, program->frozen_bytes, trained, program->arena_bytes);
    if (program->sizes) {
        print_range(program->sizes);
    }
    for (int i = 0; i < program->entry_count; i++) {
        print_entry(&program->entries[i]);
        print_pictures(&program->entries[i]);
    }
    for (int i = 0; params && i < program->param_count; i++) {
        printf("{\"param\": ");
        print_tensor(&program->params[i]);
        printf("}, \"kind\": \"%s\"}\n", kind_of(&program->params[i]));
    }
}

static void print_lines(const pe_text_lines *lines, const char *path, const char *fact) {
    if (!lines->count) {
        return;
    }
    fprintf(stderr, "warning: %s: %lld examples %s: line ", path, (long long)lines->count, fact);
    const int64_t most = sizeof lines->first / sizeof *lines->first;
    for (int64_t i = 0; i < lines->count && i < most; i++) {
        fprintf(stderr, "%s%lld", i ? ", " : "", (long long)lines->first[i]);
    }
    if (lines->count > most) {
        fprintf(stderr, " and %lld more", (long long)(lines->count - most));
    }
    fputs("\n", stderr);
}

void pe_print_texts(const pe_texts *texts, const char *path) {
    print_lines(&texts->empty, path, "hold nothing to learn, and are left out");
    print_lines(&texts->too_long, path, "are too long for a row, and are left out");
    print_lines(&texts->cut, path, "are too long for a row, and were cut");
}
