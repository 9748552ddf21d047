/* Threads of WebAssembly as in the proposal wasi-threads: the host's function `thread-spawn` makes
 * another instance of the module over the same memory, and calls its `wasi_thread_start`.
 *
 * A thread makes no system call, and waits as atomics do, which a browser permits in workers only.
 */
#include "pe_threads.h"

#if !defined(PE_NO_THREADS) && defined(__wasi__)

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "pe_limits.h"

enum { FOREVER = -1 };

/* Returns the thread's number, or a negative one if it cannot be started. */
__attribute__((import_module("wasi"), import_name("thread-spawn"))) int pe_wasi_spawn(void *thread);

void pe_wasi_run(const pe_thread *thread);

/* An instance begins with the stack pointer of the first thread, so that nothing in C may run
 * before it is set; and nothing after the end is visible, since the stack may be freed then. */
__asm__("    .globaltype __stack_pointer, i32\n"
        "    .functype __wasm_init_tls (i32) -> ()\n"
        "    .functype pe_wasi_run (i32) -> ()\n"
        "    .section .text.wasi_thread_start,\"\",@\n"
        "    .globl wasi_thread_start\n"
        "    .export_name wasi_thread_start, wasi_thread_start\n"
        "    .type wasi_thread_start,@function\n"
        "wasi_thread_start:\n"
        "    .functype wasi_thread_start (i32, i32) -> ()\n"
        "    local.get 1\n"
        "    i32.load 0\n" /* stack */
        "    global.set __stack_pointer\n"
        "    local.get 1\n"
        "    i32.load 4\n" /* locals */
        "    call __wasm_init_tls\n"
        "    local.get 1\n"
        "    call pe_wasi_run\n"
        "    local.get 1\n"
        "    i32.const 1\n"
        "    i32.atomic.store 8\n" /* ended */
        "    local.get 1\n"
        "    i32.const -1\n"
        "    memory.atomic.notify 8\n"
        "    drop\n"
        "    end_function\n");
_Static_assert(offsetof(pe_thread, stack) == 0, "as above");
_Static_assert(offsetof(pe_thread, locals) == 4, "as above");
_Static_assert(offsetof(pe_thread, ended) == 8, "as above");

void pe_wasi_run(const pe_thread *thread) { thread->main(thread->argument); }

int pe_thread_start(pe_thread *thread, pe_thread_main *main, void *argument) {
    const size_t locals = (__builtin_wasm_tls_size() + PE_ALIGN - 1) / PE_ALIGN * PE_ALIGN;
    char *memory = aligned_alloc(PE_ALIGN, PE_STACK_BYTES + locals);
    if (!memory) {
        return ENOMEM;
    }
    *thread = (pe_thread){.stack = memory + locals + PE_STACK_BYTES,
                          .locals = memory,
                          .main = main,
                          .argument = argument};
    if (pe_wasi_spawn(thread) < 0) {
        free(memory);
        return EAGAIN;
    }
    return 0;
}

void pe_thread_join(pe_thread *thread) {
    while (!atomic_load(&thread->ended)) {
        pe_sleep_while(&thread->ended, 0);
    }
    free(thread->locals);
}

/* Not inlined: with a constant in place of `old`, V8 11.3 (Node 20) waits on address 0. */
__attribute__((noinline)) void pe_sleep_while(atomic_int *value, int old) {
    __builtin_wasm_memory_atomic_wait32((int *)value, old, FOREVER);
}

void pe_wake_all(atomic_int *value) {
    __builtin_wasm_memory_atomic_notify((int *)value, UINT32_MAX);
}

void pe_thread_yield(void) {} /* there is no such instruction */

/* A module does not know; who chooses the number of threads does. */
long pe_usable_cpus(void) { return PE_MAX_THREADS; }

#endif
