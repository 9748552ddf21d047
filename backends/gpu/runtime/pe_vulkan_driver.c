/* Loads Vulkan's library, finds its functions, and describes its errors. */
#include "pe_vulkan_driver.h"

#include <dlfcn.h>
#include <string.h>

/* The library on Linux, and on Android. */
static const char *const LIBRARIES[] = {"libvulkan.so.1", "libvulkan.so"};

enum { LIBRARY_COUNT = sizeof LIBRARIES / sizeof *LIBRARIES };

/* Finds the functions; returns the name of the first that the library lacks, or NULL. */
static const char *find_functions(pe_vulkan_driver *driver) {
    const char *lacking = NULL;
#define FIND(field, result, arguments)                                                             \
    driver->field = (result(*) arguments)dlsym(driver->library, "vk" #field);                      \
    lacking = driver->field || lacking ? lacking : "vk" #field;
#define FIND_CALL(field, arguments) FIND(field, int, arguments)
    PE_VULKAN_CALLS(FIND_CALL)
    PE_VULKAN_ACTIONS(FIND)
#undef FIND
#undef FIND_CALL
    return lacking;
}

pe_status pe_vulkan_load(pe_vulkan_driver *driver, char *message) {
    char why[PE_MESSAGE_BYTES / 2] = "";
    for (int i = 0; !driver->library && i < LIBRARY_COUNT; i++) {
        driver->library = dlopen(LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
        const char *error = driver->library || *why ? NULL : dlerror();
        strncat(why, error ? error : "", sizeof why - 1 - strlen(why));
    }
    if (!driver->library) {
        return pe_fail(message, PE_ERROR_SYSTEM,
                       "this machine has no Vulkan (%s): install the GPU's driver and libvulkan1 "
                       "or what your system calls it, or compile for the backend c",
                       why);
    }
    const char *lacking = find_functions(driver);
    return lacking ? pe_fail(message, PE_ERROR_SYSTEM,
                             "the Vulkan library lacks %s, and the program needs Vulkan 1.2: "
                             "install a newer one",
                             lacking)
                   : PE_OK;
}

pe_status pe_vulkan_fail(const char *call, int error, char *message) {
    static const struct {
        int error;
        const char *text;
    } known[] = {
        {-1, "this machine's memory is full"},
        {-2, "the device's memory is full"},
        {-3, "the driver cannot start"},
        {-4, "the device is lost, with all training since the last checkpoint; open another "
             "session"},
        {-5, "the device's memory cannot be mapped"},
        {-9, "no driver is registered: install the GPU's driver, which adds a file to "
             "/usr/share/vulkan/icd.d"},
    };
    const char *text = "see VkResult in Vulkan's reference";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        text = known[i].error == error ? known[i].text : text;
    }
    return pe_fail(message, PE_ERROR_SYSTEM, "vk%s: error %d, %s", call, error, text);
}
