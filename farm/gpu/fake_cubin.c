/* Reads the kernels' properties from a cubin, and finds their CPU twins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

enum { MACHINE_CUDA = 190, INFO_PARAM = 0x17, INFO_MAX_THREADS = 0x05, MOST_LIBRARIES = 256 };
#define INFO ".nv.info."

static void *libraries[MOST_LIBRARIES];
static int library_count;

/* Tests in this process register the twins of each program. */
SHOWN int fake_cuda_add_twins(const char *path);

int fake_cuda_add_twins(const char *path) {
    void *library = library_count < MOST_LIBRARIES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library) {
        libraries[library_count++] = library;
    }
    return library ? OK : INVALID_VALUE;
}

/* A separate program finds them beside this library. */
static void find_library(void) {
    Dl_info info;
    char path[4096];
    if (library_count == 0 && dladdr((void *)&fake_settings, &info)) {
        const char *slash = strrchr(info.dli_fname, '/');
        const int length = slash ? (int)(slash - info.dli_fname) : 0;
        snprintf(path, sizeof path, "%.*s/twins.so", length, info.dli_fname);
        fake_cuda_add_twins(path);
    }
}

bool fake_find_twin(function *f) {
    find_library();
    for (int i = 0; i < library_count; i++) {
        const twin *twins = dlsym(libraries[i], "pe_twins");
        const int *count = dlsym(libraries[i], "pe_twin_count");
        for (int j = 0; twins && count && j < *count; j++) {
            if (strcmp(twins[j].name, f->name) == 0) {
                f->twin = &twins[j];
                f->run = (void (*)(const twin *, void *const *))dlsym(libraries[i], "pe_gpu_run");
                return f->run != NULL;
            }
        }
    }
    fprintf(stderr, "fake CUDA: no twin of %s\n", f->name);
    return false;
}

/* Attributes: format, kind, then a value or a length of 16 bits. */
static void read_info(function *f, const unsigned char *p, const unsigned char *end) {
    f->only_pointers = true;
    f->most_items = 1024;
    while (p + 4 <= end) {
        const size_t length = p[0] == 4 ? (size_t)(p[2] | p[3] << 8) : 0;
        uint32_t words[4] = {0};
        memcpy(words, p + 4, length < sizeof words ? length : sizeof words);
        if (p[0] == 4 && p[1] == INFO_PARAM) { /* index, ordinal and offset, size */
            f->pointers++;
            f->only_pointers &= words[2] >> 18 == sizeof(uint64_t);
        } else if (p[0] == 4 && p[1] == INFO_MAX_THREADS) {
            f->most_items = (int)(words[0] * words[1] * words[2]);
        }
        p += 4 + length;
    }
}

/* A section of a kernel's attributes becomes a function; false for one without a twin. */
static bool read_section(module *m, const unsigned char *image, const Elf64_Shdr *section,
                         const char *name) {
    function *f = &m->functions[m->count++];
    *f = (function){.twin = NULL};
    snprintf(f->name, sizeof f->name, "%s", name + strlen(INFO));
    const unsigned char *info = image + section->sh_offset;
    read_info(f, info, info + section->sh_size);
    return fake_find_twin(f);
}

int fake_read_cubin(const unsigned char *image, int sm, module **made) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)image;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_machine != MACHINE_CUDA) {
        return INVALID_IMAGE;
    }
    if ((int)(head->e_flags & 0xff) != sm) {
        return NO_BINARY;
    }
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + head->e_shoff);
    const char *names = (const char *)image + sections[head->e_shstrndx].sh_offset;
    module *m = calloc(1, sizeof *m + head->e_shnum * sizeof(function));
    for (int i = 0; m && i < head->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        if (strncmp(name, INFO, strlen(INFO)) == 0 && !read_section(m, image, &sections[i], name)) {
            free(m);
            return NOT_FOUND;
        }
    }
    *made = m;
    return m ? OK : OUT_OF_MEMORY;
}
