/* The program of a firmware, and memory for its session: link.py writes the C file. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include "pe.h"

extern const pe_program *const firmware_program;
extern unsigned char firmware_params[], firmware_arena[];

#endif
