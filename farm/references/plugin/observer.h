/* Interface of observers linked with count.c, which see more than counts. All are absent in the
 * plain plugin. */
#ifndef POCKENGINE_OBSERVER_H
#define POCKENGINE_OBSERVER_H

#include <stdio.h>

#include "qemu_plugin.h"

#define OPTIONAL __attribute__((weak))

/* Take an argument of the plugin; false after a message. */
OPTIONAL bool observe_argument(const char *argument);
/* See instructions [first, last) of a block that is translated. */
OPTIONAL void observe_segment(const struct qemu_plugin_tb *block, size_t first, size_t last);
/* A region opens or closes; it is called with a lock held. */
OPTIONAL void observe_mark(unsigned int vcpu, bool opens);
/* Add lines to the report, of the region that has just closed. */
OPTIONAL void observe_region(FILE *stream);

/* The bytes of an instruction of up to four, the first in the low bits; 0 for a longer one. */
uint32_t word_of(const struct qemu_plugin_insn *instruction);

#endif
