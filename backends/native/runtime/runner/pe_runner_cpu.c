/* Exits before anything else runs if the processor lacks an extension that kernels need.
 * Compiled like pe_cpu.c. */
#include <unistd.h>

#include "pe_host.h"
#include "pe_runner.h"

static void put(const char *text) {
    size_t length = 0;
    while (text[length]) {
        length++;
    }
    if (write(STDERR_FILENO, text, length) < 0) {
        _exit(PE_EXIT_FAILURE);
    }
}

__attribute__((constructor)) static void check_cpu(void) {
    const char *lacking = pe_cpu_lacks();
    if (lacking) {
        put("error: this program was compiled for a processor with ");
        put(lacking);
        put(", which this one lacks; compile the model on this machine, or for its device\n");
        _exit(PE_EXIT_FAILURE);
    }
}
