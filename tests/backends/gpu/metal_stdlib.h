/* The part of Metal's standard library that kernels call, in C++ for OpenCL, which has Metal's
 * address spaces under other names: clang checks a kernel's types, names and address spaces, and
 * compiles it for this CPU, where pe_gpu_cpu.c runs its threads.
 *
 * Only what Apple documents is declared. Comments name sections of the Metal Shading Language
 * Specification. OpenCL's own functions are left out (-cl-no-stdinc), as Metal lacks them. */
#define __METAL_VERSION__ 310

/* "Address Spaces"; constant and kernel are keywords here too. */
#define device __global
#define threadgroup __local
#define thread __private

/* "Scalar Data Types" */
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

/* "Type Conversions and Re-interpreting Data" */
template <typename To, typename From> To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type needs types of one size");
    return __builtin_bit_cast(To, from);
}

/* "Math Functions" */
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()

#define METAL_FUNCTION(name, parameters, arguments)                                                \
    extern "C" float name##f parameters;                                                           \
    namespace metal {                                                                              \
    inline float name parameters { return name##f arguments; }                                     \
    }
#define METAL_PRECISE(name, parameters, arguments)                                                 \
    METAL_FUNCTION(name, parameters, arguments)                                                    \
    namespace metal {                                                                              \
    namespace precise {                                                                            \
    inline float name parameters { return name##f arguments; }                                     \
    }                                                                                              \
    }

METAL_FUNCTION(fabs, (float x), (x))
METAL_FUNCTION(floor, (float x), (x))
METAL_FUNCTION(ceil, (float x), (x))
METAL_FUNCTION(trunc, (float x), (x))
METAL_FUNCTION(rint, (float x), (x))
METAL_FUNCTION(fma, (float a, float b, float c), (a, b, c))

METAL_PRECISE(acos, (float x), (x))
METAL_PRECISE(acosh, (float x), (x))
METAL_PRECISE(asin, (float x), (x))
METAL_PRECISE(asinh, (float x), (x))
METAL_PRECISE(atan, (float x), (x))
METAL_PRECISE(atan2, (float y, float x), (y, x))
METAL_PRECISE(atanh, (float x), (x))
METAL_PRECISE(cos, (float x), (x))
METAL_PRECISE(cosh, (float x), (x))
METAL_PRECISE(exp, (float x), (x))
METAL_PRECISE(fmod, (float x, float y), (x, y))
METAL_PRECISE(log, (float x), (x))
METAL_PRECISE(pow, (float x, float y), (x, y))
METAL_PRECISE(sin, (float x), (x))
METAL_PRECISE(sinh, (float x), (x))
METAL_PRECISE(sqrt, (float x), (x))
METAL_PRECISE(tan, (float x), (x))
METAL_PRECISE(tanh, (float x), (x))

/* "Threadgroup and SIMD-Group Synchronization Functions" */
extern "C" void pe_gpu_wait(int line);

namespace metal {
enum class mem_flags { mem_none, mem_device, mem_threadgroup };

inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE()) { pe_gpu_wait(line); }
} /* namespace metal */
