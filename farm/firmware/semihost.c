#include "semihost.h"

enum { OPEN = 1, PRINT = 4, WRITE = 5, READ = 6, EXIT = 0x20, READ_BINARY = 1, WRITE_BINARY = 5 };

#define APPLICATION_EXIT 0x20026

static int call(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

int semihost_open(const char *name, bool write) {
    size_t length = 0;
    while (name[length]) {
        length++;
    }
    const uintptr_t block[] = {(uintptr_t)name, write ? WRITE_BINARY : READ_BINARY, length};
    return call(OPEN, block);
}

bool semihost_read(int file, void *data, size_t bytes) {
    const uintptr_t block[] = {(uintptr_t)file, (uintptr_t)data, bytes};
    return call(READ, block) == 0; /* bytes that were not read */
}

bool semihost_write(int file, const void *data, size_t bytes) {
    const uintptr_t block[] = {(uintptr_t)file, (uintptr_t)data, bytes};
    return call(WRITE, block) == 0;
}

void semihost_print(const char *text) { call(PRINT, text); }

_Noreturn void semihost_exit(int status) {
    const uintptr_t block[] = {APPLICATION_EXIT, (uintptr_t)status};
    call(EXIT, block);
    for (;;) {
    }
}
