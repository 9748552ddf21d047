/* Reading of files by position. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pe_safetensors.h"

pe_status pe_st_open(const char *path, int *file, char *message) {
    struct stat status;
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (*file < 0 || fstat(*file, &status) != 0) {
        return pe_fail(message, PE_ERROR_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    }
    if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) { /* read reports a folder */
        return PE_OK;
    }
    close(*file);
    *file = -1;
    return pe_fail(message, PE_ERROR_SYSTEM,
                   "cannot open %s: it is a pipe or a device; copy what it gives to a file", path);
}

pe_status pe_st_size(int file, const char *path, uint64_t *bytes, char *message) {
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size < 0) {
        return pe_fail(message, PE_ERROR_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    }
    *bytes = (uint64_t)status.st_size;
    return PE_OK;
}

pe_status pe_st_read_at(int file, const char *path, uint64_t offset, void *data, size_t bytes,
                        char *message) {
    unsigned char *target = data;
    while (bytes > 0) {
        const ssize_t count = pread(file, target, bytes, (off_t)offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return pe_fail(message, PE_ERROR_SYSTEM, "cannot read %s: %s", path,
                           count == 0        ? "it ends too early"
                           : errno == EISDIR ? "it is a folder; name a file in it"
                                             : strerror(errno));
        }
        target += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return PE_OK;
}
