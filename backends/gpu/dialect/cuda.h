/* The dialect in CUDA C++, as NVRTC builds it: no header at all is included. */
typedef long long pe_i64;
typedef unsigned long long pe_u64;
typedef unsigned int pe_u32;
typedef unsigned short pe_u16;
typedef unsigned char pe_u8;
typedef signed char pe_i8;
typedef unsigned short pe_half;

#define PE_KERNEL extern "C" __global__ __launch_bounds__(PE_ITEMS)
#define PE_FUNCTION static __device__ __forceinline__
#define PE_READ(type, name) const type *name
#define PE_WRITE(type, name) type *name
#define PE_SHARED(type, name, count) __shared__ type name[count]
#define PE_LOCAL
#define PE_GLOBAL
#define PE_TABLE static __constant__ const
#define PE_UNROLL _Pragma("unroll")
#define PE_MATH(name) name##f
#define PE_NAN __int_as_float(0x7fffffff)
#define PE_INFINITY __int_as_float(0x7f800000)

#define pe_item() ((int)threadIdx.x)
#define pe_group() ((int)blockIdx.x)
#define pe_barrier() __syncthreads()
#define pe_bits(x) __float_as_uint(x)
#define pe_from_bits(x) __uint_as_float(x)

PE_FUNCTION float pe_from_half(pe_half bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

PE_FUNCTION pe_half pe_to_half(float x) {
    pe_half bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

#define pe_load_half(p, i) pe_from_half((p)[i])
#define pe_store_half(p, i, v) ((p)[i] = pe_to_half(v))
#define pe_rounded_half(v) pe_from_half(pe_to_half(v))

#include "pe_gpu_common.h"
