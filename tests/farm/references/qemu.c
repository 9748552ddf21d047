/* A stand-in for the part of QEMU that loads a plugin. It implements version API of the plugin API
 * and accepts plugins of version LEAST and later.
 *
 * It translates one block of five instructions (the second and the last are marks), runs it, and
 * exits. Arguments: the plugin, its argument.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
} qemu_info;

typedef struct {
    uint32_t word;
    void (*call)(unsigned int vcpu, void *user);
    void *user;
} insn;

typedef void (*any)(void);

static insn block[] = {
    {.word = 0xd503201f}, {.word = 0xd5032c9f}, {.word = 0xd503201f},
    {.word = 0xd503201f}, {.word = 0xd5032cbf},
};
static any translated, exited;

#if API < 2
int qemu_plugin_n_vcpus(void) { return -1; }
#endif

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, any call) { translated = call; }

void qemu_plugin_register_atexit_cb(uint64_t id, any call, void *user) { exited = call; }

void qemu_plugin_register_vcpu_insn_exec_cb(insn *one, void (*call)(unsigned int, void *),
                                            int flags, void *user) {
    one->call = call;
    one->user = user;
}

size_t qemu_plugin_tb_n_insns(const void *tb) { return sizeof block / sizeof block[0]; }

insn *qemu_plugin_tb_get_insn(const void *tb, size_t index) { return &block[index]; }

size_t qemu_plugin_insn_size(const insn *one) { return sizeof one->word; }

#if API < 3
const void *qemu_plugin_insn_data(const insn *one) { return &one->word; }
#else
size_t qemu_plugin_insn_data(const insn *one, void *to, size_t size) {
    memcpy(to, &one->word, size);
    return size;
}
#endif

static void translate_and_exit(bool at_exit) {
#if API < 7
    at_exit ? ((void (*)(uint64_t, void *))exited)(1, NULL)
            : ((void (*)(uint64_t, void *))translated)(1, block);
#else
    at_exit ? ((void (*)(void *))exited)(NULL)
            : ((void (*)(void *, void *))translated)(block, NULL);
#endif
}

int main(int argc, char **argv) {
    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const int *version = plugin ? dlsym(plugin, "qemu_plugin_version") : NULL;
    if (version == NULL || *version < LEAST || *version > API) {
        fprintf(stderr, "%s: version %d\n", plugin ? argv[1] : dlerror(), version ? *version : 0);
        return 1;
    }
    int (*install)(uint64_t, const qemu_info *, int, char **) =
        (int (*)(uint64_t, const qemu_info *, int, char **))dlsym(plugin, "qemu_plugin_install");
    const qemu_info info = {"aarch64", {LEAST, API}, false};
    if (install(1, &info, 1, &argv[2]) != 0) {
        return 1;
    }
    translate_and_exit(false);
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++) {
        if (block[i].call != NULL) {
            block[i].call(0, block[i].user);
        }
    }
    translate_and_exit(true);
    return 0;
}
