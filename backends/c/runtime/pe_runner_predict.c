/* The commands "predict" and "evaluate". */
#include <math.h>
#include <string.h>
#include <time.h>

#include "pe_mark.h"
#include "pe_report.h"
#include "pe_runner.h"

#define PE_MEANS 32

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs the data's entry on one batch, and prints its time. */
static pe_status run_batch(pe_session *session, const pe_data *data, int64_t batch) {
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

/* Writes the outputs of one batch; those of rows that only fill up a short one are left out. */
static pe_status write_batch(pe_session *session, const pe_st_content *content,
                             pe_st_writer *writer, int64_t batch) {
    const int64_t left = content->rows - batch * content->batch;
    pe_status status = PE_OK;
    uint64_t start = 0;
    for (int i = 0; status == PE_OK && i < content->tensor_count; i++) {
        const pe_tensor *output = &content->tensors[i];
        const uint64_t bytes = pe_tensor_bytes(output);
        uint64_t written = bytes, all = (uint64_t)content->batches * bytes;
        if (pe_st_has_rows(content, i)) {
            const uint64_t row = bytes / (uint64_t)content->batch;
            written = left < content->batch ? (uint64_t)left * row : bytes;
            all = (uint64_t)content->rows * row;
        }
        status = pe_st_write_at(writer, start + (uint64_t)batch * bytes,
                                pe_tensor_data(session, output), written, session->message);
        start += all;
    }
    return status;
}

pe_status pe_run_prediction(pe_session *session, const pe_data *data, const pe_options *o) {
    const pe_entry *entry = data->entry;
    const int64_t batches = (data->rows + data->batch - 1) / data->batch;
    const pe_st_content content = {
        .tensors = entry->outputs,
        .tensor_count = entry->output_count,
        .batches = batches,
        .batch = data->whole ? 0 : data->batch,
        .rows = data->rows,
    };
    pe_st_writer writer;
    pe_status status = pe_st_create(&writer, o->output, &content, session->message);
    if (status != PE_OK) {
        return status;
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        status = run_batch(session, data, batch);
        if (status != PE_OK) {
            pe_st_abandon(&writer);
            return status;
        }
        status = write_batch(session, &content, &writer, batch);
        if (status != PE_OK) {
            return status;
        }
    }
    status = pe_st_commit(&writer, session->message);
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

static void print_means(const pe_data *data, const double *sums, int64_t batches) {
    const pe_entry *entry = data->entry;
    printf("{\"evaluated\": %lld, \"rows\": %lld, \"of\": %lld", (long long)batches,
           (long long)(batches * data->batch), (long long)data->rows);
    for (int i = 0; i < entry->output_count && i < PE_MEANS; i++) {
        if (is_number(&entry->outputs[i])) {
            const double mean = sums[i] / (double)batches;
            printf(", ");
            pe_print_text(entry->outputs[i].name);
            printf(isfinite(mean) ? ": %.9g" : ": null", mean);
        }
    }
    puts("}");
}

pe_status pe_run_evaluation(pe_session *session, const pe_data *data) {
    const pe_entry *entry = data->entry;
    const int64_t batches = pe_data_batches(data);
    double sums[PE_MEANS] = {0};
    if (data->rows > 0 && batches == 0) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "%s has %lld rows, and a mean over a batch of entry %s takes %lld: give "
                       "more rows, or compile for a smaller batch",
                       data->path, (long long)data->rows, entry->name, (long long)data->batch);
    }
    for (int64_t batch = 0; batch < batches; batch++) {
        const pe_status status = run_batch(session, data, batch);
        if (status != PE_OK) {
            return status;
        }
        for (int i = 0; i < entry->output_count && i < PE_MEANS; i++) {
            if (is_number(&entry->outputs[i])) {
                float number;
                memcpy(&number, pe_tensor_data(session, &entry->outputs[i]), sizeof number);
                sums[i] += (double)number;
            }
        }
    }
    print_means(data, sums, batches);
    return PE_OK;
}
