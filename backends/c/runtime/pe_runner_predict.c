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
    pe_status status = pe_data_read(data, session, batch, session->message);
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

pe_status pe_run_prediction(pe_session *session, const pe_data *data, const pe_options *o) {
    const pe_entry *entry = data->entry;
    const pe_st_content content = {
        .tensors = entry->outputs, .tensor_count = entry->output_count, .lead = data->batches};
    pe_st_writer writer;
    pe_status status = pe_st_create(&writer, o->output, &content, session->message);
    if (status != PE_OK) {
        return status;
    }
    for (int64_t batch = 0; batch < data->batches; batch++) {
        status = run_batch(session, data, batch);
        if (status != PE_OK) {
            pe_st_abandon(&writer);
            return status;
        }
        uint64_t start = 0;
        for (int i = 0; i < entry->output_count; i++) {
            const size_t bytes = pe_tensor_bytes(&entry->outputs[i]);
            status = pe_st_write_at(&writer, start + (uint64_t)batch * bytes,
                                    pe_tensor_data(session, &entry->outputs[i]), bytes,
                                    session->message);
            if (status != PE_OK) {
                return status;
            }
            start += (uint64_t)data->batches * bytes;
        }
    }
    return pe_st_commit(&writer, session->message);
}

static bool is_number(const pe_tensor *output) {
    return output->dtype == PE_F32 && output->rank == 0;
}

static void print_means(const pe_entry *entry, const double *sums, int64_t batches) {
    printf("{\"evaluated\": %lld", (long long)batches);
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
    double sums[PE_MEANS] = {0};
    for (int64_t batch = 0; batch < data->batches; batch++) {
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
    print_means(entry, sums, data->batches);
    return PE_OK;
}
