/* Locks and owners of files. WASI has neither; there, one program uses a file at a time. */
#ifndef PE_LOCK_H
#define PE_LOCK_H

#include <stdbool.h>
#include <sys/stat.h>

#ifdef __wasi__

static inline int pe_lock(int file) { return (void)file, 0; }

static inline bool pe_owns(const struct stat *file) { return (void)file, true; }

#else

#include <sys/file.h>
#include <unistd.h>

/* Locks an open file for this process: 0, or -1 with errno. Closing it ends the lock. */
static inline int pe_lock(int file) { return flock(file, LOCK_EX | LOCK_NB); }

static inline bool pe_owns(const struct stat *file) { return file->st_uid == geteuid(); }

#endif

#endif
