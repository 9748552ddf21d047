/* The CUDA driver API as a table of functions, loaded at run time: builds need no CUDA. */
#ifndef PE_CUDA_DRIVER_H
#define PE_CUDA_DRIVER_H

#include "pe.h"

/* An address in the device's memory. */
typedef unsigned long long pe_cuda_address;

/* Name of the field, name in the library, arguments. All return a CUresult. */
#define PE_CUDA_FUNCTIONS(F)                                                                       \
    F(init, "cuInit", (unsigned flags))                                                            \
    F(driver_version, "cuDriverGetVersion", (int *version))                                        \
    F(error_name, "cuGetErrorName", (int error, const char **name))                                \
    F(error_string, "cuGetErrorString", (int error, const char **text))                            \
    F(device_count, "cuDeviceGetCount", (int *count))                                              \
    F(device_get, "cuDeviceGet", (int *device, int number))                                        \
    F(device_name, "cuDeviceGetName", (char *name, int bytes, int device))                         \
    F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))           \
    F(context_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                    \
    F(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
    F(context_push, "cuCtxPushCurrent_v2", (void *context))                                        \
    F(context_pop, "cuCtxPopCurrent_v2", (void **context))                                         \
    F(module_load, "cuModuleLoadData", (void **module, const void *image))                         \
    F(module_unload, "cuModuleUnload", (void *module))                                             \
    F(module_function, "cuModuleGetFunction", (void **function, void *module, const char *name))   \
    F(function_attribute, "cuFuncGetAttribute", (int *value, int attribute, void *function))       \
    F(memory_info, "cuMemGetInfo_v2", (size_t *free, size_t *total))                               \
    F(memory_take, "cuMemAlloc_v2", (pe_cuda_address * address, size_t bytes))                     \
    F(memory_free, "cuMemFree_v2", (pe_cuda_address address))                                      \
    F(copy_there, "cuMemcpyHtoDAsync_v2",                                                          \
      (pe_cuda_address to, const void *from, size_t bytes, void *stream))                          \
    F(copy_here, "cuMemcpyDtoHAsync_v2",                                                           \
      (void *to, pe_cuda_address from, size_t bytes, void *stream))                                \
    F(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                            \
    F(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                        \
    F(stream_synchronize, "cuStreamSynchronize", (void *stream))                                   \
    F(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                          \
    F(capture_end, "cuStreamEndCapture", (void *stream, void **graph))                             \
    F(graph_instantiate, "cuGraphInstantiateWithFlags",                                            \
      (void **made, void *graph, unsigned long long flags))                                        \
    F(graph_destroy, "cuGraphDestroy", (void *graph))                                              \
    F(graph_end, "cuGraphExecDestroy", (void *made))                                               \
    F(graph_launch, "cuGraphLaunch", (void *made, void *stream))                                   \
    F(launch, "cuLaunchKernel",                                                                    \
      (void *function, unsigned groups, unsigned groups_y, unsigned groups_z, unsigned items,      \
       unsigned items_y, unsigned items_z, unsigned shared, void *stream, void **arguments,        \
       void **extra))

typedef struct pe_cuda_driver {
    void *library;
    int version; /* 12060 is CUDA 12.6 */
#define PE_CUDA_FIELD(name, symbol, arguments) int(*name) arguments;
    PE_CUDA_FUNCTIONS(PE_CUDA_FIELD)
#undef PE_CUDA_FIELD
} pe_cuda_driver;

/* Loads the driver, which must support code of this compiler version. An error names what is
 * missing. */
pe_status pe_cuda_load(pe_cuda_driver *driver, int compiler, char *message);

/* Unloads the driver. */
void pe_cuda_unload(pe_cuda_driver *driver);

/* Fails with the driver's description of an error returned by the function `call`. */
pe_status pe_cuda_fail(const pe_cuda_driver *driver, const char *call, int error, char *message);

#endif
