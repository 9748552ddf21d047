/* A session on a GPU, for any driver: transfers to and from the device. */
#include "pe_gpu.h"

#include <string.h>
#include <time.h>

const pe_gpu_code *pe_gpu_code_of(const pe_session *session) {
    return session->program->accelerator->code;
}

int pe_gpu_step_count(const pe_session *session) {
    const pe_gpu_code *code = pe_gpu_code_of(session);
    return session->program->entry_count + (code->timed ? code->launch_count : 0);
}

pe_gpu_step pe_gpu_step_of(const pe_session *session, int number) {
    const int alone = number - session->program->entry_count;
    return alone < 0 ? pe_gpu_code_of(session)->steps[number] : (pe_gpu_step){alone, 1, false};
}

size_t pe_gpu_bytes(const pe_session *session, pe_gpu_memory memory) {
    const pe_program *program = session->program;
    switch (memory) {
    case PE_GPU_PARAMS:
        return program->params_bytes;
    case PE_GPU_FROZEN:
        return program->frozen_bytes;
    case PE_GPU_NUMBERS:
        return pe_gpu_code_of(session)->numbers_bytes;
    default:
        return program->arena_bytes;
    }
}

/* Waits for the queue, also after an error; returns the first error. */
static pe_status finish(pe_session *session, pe_status status, const pe_gpu_queue *queue) {
    char message[PE_MESSAGE_BYTES];
    if (status == PE_OK) {
        return queue->wait(session);
    }
    memcpy(message, session->message, sizeof message);
    queue->wait(session);
    memcpy(session->message, message, sizeof message);
    return status;
}

pe_status pe_gpu_prepare(pe_session *session, const pe_gpu_queue *queue) {
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_status status =
        queue->copy_there(session, PE_GPU_NUMBERS, 0, code->numbers, code->numbers_bytes);
    return finish(session, status, queue);
}

/* Copies the inputs, and the memories changed on the host since the last run, to the device. */
static pe_status send(pe_session *session, const pe_entry *entry, const pe_gpu_queue *queue) {
    const pe_program *program = session->program;
    pe_status status = PE_OK;
    if (session->newer & PE_PARAMS_HERE) {
        status =
            queue->copy_there(session, PE_GPU_PARAMS, 0, session->params, program->params_bytes);
    }
    if (status == PE_OK && session->newer & PE_FROZEN_HERE) {
        status =
            queue->copy_there(session, PE_GPU_FROZEN, 0, session->frozen, program->frozen_bytes);
    }
    for (int i = 0; status == PE_OK && i < entry->input_count; i++) {
        const pe_tensor *input = &entry->inputs[i];
        status = queue->copy_there(session, PE_GPU_ARENA, input->offset,
                                   pe_tensor_data(session, input), pe_tensor_bytes(input));
    }
    return status;
}

static pe_status receive(pe_session *session, const pe_entry *entry, const pe_gpu_queue *queue) {
    pe_status status = PE_OK;
    for (int i = 0; status == PE_OK && i < entry->output_count; i++) {
        const pe_tensor *output = &entry->outputs[i];
        status = queue->copy_here(session, PE_GPU_ARENA, output->offset,
                                  pe_tensor_data(session, output), pe_tensor_bytes(output));
    }
    return status;
}

static long long nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Runs an entry's launches one by one; reports the time of each, from enqueueing it on an empty
 * queue to its end. */
static pe_status time_launches(pe_session *session, int entry, const pe_gpu_queue *queue) {
    const pe_gpu_code *code = pe_gpu_code_of(session);
    const pe_gpu_step *step = &code->steps[entry];
    pe_status status = queue->wait(session);
    for (int i = step->first; status == PE_OK && i < step->first + step->count; i++) {
        const long long start = nanoseconds();
        status = queue->launch(session, session->program->entry_count + i);
        status = status == PE_OK ? queue->wait(session) : status;
        code->timed(i, nanoseconds() - start);
    }
    return status;
}

static pe_status launch(pe_session *session, int entry, const pe_gpu_queue *queue) {
    return pe_gpu_code_of(session)->timed ? time_launches(session, entry, queue)
                                          : queue->launch(session, entry);
}

pe_status pe_gpu_run(pe_session *session, const pe_entry *entry, const pe_gpu_queue *queue) {
    const int number = (int)(entry - session->program->entries);
    pe_status status = send(session, entry, queue);
    status = status == PE_OK ? launch(session, number, queue) : status;
    if (status == PE_OK) {
        session->newer = pe_gpu_code_of(session)->steps[number].writes
                             ? PE_PARAMS_THERE
                             : session->newer & PE_PARAMS_THERE;
        status = receive(session, entry, queue);
    }
    return finish(session, status, queue);
}

pe_status pe_gpu_fetch(pe_session *session, const pe_gpu_queue *queue) {
    pe_status status = queue->copy_here(session, PE_GPU_PARAMS, 0, session->params,
                                        session->program->params_bytes);
    status = finish(session, status, queue);
    if (status == PE_OK) {
        session->newer &= ~(unsigned)PE_PARAMS_THERE;
    }
    return status;
}

pe_status pe_gpu_fail_memory(pe_session *session, const char *has, size_t room) {
    const pe_program *program = session->program;
    size_t bytes = 0;
    for (int i = 0; i < PE_GPU_MEMORIES; i++) {
        bytes += pe_gpu_bytes(session, (pe_gpu_memory)i);
    }
    char fix[PE_MESSAGE_BYTES];
    pe_fail(fix, PE_OK, "give a memory_budget of %zu bytes, or make the batch smaller", room);
    return pe_fail(session->message, PE_ERROR_SYSTEM,
                   "program %s was planned with %zu bytes of device memory (params %zu, frozen "
                   "%zu, arena %zu), and %s: %s",
                   program->name, bytes, program->params_bytes, program->frozen_bytes,
                   program->arena_bytes, has,
                   room ? fix
                        : "no batch is small enough; keep frozen weights in 4 or 8 bits "
                          "(Storage), or train fewer");
}
