/* Extensions of this processor that the program was compiled with. */
#ifndef PE_CPU_H
#define PE_CPU_H

#include <stdint.h>

/* One bit for each row of pe_cpu.c's table: extensions that the compiler may use. Compiled as
 * kernels are. */
extern const uint32_t pe_cpu_needs;

/* Bits of pe_cpu_needs, in the order of x86 or of AArch64. */
enum {
    PE_CPU_SSE42 = 1 << 0,
    PE_CPU_AVX = 1 << 1,
    PE_CPU_FMA = 1 << 2,
    PE_CPU_AVX2 = 1 << 3,
    PE_CPU_BMI2 = 1 << 4,
    PE_CPU_AVX512F = 1 << 5,
    PE_CPU_AVX512DQ = 1 << 6,
    PE_CPU_AVX512BW = 1 << 7,
    PE_CPU_AVX512VL = 1 << 8,
    PE_CPU_AVX512VNNI = 1 << 9,
    PE_CPU_AVX512BF16 = 1 << 10,
    PE_CPU_AMX = 1 << 11,
    PE_CPU_CRC32 = 1 << 16,
    PE_CPU_LSE = 1 << 17,
    PE_CPU_DOTPROD = 1 << 18,
    PE_CPU_SVE = 1 << 19,
    PE_CPU_I8MM = 1 << 20,
    PE_CPU_BF16 = 1 << 21,
};

#endif
