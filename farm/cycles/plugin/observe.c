/* Feeds the model of a core with the instructions that QEMU executes; linked with
 * farm/references/plugin/count.c.
 *
 * Argument: core=FILE, the core's numbers. All threads run on one core, in the order in which they
 * execute, so a spinning thread costs time. Between regions nothing is modelled: caches are as a
 * step leaves them for the next. After each region the report gets a line
 * "cycles CORE CACHE DRAM BRANCH FETCH", then "unknown N WORD": how many instructions without a
 * class were translated so far, and the last of them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "observer.h"

enum { MAX_THREADS = 256, MAX_TOUCHED = 8192 };

struct thread {
    struct registers *registers;
    const struct segment *pending;
    size_t count;
    struct touched touched[MAX_TOUCHED];
};

static struct thread *threads[MAX_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile bool running;
static uint64_t opened[PARTS], closed[PARTS]; /* cycles by cause at the marks */
static uint64_t unknown;
static uint32_t unknown_word;

static struct thread *thread_of(unsigned int vcpu) {
    struct thread **place = &threads[vcpu % MAX_THREADS];
    if (*place == NULL) {
        *place = calloc(1, sizeof **place);
        (*place)->registers = new_registers();
    }
    return *place;
}

/* Execute what the thread has begun: where it goes on is known now. Call it with the lock held. */
static void finish(struct thread *thread, uint64_t target) {
    if (thread->pending != NULL) {
        execute(thread->registers, thread->pending, thread->touched, thread->count, target);
    }
    thread->pending = NULL;
    thread->count = 0;
}

static void run_segment_model(unsigned int vcpu, void *user) {
    if (!running) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct thread *thread = thread_of(vcpu);
    const struct segment *segment = user;
    finish(thread, address_of(segment));
    thread->pending = segment;
    pthread_mutex_unlock(&lock);
}

/* Only the thread itself writes what it touched. */
static void run_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
                       void *user) {
    if (!running) {
        return;
    }
    struct thread *thread = threads[vcpu % MAX_THREADS];
    if (thread == NULL || thread->count == MAX_TOUCHED) {
        return;
    }
    thread->touched[thread->count++] = (struct touched){
        (uint32_t)(uintptr_t)user, 1U << qemu_plugin_mem_size_shift(info), address};
}

void observe_segment(const struct qemu_plugin_tb *block, size_t first, size_t last) {
    struct qemu_plugin_insn *start = qemu_plugin_tb_get_insn(block, first);
    struct segment *segment = new_segment(qemu_plugin_insn_vaddr(start), last - first);
    for (size_t i = 0; i < last - first; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, first + i);
        uint32_t code = word_of(instruction);
        struct decoded found = append(segment, code, qemu_plugin_insn_size(instruction));
        if (!found.known) {
            unknown++;
            unknown_word = code;
        }
        if (found.accesses) {
            qemu_plugin_register_vcpu_mem_cb(instruction, run_access, QEMU_PLUGIN_CB_NO_REGS,
                                             QEMU_PLUGIN_MEM_RW, (void *)(uintptr_t)i);
        }
    }
    qemu_plugin_register_vcpu_insn_exec_cb(start, run_segment_model, QEMU_PLUGIN_CB_NO_REGS,
                                           segment);
}

void observe_mark(unsigned int vcpu, bool opens) {
    pthread_mutex_lock(&lock);
    finish(thread_of(vcpu), 0);
    spent(opens ? opened : closed);
    running = opens;
    pthread_mutex_unlock(&lock);
}

void observe_region(FILE *stream) {
    fprintf(stream, "cycles");
    for (int part = 0; part < PARTS; part++) {
        fprintf(stream, " %llu", (unsigned long long)(closed[part] - opened[part]));
    }
    fprintf(stream, "\nunknown %llu %08x\n", (unsigned long long)unknown, unknown_word);
}

bool observe_argument(const char *argument) {
    if (strncmp(argument, "core=", 5) != 0 || !read_numbers(argument + 5)) {
        fprintf(stderr, "cycles: %s is not core=FILE of a core's numbers\n", argument);
        return false;
    }
    start_model();
    return true;
}
