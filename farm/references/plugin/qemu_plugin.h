/* The part of QEMU's TCG plugin API, version 1, that count.c uses.
 *
 * Written from QEMU's documentation (docs/devel/tcg-plugins), because no distribution packages the
 * header. Version 1 is what QEMU 4.2 to 8.1 accept; QEMU's own functions are resolved when it loads
 * the plugin.
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

/* What a callback may do with the guest's registers: nothing, here. */
enum { QEMU_PLUGIN_CB_NO_REGS = 0 };

typedef void (*qemu_plugin_translated_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef void (*qemu_plugin_executed_t)(unsigned int vcpu, void *user);
typedef void (*qemu_plugin_exit_t)(qemu_plugin_id_t id, void *user);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_translated_t call);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            qemu_plugin_executed_t call, int flags, void *user);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_exit_t call, void *user);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);

#endif
