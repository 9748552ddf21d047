/* Semihosting: services of a debugger or emulator for a board of Arm's.
 *
 * A call is a breakpoint with an operation and its arguments in r0 and r1 (Arm, "Semihosting for
 * AArch32 and AArch64").
 */
#ifndef SEMIHOST_H
#define SEMIHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens a file of the host in its working folder; a handle, or -1. */
int semihost_open(const char *name, bool write);

/* Whether all bytes were read or written. */
bool semihost_read(int file, void *data, size_t bytes);
bool semihost_write(int file, const void *data, size_t bytes);

void semihost_print(const char *text);

/* Ends the emulator with this status. */
_Noreturn void semihost_exit(int status);

#endif
