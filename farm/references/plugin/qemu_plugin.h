/* The part of QEMU's TCG plugin API, versions 1 to 7, that count.c uses.
 *
 * Written from QEMU's documentation (docs/devel/tcg-plugins), because no distribution packages the
 * header. QEMU's own functions are resolved when it loads the plugin, so one build serves all:
 *   1  what QEMU before 9.0 accepts
 *   2  the least that QEMU accepts since 9.0; `qemu_plugin_n_vcpus` is gone
 *   3  `qemu_plugin_insn_data` copies, also for plugins that declare version 2
 *   7  callbacks get the user's pointer last, and not the plugin's id
 */
#ifndef POCKENGINE_QEMU_PLUGIN_H
#define POCKENGINE_QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;

typedef struct {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version;
    bool system_emulation;
    union {
        struct {
            int smp_vcpus;
            int max_vcpus;
        } system;
    };
} qemu_info_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;

/* Undefined from version 2 on. */
__attribute__((weak)) int qemu_plugin_n_vcpus(void);

/* A callback's access to the guest's registers: none. */
enum { QEMU_PLUGIN_CB_NO_REGS = 0 };

typedef void (*qemu_plugin_translated_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*qemu_plugin_translated_7_t)(struct qemu_plugin_tb *block, void *user);
typedef void (*qemu_plugin_executed_t)(unsigned int vcpu, void *user);
typedef void (*qemu_plugin_exit_t)(qemu_plugin_id_t id, void *user);
typedef void (*qemu_plugin_exit_7_t)(void *user);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_translated_t call);
typedef void (*qemu_plugin_register_translated_7_t)(qemu_plugin_id_t id,
                                                    qemu_plugin_translated_7_t call, void *user);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            qemu_plugin_executed_t call, int flags, void *user);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_exit_t call, void *user);
typedef void (*qemu_plugin_register_exit_7_t)(qemu_plugin_id_t id, qemu_plugin_exit_7_t call,
                                              void *user);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
typedef size_t (*qemu_plugin_insn_data_3_t)(const struct qemu_plugin_insn *instruction, void *to,
                                            size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);

/* A memory access: its callback and its kind. */
enum { QEMU_PLUGIN_MEM_RW = 3 };
typedef uint32_t qemu_plugin_meminfo_t;
typedef void (*qemu_plugin_accessed_t)(unsigned int vcpu, qemu_plugin_meminfo_t info,
                                       uint64_t address, void *user);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction,
                                      qemu_plugin_accessed_t call, int flags, int kind, void *user);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);

size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);

#endif
