/* The dialect in CUDA C++ for NVRTC; no headers are included. */
typedef long long pe_i64;
typedef unsigned long long pe_u64;
typedef unsigned int pe_u32;
typedef unsigned short pe_u16;
typedef unsigned char pe_u8;
typedef signed char pe_i8;
typedef unsigned short pe_half;

#define PE_KERNEL extern "C" __global__ __launch_bounds__(PE_BOUNDS)
#define PE_FUNCTION static __device__ __forceinline__
#define PE_READ(type, name) const type *name
#define PE_WRITE(type, name) type *name
#define PE_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define PE_LOCAL
#define PE_GLOBAL
#define PE_PRIVATE
/* Not in constant memory, which is 64 KiB for all kernels of a program. */
#define PE_TABLE static __device__ const
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

/* An item's fragment of a tile of 16 x 16 bf16 numbers. */
typedef struct __align__(16) {
    pe_u32 part[4];
} pe_fragment;

PE_FUNCTION pe_u32 pe_pair_bf16(float low, float high) {
    pe_u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* All items of a warp call it: sums (16 x 8) += a (16 x 16) times b (16 x 8). It is volatile, so
 * that it is not moved into a branch that only some of them take. */
PE_FUNCTION void pe_mma_bf16(float *sums, const pe_u32 *a, const pe_u32 *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#include "pe_gpu_common.h"
