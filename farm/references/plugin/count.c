/* A QEMU plugin that counts the AArch64 or Thumb instructions, or the Hexagon packets, that a
 * program executes between two marks.
 *
 * `hint #100` opens a region and `hint #101` closes it, on Hexagon r28 = and(r28, r28) and
 * r28 = or(r28, r28); all of them do nothing on hardware. Thumb is that of a firmware, in QEMU's
 * system mode; the others run in user mode. A region
 * counts what all threads execute while it is open, without the marks themselves. Blocks of
 * instructions are split at the marks, so that a single thread's count is exact. Regions do not
 * nest.
 *
 * observer.h says what a model that is linked with it adds (farm/cycles/plugin).
 *
 * Argument: out=FILE. The file gets a line for each region when it is closed ("region N"), so that
 * who drives the guest can read it meanwhile, and "total N" and "end" when the guest exits; or it
 * holds the one line "error TEXT" then.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer.h"
#include "qemu_plugin.h"

__attribute__((visibility("default"))) int qemu_plugin_version = 2;
__attribute__((visibility("default"))) int
qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);

/* QEMU numbers a guest's threads one after another and uses the numbers of ended ones again. */
enum { MAX_THREADS = 4096, CACHE_LINE = 64 };

struct target {
    const char *name;
    bool system;
    uint32_t open_mark, close_mark; /* as in memory */
};

static const struct target targets[] = {
    {"aarch64", false, 0xd5032c9fU, 0xd5032cbfU}, /* hint #100, #101 */
    {"hexagon", false, 0xf11cdc1cU, 0xf13cdc1cU}, /* each alone in its packet */
    {"arm", true, 0x8064f3afU, 0x8065f3afU},      /* hint.w #100, #101: the first half is low */
};

static uint32_t open_mark, close_mark;

/* A cache line each: threads that run at the same time must not fight for one. */
struct counter {
    _Alignas(CACHE_LINE) atomic_uint_least64_t executed;
};

static struct counter counters[MAX_THREADS];
static atomic_uint threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool open;
static uint64_t opened_at;
static const char *failure;
static const char *out;
static FILE *stream;
static pid_t owner;
static bool copies; /* whether QEMU copies instructions, of version 3 and later */

/* QEMU reads the version next; one that has this function accepts no later version. */
__attribute__((constructor)) static void choose_version(void) {
    if (qemu_plugin_n_vcpus != NULL) {
        qemu_plugin_version = 1;
    }
}

/* Sum what all threads have executed so far. */
static uint64_t executed(void) {
    uint64_t sum = 0;
    unsigned int count = atomic_load(&threads);
    for (unsigned int i = 0; i < count; i++) {
        sum += atomic_load_explicit(&counters[i].executed, memory_order_relaxed);
    }
    return sum;
}

/* Remember the first failure; it is all that is reported then. Call it with the lock held. */
static void fail(const char *text) {
    if (failure == NULL) {
        failure = text;
    }
}

/* Add a segment of `user` instructions; only its own thread writes a counter. */
static void run_segment(unsigned int vcpu, void *user) {
    if (vcpu >= MAX_THREADS) {
        pthread_mutex_lock(&lock);
        fail("the program runs more than 4096 threads at once");
        pthread_mutex_unlock(&lock);
        return;
    }
    unsigned int seen = atomic_load_explicit(&threads, memory_order_relaxed);
    while (vcpu >= seen && !atomic_compare_exchange_weak(&threads, &seen, vcpu + 1)) {
    }
    atomic_uint_least64_t *mine = &counters[vcpu].executed;
    uint64_t sum = atomic_load_explicit(mine, memory_order_relaxed) + (uintptr_t)user;
    atomic_store_explicit(mine, sum, memory_order_relaxed);
}

static void run_open(unsigned int vcpu, void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
    if (observe_mark != NULL) {
        observe_mark(vcpu, true);
    }
    if (open) {
        fail("a region was opened inside a region");
    }
    open = true;
    opened_at = executed();
    pthread_mutex_unlock(&lock);
}

/* Whether this is the process that was started; a forked child shares the file's name alone. */
static bool reports(void) {
    if (getpid() != owner) {
        return false;
    }
    if (stream == NULL) {
        stream = fopen(out, "w");
        if (stream == NULL) {
            perror(out);
        }
    }
    return stream != NULL;
}

static void run_close(unsigned int vcpu, void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
    if (observe_mark != NULL) {
        observe_mark(vcpu, false);
    }
    if (!open) {
        fail("a region was closed that was not open");
    } else if (reports()) {
        fprintf(stream, "region %llu\n", (unsigned long long)(executed() - opened_at));
        if (observe_region != NULL) {
            observe_region(stream);
        }
        fflush(stream);
    }
    open = false;
    pthread_mutex_unlock(&lock);
}

uint32_t word_of(const struct qemu_plugin_insn *instruction) {
    uint32_t word = 0;
    size_t bytes = qemu_plugin_insn_size(instruction);
    if (bytes > sizeof word) {
        return 0;
    }
    if (copies) {
        qemu_plugin_insn_data_3_t copy = (qemu_plugin_insn_data_3_t)(void *)qemu_plugin_insn_data;
        copy(instruction, &word, bytes);
    } else {
        memcpy(&word, qemu_plugin_insn_data(instruction), bytes);
    }
    return word;
}

/* Count instructions [first, last) of the block when the first of them runs. */
static void count_segment(const struct qemu_plugin_tb *block, size_t first, size_t last) {
    if (first < last) {
        qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(block, first), run_segment,
                                               QEMU_PLUGIN_CB_NO_REGS, (void *)(last - first));
        if (observe_segment != NULL) {
            observe_segment(block, first, last);
        }
    }
}

static void translate_7(struct qemu_plugin_tb *block, void *user) {
    (void)user;
    size_t count = qemu_plugin_tb_n_insns(block);
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint32_t word = word_of(instruction);
        if (word == open_mark || word == close_mark) {
            count_segment(block, first, i);
            first = i + 1;
            qemu_plugin_register_vcpu_insn_exec_cb(instruction,
                                                   word == open_mark ? run_open : run_close,
                                                   QEMU_PLUGIN_CB_NO_REGS, NULL);
        }
    }
    count_segment(block, first, count);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    translate_7(block, NULL);
}

static void report_7(void *user) {
    (void)user;
    if (!reports()) {
        return;
    }
    if (open) {
        fail("the program ended inside a region");
    }
    if (failure != NULL) {
        stream = freopen(out, "w", stream);
        if (stream == NULL) {
            perror(out);
            return;
        }
        fprintf(stream, "error %s\n", failure);
    } else {
        fprintf(stream, "total %llu\nend\n", (unsigned long long)executed());
    }
    fclose(stream);
}

static void report(qemu_plugin_id_t id, void *user) {
    (void)id;
    report_7(user);
}

static void register_calls(qemu_plugin_id_t id, int version) {
    qemu_plugin_register_translated_7_t register_translated =
        (qemu_plugin_register_translated_7_t)(void *)qemu_plugin_register_vcpu_tb_trans_cb;
    qemu_plugin_register_exit_7_t register_exit =
        (qemu_plugin_register_exit_7_t)(void *)qemu_plugin_register_atexit_cb;
    copies = version >= 3;
    if (version >= 7) {
        register_translated(id, translate_7, NULL);
        register_exit(id, report_7, NULL);
    } else {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
        qemu_plugin_register_atexit_cb(id, report, NULL);
    }
}

static const struct target *find_target(const qemu_info_t *info) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (info->system_emulation == targets[i].system &&
            strcmp(info->target_name, targets[i].name) == 0) {
            return &targets[i];
        }
    }
    return NULL;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    const struct target *target = find_target(info);
    if (target == NULL) {
        fprintf(stderr, "count: only for qemu-aarch64, qemu-hexagon and qemu-system-arm, not %s\n",
                info->target_name);
        return 1;
    }
    open_mark = target->open_mark;
    close_mark = target->close_mark;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0) {
            out = strdup(argv[i] + 4);
        } else if (observe_argument != NULL && !observe_argument(argv[i])) {
            return 1;
        }
    }
    if (out == NULL) {
        fprintf(stderr, "count: the argument out=FILE is missing\n");
        return 1;
    }
    owner = getpid();
    register_calls(id, info->version.cur);
    return 0;
}
