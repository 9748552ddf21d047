/* Loads the CUDA driver's functions, and describes its errors. */
#include "pe_cuda_driver.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

/* Errors of cuInit and later calls that are caused by the machine. */
enum { STUB = 34, NO_DEVICE = 100, OTHER_DRIVER = 803, LOST_FROM = 700, LOST_TO = 720 };

/* Resolves all functions. Returns the name of the first missing symbol, or NULL. */
static const char *find_functions(pe_cuda_driver *driver) {
    const char *lacking = NULL;
#define FIND(name, symbol, arguments)                                                              \
    driver->name = (int(*) arguments)dlsym(driver->library, symbol);                               \
    lacking = driver->name || lacking ? lacking : symbol;
    PE_CUDA_FUNCTIONS(FIND)
#undef FIND
    return lacking;
}

pe_status pe_cuda_load(pe_cuda_driver *driver, int compiler, char *message) {
    driver->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        const char *why = dlerror();
        return pe_fail(message, PE_ERROR_SYSTEM,
                       "this machine has no CUDA driver (%s): install NVIDIA's, which on a Jetson "
                       "is a part of JetPack, or compile for the backend c",
                       why ? why : LIBRARY);
    }
    const char *lacking = find_functions(driver);
    const int wanted = compiler / 1000 * 1000; /* a driver accepts code of all minor versions */
    const int error = driver->driver_version ? driver->driver_version(&driver->version) : 0;
    if (error) {
        return pe_cuda_fail(driver, "driver_version", error, message);
    }
    if (driver->version < wanted) {
        return pe_fail(
            message, PE_ERROR_SYSTEM,
            "the CUDA driver is of version %d.%d, and the program needs %d.%d: install a "
            "newer driver, on a Jetson JetPack 6 or later",
            driver->version / 1000, driver->version % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
    }
    return lacking ? pe_fail(message, PE_ERROR_SYSTEM,
                             "the CUDA driver (%d.%d) lacks %s: install NVIDIA's driver anew",
                             driver->version / 1000, driver->version % 1000 / 10, lacking)
                   : PE_OK;
}

void pe_cuda_unload(pe_cuda_driver *driver) {
    if (driver->library) {
        dlclose(driver->library);
    }
    driver->library = NULL;
}

/* The fix for an error. */
static const char *advice(int error) {
    switch (error) {
    case STUB:
        return ": the library found is a stub for linking, and no driver";
    case NO_DEVICE:
        return ": see whether nvidia-smi lists a GPU, and what CUDA_VISIBLE_DEVICES hides";
    case OTHER_DRIVER:
        return ": library and kernel module of the driver differ; restart the machine";
    default:
        return error >= LOST_FROM && error < LOST_TO
                   ? ": what the session trained since it was saved is lost; open another one"
                   : "";
    }
}

/* The symbol of a function in the library. */
static const char *symbol_of(const char *name) {
    static const char *const names[][2] = {
#define NAMES(field, symbol, arguments) {#field, symbol},
        PE_CUDA_FUNCTIONS(NAMES)
#undef NAMES
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], name) == 0) {
            return names[i][1];
        }
    }
    return name;
}

pe_status pe_cuda_fail(const pe_cuda_driver *driver, const char *call, int error, char *message) {
    const char *name = NULL, *text = NULL;
    if (driver->error_name && driver->error_string) {
        driver->error_name(error, &name);
        driver->error_string(error, &text);
    }
    return pe_fail(message, PE_ERROR_SYSTEM, "%s: %s, %s (error %d)%s", symbol_of(call),
                   name ? name : "an unknown error", text ? text : "nothing more is known", error,
                   advice(error));
}
