/* Loads OpenCL's functions, and describes its errors. */
#include "pe_opencl_driver.h"

#include <dlfcn.h>
#include <string.h>

/* The ICD loader on Linux, and a phone's driver itself. */
static const char *const LIBRARIES[] = {"libOpenCL.so.1", "libOpenCL.so"};

enum { LIBRARY_COUNT = sizeof LIBRARIES / sizeof *LIBRARIES };

/* Resolves all functions. Returns the name of the first missing symbol, or NULL. */
static const char *find_functions(pe_opencl_driver *driver) {
    const char *lacking = NULL;
#define FIND(name, symbol, result, arguments)                                                      \
    driver->name = (result(*) arguments)dlsym(driver->library, symbol);                            \
    lacking = driver->name || lacking ? lacking : symbol;
    PE_OPENCL_FUNCTIONS(FIND)
#undef FIND
    return lacking;
}

pe_status pe_opencl_load(pe_opencl_driver *driver, char *message) {
    char why[PE_MESSAGE_BYTES / 2] = "";
    for (int i = 0; !driver->library && i < LIBRARY_COUNT; i++) {
        driver->library = dlopen(LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
        const char *error = driver->library || *why ? NULL : dlerror();
        strncat(why, error ? error : "", sizeof why - 1 - strlen(why));
    }
    if (!driver->library) {
        return pe_fail(message, PE_ERROR_SYSTEM,
                       "this machine has no OpenCL (%s): install the GPU's driver and "
                       "ocl-icd-libopencl1 or what your system calls it, or compile for the "
                       "backend c",
                       why);
    }
    const char *lacking = find_functions(driver);
    return lacking ? pe_fail(message, PE_ERROR_SYSTEM,
                             "the OpenCL library lacks %s, and the program needs OpenCL 1.2: "
                             "install a newer driver",
                             lacking)
                   : PE_OK;
}

/* The symbol of a function in the library. */
static const char *symbol_of(const char *name) {
    static const char *const names[][2] = {
#define NAMES(field, symbol, result, arguments) {#field, symbol},
        PE_OPENCL_FUNCTIONS(NAMES)
#undef NAMES
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], name) == 0) {
            return names[i][1];
        }
    }
    return name;
}

pe_status pe_opencl_fail(const char *call, int error, char *message) {
    static const struct {
        int error;
        const char *text;
    } known[] = {
        {-1, "no such device"},
        {-2, "the device cannot be had now"},
        {-3, "the driver has no compiler"},
        {-4, "the device's memory is full"},
        {-5, "the device's resources are used up, or a kernel failed: what the session trained "
             "since it was saved may be lost; open another one"},
        {-6, "this machine's memory is full"},
        {-14, "a kernel before it failed: what the session trained since it was saved is lost; "
              "open another one"},
        {-36, "the device is lost, and what the session trained since it was saved with it; open "
              "another one"},
        {-54, "groups are larger than the device takes"},
        {-61, "a buffer of this size is none of the device's"},
        {-1001, "no driver is registered: install the GPU's, which puts a file into "
                "/etc/OpenCL/vendors"},
    };
    const char *text = "nothing more is known";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        text = known[i].error == error ? known[i].text : text;
    }
    return pe_fail(message, PE_ERROR_SYSTEM, "%s: error %d, %s", symbol_of(call), error, text);
}
