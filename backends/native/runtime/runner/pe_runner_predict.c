/* The commands "predict" and "evaluate". */
#include <math.h>
#include <string.h>
#include <time.h>

#include "pe_data_size.h"
#include "pe_mark.h"
#include "pe_report.h"
#include "pe_runner.h"

#define PE_OUTPUTS 32

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs the data's entry on one batch, and prints its time. */
static pe_status run_batch(pe_session *session, pe_data *data, int64_t batch) {
    pe_status status = pe_data_read(data, session, 0, batch, session->message);
    if (status != PE_OK) {
        return status;
    }
    const int64_t begin = now_ns();
    PE_MARK_BEGIN();
    status = pe_run(session, data->entry, NULL, NULL);
    PE_MARK_END();
    if (status == PE_OK) {
        printf("{\"batch\": %lld, \"ns\": %lld}\n", (long long)batch + 1,
               (long long)(now_ns() - begin));
    }
    return status;
}

/* Writes the outputs of one batch, without those of padding rows. */
static pe_status write_batch(pe_session *session, const pe_data *data, const pe_st_content *content,
                             pe_st_writer *writer, int64_t batch) {
    const int64_t left = content->rows - batch * data->batch;
    pe_status status = PE_OK;
    uint64_t start = 0;
    for (int i = 0; status == PE_OK && i < content->tensor_count; i++) {
        const uint64_t bytes = pe_tensor_bytes(&content->tensors[i]);
        uint64_t written = bytes, each = bytes, all = (uint64_t)content->batches * bytes;
        if (pe_st_has_rows(content, i)) {
            const uint64_t row = bytes / (uint64_t)content->batch;
            each = (uint64_t)data->batch * row;
            written = left < data->batch ? (uint64_t)left * row : each;
            all = (uint64_t)content->rows * row;
        }
        const int axis = pe_varying_axis(data, i);
        if (axis >= 0 && !pe_batch_varies(data->program)) {
            pe_cut_output(data, session, i, axis);
        }
        status = pe_st_write_at(writer, start + (uint64_t)batch * each,
                                pe_tensor_data(session, &data->entry->outputs[i]), (size_t)written,
                                session->message);
        start += all;
    }
    return status;
}

/* The outputs in the file's form: a size that varies within rows is that of the data. */
static pe_status shape_outputs(pe_session *session, const pe_data *data, pe_tensor *outputs) {
    const pe_entry *entry = data->entry;
    if (entry->output_count > PE_OUTPUTS) {
        return pe_fail(session->message, PE_ERROR_MISMATCH, "entry %s has more than %d outputs",
                       data->name, PE_OUTPUTS);
    }
    for (int i = 0; i < entry->output_count; i++) {
        const int axis = pe_varying_axis(data, i);
        outputs[i] = entry->outputs[i];
        if (axis > 0 && pe_batch_varies(data->program)) {
            return pe_fail(session->message, PE_ERROR_MISMATCH,
                           "output %s has the batch as dimension %d, so that batches cannot be "
                           "joined by rows: run them one by one, from C or Python",
                           outputs[i].name, axis);
        }
        if (axis >= 0 && !pe_batch_varies(data->program)) {
            outputs[i].shape[axis] = data->size;
        }
    }
    return PE_OK;
}

static pe_status write_batches(pe_session *session, pe_data *data, const pe_st_content *content,
                               pe_st_writer *writer) {
    for (int64_t batch = 0; batch < content->batches; batch++) {
        pe_status status = run_batch(session, data, batch);
        if (status != PE_OK) {
            pe_st_abandon(writer);
            return status;
        }
        status = write_batch(session, data, content, writer, batch);
        if (status != PE_OK) {
            return status;
        }
    }
    return pe_st_commit(writer, session->message);
}

pe_status pe_run_prediction(pe_session *session, pe_data *data, const pe_options *o) {
    pe_tensor outputs[PE_OUTPUTS];
    const pe_size_range *range = pe_batch_varies(data->program) ? data->program->sizes : NULL;
    const pe_st_content content = {
        .tensors = outputs,
        .tensor_count = data->entry->output_count,
        .batches = (data->rows + data->batch - 1) / data->batch,
        .batch = data->whole ? 0
                 : range     ? range->high
                             : data->batch,
        .rows = data->rows,
    };
    pe_st_writer writer;
    pe_status status = shape_outputs(session, data, outputs);
    if (status == PE_OK) {
        status = pe_st_create(&writer, o->output, &content, session->message);
    }
    if (status == PE_OK) {
        status = write_batches(session, data, &content, &writer);
    }
    if (status == PE_OK) {
        printf("{\"predicted\": %lld, \"path\": ", (long long)data->rows);
        pe_print_text(o->output);
        puts("}");
    }
    return status;
}

static bool is_number(const pe_tensor *output) {
    return output->dtype == PE_F32 && output->rank == 0;
}

/* What the mean of the last batch is over: its rows, or of texts their learned tokens. */
static int64_t weight_of(const pe_data *data, int64_t batch) {
    const pe_texts *texts = &data->texts;
    if (!texts->labels) {
        return data->count;
    }
    int64_t sum = 0;
    const int64_t *labels = texts->labels + batch * data->batch * texts->length;
    for (int64_t i = 0; i < data->count * texts->length; i++) {
        sum += i % texts->length && labels[i] != PE_IGNORED; /* the first token has no prediction */
    }
    return sum;
}

static void print_means(const pe_data *data, const double *sums, int64_t batches, int64_t rows,
                        int64_t weight) {
    const pe_entry *entry = data->entry;
    printf("{\"evaluated\": %lld, \"rows\": %lld, \"of\": %lld", (long long)batches,
           (long long)rows, (long long)data->rows);
    for (int i = 0; i < entry->output_count && i < PE_OUTPUTS; i++) {
        if (is_number(&entry->outputs[i])) {
            const double mean = sums[i] / (double)weight;
            printf(", ");
            pe_print_text(entry->outputs[i].name);
            printf(isfinite(mean) ? ": %.9g" : ": null", mean);
        }
    }
    puts("}");
}

/* Adds the scalar outputs of a batch. */
static void add_outputs(const pe_session *session, const pe_data *data, int64_t weight,
                        double *sums) {
    for (int i = 0; i < data->entry->output_count && i < PE_OUTPUTS; i++) {
        if (is_number(&data->entry->outputs[i])) {
            float number;
            memcpy(&number, pe_tensor_data(session, &data->entry->outputs[i]), sizeof number);
            sums[i] += (double)number * (double)weight;
        }
    }
}

pe_status pe_run_evaluation(pe_session *session, pe_data *data) {
    const int64_t batches = pe_data_batches(data);
    double sums[PE_OUTPUTS] = {0};
    int64_t rows = 0, weights = 0;
    if (data->rows > 0 && batches == 0) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s has %lld rows, and a mean over a batch of entry %s takes %lld: give "
                       "more rows, or compile for a smaller batch",
                       data->path, (long long)data->rows, data->name, (long long)data->batch);
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        const pe_status status = run_batch(session, data, batch);
        if (status != PE_OK) {
            return status;
        }
        const int64_t weight = weight_of(data, batch);
        add_outputs(session, data, weight, sums);
        rows += data->count;
        weights += weight;
    }
    print_means(data, sums, batches, rows, weights);
    return PE_OK;
}
