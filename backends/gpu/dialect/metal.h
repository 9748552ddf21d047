/* The dialect in the Metal Shading Language (MSL) 3. Comments name sections of its specification.
 *
 * Metal's own functions are used wherever it has them; pe_gpu_math.h has the others. */
#include <metal_stdlib>

/* Kernels test for NaN and infinity, which fast math, Metal's default, assumes to be absent
 * ("Options Controlling Math"). Without the pragma they need -fno-fast-math, or MTLMathModeSafe. */
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#elif defined(__FAST_MATH__)
#error "compile these kernels with -fno-fast-math, or fastMathEnabled = NO: they test for NaN"
#endif

typedef long pe_i64;
typedef ulong pe_u64;
typedef uint pe_u32;
typedef ushort pe_u16;
typedef uchar pe_u8;
typedef char pe_i8; /* signed in Metal ("Scalar Data Types") */
typedef ushort pe_half;

#define PE_KERNEL [[max_total_threads_per_threadgroup(PE_ITEMS)]] kernel
#define PE_FUNCTION static inline
#define PE_SHARED(type, name, count) threadgroup type name[count]
#define PE_LOCAL threadgroup
#define PE_GLOBAL device
#define PE_PRIVATE thread
#define PE_TABLE constant
#define PE_UNROLL _Pragma("clang loop unroll(full)")
#define PE_MATH(name) pe_##name
#define PE_NAN NAN
#define PE_INFINITY INFINITY

/* Only a kernel has its position, as arguments ("Kernel Function Input Attributes"). */
#define PE_POSITION                                                                                \
    uint pe_own_item [[thread_position_in_threadgroup]],                                           \
        uint pe_own_group [[threadgroup_position_in_grid]]
#define PE_BUFFER(type, name, number) device type *name [[buffer(number)]]

#define pe_item() ((int)pe_own_item)
#define pe_group() ((int)pe_own_group)
#define pe_barrier() metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup)
#define pe_bits(x) as_type<uint>(x)
#define pe_from_bits(x) as_type<float>(x)

/* "Math Functions": the precise variants have no more than one unit of error for exp, log and the
 * sine, in every math mode; exact functions have one variant. */
#define pe_fabs metal::fabs
#define pe_floor metal::floor
#define pe_ceil metal::ceil
#define pe_trunc metal::trunc
#define pe_rint metal::rint
#define pe_fma metal::fma
#define pe_fmod metal::precise::fmod
#define pe_sqrt metal::precise::sqrt
#define pe_exp metal::precise::exp
#define pe_log metal::precise::log
#define pe_pow metal::precise::pow
#define pe_sin metal::precise::sin
#define pe_cos metal::precise::cos
#define pe_tan metal::precise::tan
#define pe_asin metal::precise::asin
#define pe_acos metal::precise::acos
#define pe_atan metal::precise::atan
#define pe_atan2 metal::precise::atan2
#define pe_sinh metal::precise::sinh
#define pe_cosh metal::precise::cosh
#define pe_tanh metal::precise::tanh
#define pe_asinh metal::precise::asinh
#define pe_acosh metal::precise::acosh
#define pe_atanh metal::precise::atanh

#include "pe_gpu_common.h"
#include "pe_gpu_half.h"
#include "pe_gpu_math.h"
