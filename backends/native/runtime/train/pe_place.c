/* Folders of checkpoints: step-0000001000.safetensors and so on. */
#include "pe_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pe_lock.h"

#define BEFORE "step-"
#define BEHIND ".safetensors"
#define DIGITS 10 /* digits of INT32_MAX, so that names sort like numbers */

bool pe_place_is_folder(const pe_place *place) {
    struct stat status;
    const size_t length = strlen(place->path);
    return (length > 0 && place->path[length - 1] == '/') ||
           (stat(place->path, &status) == 0 && S_ISDIR(status.st_mode));
}

/* Joins the folder and a name; false when that is too long. */
static bool join(const pe_place *place, const char *name, char *path) {
    const size_t length = strlen(place->path);
    const char *slash = length > 0 && place->path[length - 1] == '/' ? "" : "/";
    const int all = snprintf(path, PE_ST_PATH_BYTES, "%s%s%s", place->path, slash, name);
    return all >= 0 && all < PE_ST_PATH_BYTES;
}

pe_status pe_place_path(const pe_place *place, int64_t step, char *path, char *message) {
    char name[64];
    snprintf(name, sizeof name, BEFORE "%0*lld" BEHIND, DIGITS, (long long)step);
    const bool short_enough = pe_place_is_folder(place) ? join(place, name, path)
                                                        : snprintf(path, PE_ST_PATH_BYTES, "%s",
                                                                   place->path) < PE_ST_PATH_BYTES;
    return short_enough ? PE_OK
                        : pe_fail(message, PE_ERROR_SYSTEM, "cannot write %s: %s", place->path,
                                  strerror(ENAMETOOLONG));
}

/* The step of a checkpoint's name, -1 for other files; *rest is the remainder of the name. */
static int64_t step_in(const char *name, const char **rest) {
    const size_t before = sizeof BEFORE - 1, behind = sizeof BEHIND - 1;
    if (strncmp(name, BEFORE, before) != 0 || strspn(name + before, "0123456789") != DIGITS ||
        strncmp(name + before + DIGITS, BEHIND, behind) != 0) {
        return -1;
    }
    *rest = name + before + DIGITS + behind;
    return strtoll(name + before, NULL, 10);
}

int64_t pe_place_newest(const pe_place *place, int64_t below) {
    struct stat status;
    if (!pe_place_is_folder(place)) {
        return below > 0 && stat(place->path, &status) == 0 ? 0 : -1;
    }
    DIR *folder = opendir(place->path);
    int64_t newest = -1;
    for (const struct dirent *item = folder ? readdir(folder) : NULL; item;
         item = readdir(folder)) {
        const char *rest = "";
        const int64_t step = step_in(item->d_name, &rest);
        if (*rest == '\0' && step > newest && step < below) {
            newest = step;
        }
    }
    if (folder) {
        closedir(folder);
    }
    return newest;
}

/* Removes an unfinished file unless a saver holds it. */
static void remove_partial(const char *path) {
    struct stat status;
    const int file = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) {
        if (pe_lock(file) == 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
            unlink(path);
        }
        close(file);
    }
}

/* The smallest step that is kept. */
static int64_t oldest_kept(const pe_place *place) {
    int64_t step = INT64_MAX;
    for (int i = 0; i < place->keep && step >= 0; i++) {
        step = pe_place_newest(place, step);
    }
    return step;
}

void pe_place_tidy(const pe_place *place) {
    DIR *folder = pe_place_is_folder(place) ? opendir(place->path) : NULL;
    if (!folder) {
        return;
    }
    const int64_t least = oldest_kept(place);
    for (const struct dirent *item = readdir(folder); item; item = readdir(folder)) {
        const char *rest = "";
        char path[PE_ST_PATH_BYTES];
        const int64_t step = step_in(item->d_name, &rest);
        if (step < 0 || !join(place, item->d_name, path)) {
            continue;
        }
        if (strncmp(rest, ".partial", 8) == 0) {
            remove_partial(path);
        } else if (*rest == '\0' && step < least) {
            unlink(path);
        }
    }
    closedir(folder);
}
