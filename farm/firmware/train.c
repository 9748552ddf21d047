/* Trains the program on batches of the file "data" and writes what came of it to "out".
 *
 *     data: u32 steps, f32 rate, u32 judged, then the inputs of entry "predict" for each judged
 *           batch, for each step the inputs of "train" except the controls, and the judged batches
 *           again
 *     out:  outputs of "predict" for each judged batch; for each step f32 loss, u32 0,
 *           u64 instructions; predictions once more; then all params, in order
 */
#include "clock.h"
#include "firmware.h"
#include "mark.h"
#include "semihost.h"

enum { MOST_TENSORS = 16 };

typedef struct header {
    uint32_t steps;
    float rate;
    uint32_t judged;
} header;

typedef struct record {
    float loss;
    uint32_t zero;
    uint64_t instructions;
} record;

static pe_session session;

static void require(bool fact, const char *text) {
    if (!fact) {
        semihost_print(text);
        semihost_print("\n");
        semihost_exit(1);
    }
}

static bool is_loss(const char *name) {
    return name[0] == 'l' && name[1] == 'o' && name[2] == 's' && name[3] == 's' && name[4] == 0;
}

static void read_inputs(const pe_entry *entry, int data) {
    for (int i = 0; i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        require(pe_is_control(input) ||
                    semihost_read(data, pe_tensor_data(&session, input), pe_tensor_bytes(input)),
                "data ends too early");
    }
}

static void judge(uint32_t batches, int data, int out) {
    const pe_entry *entry = pe_find_entry(firmware_program, "predict");
    require(!batches || entry, "no entry predict");
    for (uint32_t batch = 0; batch < batches; batch++) {
        read_inputs(entry, data);
        require(pe_predict(&session, NULL, NULL) == PE_OK, session.message);
        for (int i = 0; i < entry->output_count; i++) {
            const pe_tensor *output = &entry->outputs[i];
            const void *values = pe_tensor_data(&session, output);
            require(semihost_write(out, values, pe_tensor_bytes(output)), "out cannot be written");
        }
    }
}

static record make_step(const pe_entry *entry, int data, const pe_controls *controls) {
    record result = {0};
    void *outputs[MOST_TENSORS] = {NULL};
    read_inputs(entry, data);
    for (int i = 0; i < entry->output_count; i++) {
        outputs[i] = is_loss(entry->outputs[i].name) ? &result.loss : NULL;
    }
    const uint64_t begin = clock_ticks();
    mark_begin();
    const pe_status status = pe_train_step(&session, NULL, controls, outputs);
    mark_end();
    require(status == PE_OK, session.message);
    result.instructions = clock_instructions(clock_ticks() - begin);
    return result;
}

void train(void) {
    header head;
    const int data = semihost_open("data", false), out = semihost_open("out", true);
    require(data >= 0 && out >= 0, "no file data, or none may be written");
    require(semihost_read(data, &head, sizeof head), "data has no header");
    require(pe_init(&session, firmware_program, firmware_params, firmware_arena, 1) == PE_OK,
            session.message);
    const pe_entry *entry = pe_find_entry(firmware_program, "train");
    require(entry && entry->output_count <= MOST_TENSORS, "no entry train, or too many outputs");
    judge(head.judged, data, out);
    for (uint32_t step = 1; step <= head.steps; step++) {
        const pe_controls controls = {head.rate, (int32_t)step, 0};
        const record made = make_step(entry, data, &controls);
        require(semihost_write(out, &made, sizeof made), "out cannot be written");
    }
    judge(head.judged, data, out);
    for (int i = 0; i < firmware_program->param_count; i++) {
        const pe_tensor *param = &firmware_program->params[i];
        const void *values = pe_param_data(&session, param);
        require(semihost_write(out, values, pe_tensor_bytes(param)), "out cannot be written");
    }
    semihost_exit(0);
}
