/* Atomic replacement of a file: a partial file next to its path, renamed at the end.
 *
 * The partial file is path.partial, or path.partial1 and so on if a live process has locked that.
 * The lock ensures that two processes never write one file, and that the next run takes over the
 * file of a killed one. A link at the path is itself replaced, as files.py does.
 */
#define _GNU_SOURCE /* fallocate */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "pe_lock.h"
#include "pe_safetensors.h"

#define PE_SAVERS 64 /* of one path at a time */

/* Outcome of one attempt to lock a partial file. */
typedef enum attempt { TAKEN, HELD_BY_ANOTHER, GONE, FAILED } attempt;

static pe_status refuse(const pe_st_writer *writer, int error, char *message) {
    return pe_fail(message, PE_ERROR_SYSTEM, "cannot write %s: %s", writer->path, strerror(error));
}

/* Checks that only a regular file, or a link to one, is replaced. `*mode` becomes its
 * permissions, if it exists. */
static pe_status check_place(const pe_st_writer *writer, mode_t *mode, char *message) {
    struct stat status;
    if (stat(writer->path, &status) != 0) {
        return errno == ENOENT ? PE_OK : refuse(writer, errno, message);
    }
    *mode = status.st_mode & 0777;
    return S_ISREG(status.st_mode)
               ? PE_OK
               : pe_fail(message, PE_ERROR_SYSTEM,
                         "cannot write %s: it exists and is no regular file; choose another path",
                         writer->path);
}

/* Whether the open file still has the partial file's name, and no other link: a hard link to
 * another file must not be truncated. */
static attempt check_partial(const pe_st_writer *writer) {
    struct stat opened, named;
    if (fstat(writer->file, &opened) != 0) {
        return FAILED;
    }
    if (lstat(writer->partial, &named) != 0 || named.st_ino != opened.st_ino ||
        named.st_dev != opened.st_dev) {
        return GONE; /* its saver renamed it between our open and our lock */
    }
    const bool ours = S_ISREG(opened.st_mode) && opened.st_nlink == 1 && pe_owns(&opened);
    return ours ? TAKEN : HELD_BY_ANOTHER;
}

static attempt take_partial(pe_st_writer *writer) {
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    writer->file = open(writer->partial, flags, 0644);
    if (writer->file < 0) {
        const int error = errno;
        struct stat named; /* a link, a folder, or a file that we may not write */
        const bool foreign = lstat(writer->partial, &named) == 0;
        errno = error;
        return foreign ? HELD_BY_ANOTHER : FAILED;
    }
    attempt result = FAILED;
    if (pe_lock(writer->file) == 0) {
        result = check_partial(writer);
    } else if (errno == EWOULDBLOCK) {
        result = HELD_BY_ANOTHER;
    }
    if (result != TAKEN) {
        const int error = errno;
        close(writer->file);
        writer->file = -1;
        errno = error;
    }
    return result;
}

/* Names the partial file of this number; false when the name is too long. */
static bool name_partial(pe_st_writer *writer, int number) {
    char suffix[16] = "";
    if (number) {
        snprintf(suffix, sizeof suffix, "%d", number);
    }
    const size_t size = sizeof writer->partial;
    const int length = snprintf(writer->partial, size, "%s.partial%s", writer->path, suffix);
    return length >= 0 && (size_t)length < size;
}

pe_status pe_st_take_place(pe_st_writer *writer, const char *path, char *message) {
    mode_t mode = 0;
    writer->path = path;
    writer->file = -1;
    const pe_status status =
        *path ? check_place(writer, &mode, message) : refuse(writer, ENOENT, message);
    if (status != PE_OK) {
        return status;
    }
    for (int number = 0; number < PE_SAVERS; number++) {
        if (!name_partial(writer, number)) {
            return refuse(writer, ENAMETOOLONG, message);
        }
        attempt result = take_partial(writer);
        while (result == GONE) {
            result = take_partial(writer);
        }
        if (result == FAILED) {
            return refuse(writer, errno, message);
        }
        if (result == TAKEN) {
            if ((mode && fchmod(writer->file, mode) != 0) || ftruncate(writer->file, 0) != 0) {
                const int error = errno;
                pe_st_abandon(writer);
                return refuse(writer, error, message);
            }
            return PE_OK;
        }
    }
    return pe_fail(message, PE_ERROR_SYSTEM,
                   "cannot write %s: %d files %s.partial* are in use or not ours; remove them",
                   path, PE_SAVERS, path);
}

/* Whether the file can grow to this size: an errno value, or 0. File systems that cannot reserve
 * space are asked how much is left. */
static int try_to_grow(int file, uint64_t bytes) {
    struct statvfs system;
#ifdef __linux__
    if (bytes == 0 || fallocate(file, 0, 0, (off_t)bytes) == 0) {
        return 0;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
        return errno;
    }
#endif
    const bool known = fstatvfs(file, &system) == 0 && system.f_blocks > 0;
    return known && system.f_bavail < bytes / system.f_frsize + 1 ? ENOSPC : 0;
}

pe_status pe_st_try_place(const char *path, uint64_t bytes, char *message) {
    pe_st_writer writer;
    pe_status status = pe_st_take_place(&writer, path, message);
    if (status == PE_OK) {
        const int error = try_to_grow(writer.file, bytes);
        if (error) {
            status = pe_fail(message, PE_ERROR_SYSTEM, "cannot write %s of %llu bytes: %s", path,
                             (unsigned long long)bytes, strerror(error));
        }
        pe_st_abandon(&writer);
    }
    return status;
}

void pe_st_abandon(pe_st_writer *writer) {
    if (writer->file >= 0) {
        unlink(writer->partial); /* while it is locked: later it may belong to another process */
        close(writer->file);
        writer->file = -1;
    }
}

/* The rename itself lasts only when the folder is synced; file systems that cannot do it are
 * ignored. */
static void sync_folder(const char *path) {
    char folder[PE_ST_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) {
        slash[slash == folder] = '\0';
    }
    const int file = open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)fsync(file);
        close(file);
    }
}

pe_status pe_st_commit(pe_st_writer *writer, char *message) {
    if (fsync(writer->file) != 0 || rename(writer->partial, writer->path) != 0) {
        const int error = errno;
        pe_st_abandon(writer);
        return refuse(writer, error, message);
    }
    close(writer->file);
    writer->file = -1;
    sync_folder(writer->path);
    return PE_OK;
}
