/* The dialect in OpenCL C 1.2, the common subset of all devices: no cl_khr_fp16, no doubles. */
typedef long pe_i64;
typedef ulong pe_u64;
typedef uint pe_u32;
typedef ushort pe_u16;
typedef uchar pe_u8;
typedef char pe_i8;
typedef half pe_half;

#define PE_KERNEL __kernel __attribute__((reqd_work_group_size(PE_ITEMS, 1, 1)))
#define PE_FUNCTION static inline
#define PE_SHARED(type, name, count) __local type name[count]
#define PE_LOCAL __local
#define PE_GLOBAL __global
#define PE_PRIVATE __private
#define PE_TABLE __constant
#define PE_UNROLL _Pragma("unroll")
#define PE_MATH(name) name
#define PE_NAN NAN
#define PE_INFINITY INFINITY

#define pe_item() ((int)get_local_id(0))
#define pe_group() ((int)get_group_id(0))
#define pe_barrier() barrier(CLK_LOCAL_MEM_FENCE)
#define pe_bits(x) as_uint(x)
#define pe_from_bits(x) as_float(x)

/* A host has no device addresses, and sub-buffers must be aligned as the device requires. So a
 * parameter is a buffer and an offset in bytes, which the kernel adds first. */
#define PE_READ(type, name) __global const type *name, const ulong name##_at
#define PE_WRITE(type, name) __global type *name, const ulong name##_at
#define PE_READ_AT(type, name)                                                                     \
    name = (__global const type *)((__global const uchar *)name + name##_at);
#define PE_WRITE_AT(type, name) name = (__global type *)((__global uchar *)name + name##_at);

/* A half is a storage type: loaded and stored, never a variable. */
#define pe_load_half(p, i) vload_half(i, p)
#define pe_store_half(p, i, v) vstore_half(v, i, p)

PE_FUNCTION float pe_rounded_half(float x) {
    ushort bits;
    vstore_half(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
}

#include "pe_gpu_common.h"
