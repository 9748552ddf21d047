/* Extensions that the compiler was allowed to use: data only, so that reading it needs none of it.
 */
#include "pe_cpu.h"

const uint32_t pe_cpu_needs = 0
#ifdef __SSE4_2__
                              | PE_CPU_SSE42
#endif
#ifdef __AVX__
                              | PE_CPU_AVX
#endif
#ifdef __FMA__
                              | PE_CPU_FMA
#endif
#ifdef __AVX2__
                              | PE_CPU_AVX2
#endif
#ifdef __BMI2__
                              | PE_CPU_BMI2
#endif
#ifdef __AVX512F__
                              | PE_CPU_AVX512F
#endif
#ifdef __AVX512DQ__
                              | PE_CPU_AVX512DQ
#endif
#ifdef __AVX512BW__
                              | PE_CPU_AVX512BW
#endif
#ifdef __AVX512VL__
                              | PE_CPU_AVX512VL
#endif
#ifdef __AVX512VNNI__
                              | PE_CPU_AVX512VNNI
#endif
#ifdef __AVX512BF16__
                              | PE_CPU_AVX512BF16
#endif
#ifdef __AMX_BF16__
                              | PE_CPU_AMX
#endif
#ifdef __ARM_FEATURE_CRC32
                              | PE_CPU_CRC32
#endif
#ifdef __ARM_FEATURE_ATOMICS
                              | PE_CPU_LSE
#endif
#ifdef __ARM_FEATURE_DOTPROD
                              | PE_CPU_DOTPROD
#endif
#ifdef __ARM_FEATURE_SVE
                              | PE_CPU_SVE
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
                              | PE_CPU_I8MM
#endif
#ifdef __ARM_FEATURE_BF16
                              | PE_CPU_BF16
#endif
    ;
