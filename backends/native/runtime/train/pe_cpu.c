/* Asks the processor for the extensions that the program needs. The backend compiles this file for
 * the oldest processor of the architecture: it runs where kernels would be illegal instructions. */
#include "pe_cpu.h"

#include <stddef.h>

#include "pe_host.h"

typedef struct extension {
    uint32_t need;
    const char *name;
    uint32_t leaf, place,
        bit; /* of CPUID, with its subleaf << 16; or which of the hwcaps, 0, bit */
} extension;

enum { EBX = 1, ECX, EDX }; /* places of CPUID's results; EAX is 0 */

#if defined(__x86_64__)

#include <cpuid.h>

static const extension extensions[] = {
    {PE_CPU_SSE42, "SSE4.2", 1, ECX, 20},
    {PE_CPU_AVX, "AVX", 1, ECX, 28},
    {PE_CPU_FMA, "FMA", 1, ECX, 12},
    {PE_CPU_AVX2, "AVX2", 7, EBX, 5},
    {PE_CPU_BMI2, "BMI2", 7, EBX, 8},
    {PE_CPU_AVX512F, "AVX-512F", 7, EBX, 16},
    {PE_CPU_AVX512DQ, "AVX-512DQ", 7, EBX, 17},
    {PE_CPU_AVX512BW, "AVX-512BW", 7, EBX, 30},
    {PE_CPU_AVX512VL, "AVX-512VL", 7, EBX, 31},
    {PE_CPU_AVX512VNNI, "AVX-512 VNNI", 7, ECX, 11},
    {PE_CPU_AVX512BF16, "AVX-512 BF16", 7 | 1 << 16, 0, 5},
    {PE_CPU_AMX, "AMX-BF16", 7, EDX, 22},
};

static uint32_t found(const extension *e) {
    uint32_t r[4] = {0};
    const uint32_t leaf = e->leaf & 0xFFFF, subleaf = e->leaf >> 16;
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[EBX], &r[ECX], &r[EDX]) ? r[e->place] : 0;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

static const extension extensions[] = {
    {PE_CPU_CRC32, "CRC32", AT_HWCAP, 0, 7},          {PE_CPU_LSE, "LSE atomics", AT_HWCAP, 0, 8},
    {PE_CPU_DOTPROD, "dot product", AT_HWCAP, 0, 20}, {PE_CPU_SVE, "SVE", AT_HWCAP, 0, 22},
    {PE_CPU_I8MM, "I8MM", AT_HWCAP2, 0, 13},          {PE_CPU_BF16, "BF16", AT_HWCAP2, 0, 14},
};

static uint32_t found(const extension *e) { return (uint32_t)getauxval(e->leaf); }

#else

static const extension extensions[] = {{0, "", 0, 0, 0}};

static uint32_t found(const extension *e) { return (void)e, 0; }

#endif

const char *pe_cpu_lacks(void) {
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        const extension *e = &extensions[i];
        if (pe_cpu_needs & e->need && !(found(e) >> e->bit & 1)) {
            return e->name;
        }
    }
    return NULL;
}
