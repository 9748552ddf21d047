/* The dialect in Slang, for Vulkan 1.2 with device addresses. `slang_text.py` rewrites pointers to
 * shared memory and to variables. */
typedef int64_t pe_i64;
typedef uint64_t pe_u64;
typedef uint32_t pe_u32;
typedef uint16_t pe_u16;
typedef uint8_t pe_u8;
typedef int8_t pe_i8;
typedef uint16_t pe_half;

#define PE_KERNEL [shader("compute")][numthreads(PE_ITEMS, 1, 1)]
#define PE_FUNCTION [ForceInline] static
#define PE_LOCAL(type) Ptr<type, Access.ReadWrite, AddressSpace.GroupShared>
#define PE_SHARED(type, name, count)                                                               \
    static groupshared type name##_all[count];                                                     \
    PE_LOCAL(type) name = __getAddress(name##_all[0])
#define PE_PRIVATE
#define PE_TABLE static const
#define PE_UNROLL [unroll]
#define PE_MATH(name) pe_##name
#define PE_NAN asfloat(0x7FC00000)
#define PE_INFINITY asfloat(0x7F800000)

#define pe_barrier() GroupMemoryBarrierWithGroupSync()
#define pe_bits(x) asuint(x)
#define pe_from_bits(x) asfloat(x)

/* The address of a launch's pointers, and the first group of this dispatch: a device limits the
 * groups of one. */
struct pe_start {
    pe_u64 pointers;
    pe_u32 group;
};

static int pe_own_item, pe_own_group;

int pe_item() { return pe_own_item; }
int pe_group() { return pe_own_group; }

#define PE_ENTRY                                                                                   \
    uint3 pe_item_at : SV_GroupThreadID, uint3 pe_group_at : SV_GroupID, uniform pe_start pe_from
#define PE_BEGIN                                                                                   \
    pe_own_item = (int)pe_item_at.x;                                                               \
    pe_own_group = (int)(pe_group_at.x + pe_from.group);
#define PE_POINTER(type, name, number)                                                             \
    Ptr<type> name = Ptr<type>(Ptr<pe_u64>(pe_from.pointers)[number]);

/* A keyword of Slang that kernels use as a name. */
#define out pe_out

pe_i64 pe_wide(pe_i64 x) { return x; }
pe_i64 pe_wide(float x) { return pe_i64(x); }
pe_i64 pe_wide(int x) { return pe_i64(pe_u64(pe_u32(x)) | pe_u64(pe_u32(x >> 31)) << 32); }

#include "pe_gpu_common.h"
#include "pe_gpu_half.h"
#include "pe_gpu_math.h"
#include "pe_vulkan_math.h"
