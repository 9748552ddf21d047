/* OpenCL 1.2 as a table of functions, loaded at run time: builds need no OpenCL. */
#ifndef PE_OPENCL_DRIVER_H
#define PE_OPENCL_DRIVER_H

#include "pe.h"

/* cl_bitfield. */
typedef uint64_t pe_opencl_bits;

/* Field, symbol in the library, result, arguments. An `int` result is an error code or 0; functions
 * that create an object return the error through their last argument. */
#define PE_OPENCL_FUNCTIONS(F)                                                                     \
    F(platforms, "clGetPlatformIDs", int, (unsigned room, void **found, unsigned *count))          \
    F(devices, "clGetDeviceIDs", int,                                                              \
      (void *platform, pe_opencl_bits kinds, unsigned room, void **found, unsigned *count))        \
    F(device_info, "clGetDeviceInfo", int,                                                         \
      (void *device, unsigned what, size_t room, void *value, size_t *bytes))                      \
    F(context_make, "clCreateContext", void *,                                                     \
      (const intptr_t *properties, unsigned count, void *const *devices,                           \
       void (*notify)(const char *, const void *, size_t, void *), void *user, int *error))        \
    F(context_release, "clReleaseContext", int, (void *context))                                   \
    F(queue_make, "clCreateCommandQueue", void *,                                                  \
      (void *context, void *device, pe_opencl_bits properties, int *error))                        \
    F(queue_release, "clReleaseCommandQueue", int, (void *queue))                                  \
    F(queue_finish, "clFinish", int, (void *queue))                                                \
    F(program_make, "clCreateProgramWithSource", void *,                                           \
      (void *context, unsigned count, const char **texts, const size_t *bytes, int *error))        \
    F(program_build, "clBuildProgram", int,                                                        \
      (void *program, unsigned count, void *const *devices, const char *options,                   \
       void (*notify)(void *, void *), void *user))                                                \
    F(program_log, "clGetProgramBuildInfo", int,                                                   \
      (void *program, void *device, unsigned what, size_t room, void *value, size_t *bytes))       \
    F(program_release, "clReleaseProgram", int, (void *program))                                   \
    F(kernel_make, "clCreateKernel", void *, (void *program, const char *name, int *error))        \
    F(kernel_argument, "clSetKernelArg", int,                                                      \
      (void *kernel, unsigned number, size_t bytes, const void *value))                            \
    F(kernel_group, "clGetKernelWorkGroupInfo", int,                                               \
      (void *kernel, void *device, unsigned what, size_t room, void *value, size_t *bytes))        \
    F(kernel_release, "clReleaseKernel", int, (void *kernel))                                      \
    F(memory_make, "clCreateBuffer", void *,                                                       \
      (void *context, pe_opencl_bits flags, size_t bytes, void *host, int *error))                 \
    F(memory_release, "clReleaseMemObject", int, (void *memory))                                   \
    F(copy_there, "clEnqueueWriteBuffer", int,                                                     \
      (void *queue, void *memory, unsigned waits, size_t offset, size_t bytes, const void *from,   \
       unsigned count, void *const *events, void **event))                                         \
    F(copy_here, "clEnqueueReadBuffer", int,                                                       \
      (void *queue, void *memory, unsigned waits, size_t offset, size_t bytes, void *to,           \
       unsigned count, void *const *events, void **event))                                         \
    F(launch, "clEnqueueNDRangeKernel", int,                                                       \
      (void *queue, void *kernel, unsigned dimensions, const size_t *from, const size_t *items,    \
       const size_t *group, unsigned count, void *const *events, void **event))

typedef struct pe_opencl_driver {
    void *library;
#define PE_OPENCL_FIELD(name, symbol, result, arguments) result(*name) arguments;
    PE_OPENCL_FUNCTIONS(PE_OPENCL_FIELD)
#undef PE_OPENCL_FIELD
} pe_opencl_driver;

/* Loads the library and never unloads it, because driver threads outlive their objects. An error
 * names what is missing. */
pe_status pe_opencl_load(pe_opencl_driver *driver, char *message);

/* Fails with the description of an error returned by the function `call`. */
pe_status pe_opencl_fail(const char *call, int error, char *message);

#endif
