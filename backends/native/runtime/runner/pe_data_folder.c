/* The pictures below a folder, in their order. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "pe_data_pictures.h"
#include "pe_text.h"

enum { DEEPEST = 16 /* folders within a class */ };

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Compares bytes, independent of the locale. */
static int compare(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_picture(const char *name) {
    const char *ending = strrchr(name, '.');
    return ending && (strcasecmp(ending, ".jpg") == 0 || strcasecmp(ending, ".jpeg") == 0 ||
                      strcasecmp(ending, ".png") == 0);
}

/* Reserves memory for one more than `count` items of `bytes` each; doubles it at powers of 2.
 */
static bool grow(void *items, int64_t count, size_t bytes) {
    void **place = items;
    if (count & (count - 1)) {
        return true;
    }
    void *larger = realloc(*place, (size_t)(count ? 2 * count : 1) * bytes);
    *place = larger ? larger : *place;
    return larger != NULL;
}

static pe_status refuse_memory(const char *path, char *message) {
    return pe_fail(message, PE_ERROR_SYSTEM, "%.300s: there is no memory for its names", path);
}

static pe_status add_file(pe_picture_list *list, const char *path, char *message) {
    char *copy = strdup(path);
    if (!copy || !grow(&list->files, list->file_count, sizeof *list->files)) {
        free(copy);
        return refuse_memory(path, message);
    }
    list->files[list->file_count++] = (pe_picture_file){copy, (int)list->class_count - 1};
    list->classes[list->class_count - 1].pictures++;
    return PE_OK;
}

static pe_status add_class(pe_picture_list *list, const char *name, char *message) {
    char *copy = strdup(name);
    if (!copy || !grow(&list->classes, list->class_count, sizeof *list->classes)) {
        free(copy);
        return refuse_memory(name, message);
    }
    list->classes[list->class_count++] = (pe_picture_class){copy, 0};
    return PE_OK;
}

static pe_status list_folder(const char *folder, int depth, pe_picture_list *list, char *message);

/* Adds the folder's item of this name. A link to a folder is followed only for a class, to avoid
 * cycles. */
static pe_status take(const char *folder, const char *name, int depth, pe_picture_list *list,
                      char *message) {
    char path[PATH_MAX];
    struct stat status;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "the path %.100s... is too long", path);
    }
    const bool there = depth == 0 ? stat(path, &status) == 0 : lstat(path, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) {
        const pe_status added = depth == 0 ? add_class(list, name, message) : PE_OK;
        return added == PE_OK ? list_folder(path, depth + 1, list, message) : added;
    }
    return depth > 0 && is_picture(name) ? add_file(list, path, message) : PE_OK;
}

/* Lists a folder: classes at depth 0, and their pictures below. */
static pe_status list_folder(const char *folder, int depth, pe_picture_list *list, char *message) {
    struct dirent **entries = NULL;
    if (depth > DEEPEST) {
        return pe_fail(message, PE_ERROR_ARGUMENT, "%.300s: its folders are too deep", folder);
    }
    const int count = scandir(folder, &entries, is_visible, compare);
    if (count < 0) {
        return pe_fail(message, PE_ERROR_SYSTEM, "cannot read the folder %.300s: %s", folder,
                       pe_reason(errno));
    }
    pe_status status = PE_OK;
    for (int i = 0; i < count; i++) {
        if (status == PE_OK) {
            status = take(folder, entries[i]->d_name, depth, list, message);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

bool pe_has_folders(const char *path) {
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, is_visible, compare);
    bool found = false;
    for (int i = 0; i < count; i++) {
        char below[PATH_MAX];
        struct stat status;
        const int length = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        found = found || (length > 0 && (size_t)length < sizeof below &&
                          stat(below, &status) == 0 && S_ISDIR(status.st_mode));
        free(entries[i]);
    }
    free(entries);
    return found;
}

pe_status pe_list_pictures(const char *folder, pe_picture_list *list, char *message) {
    *list = (pe_picture_list){.files = NULL};
    const pe_status status = list_folder(folder, 0, list, message);
    return status != PE_OK || list->file_count > 0
               ? status
               : pe_fail(message, PE_ERROR_MISMATCH,
                         "%.300s has no pictures in its class folders; they end in .jpg, .jpeg or "
                         ".png",
                         folder);
}

void pe_drop_pictures(pe_picture_list *list) {
    for (int64_t i = 0; i < list->file_count; i++) {
        free(list->files[i].path);
    }
    for (int64_t i = 0; i < list->class_count; i++) {
        free(list->classes[i].name);
    }
    free(list->files);
    free(list->classes);
    *list = (pe_picture_list){.files = NULL};
}
