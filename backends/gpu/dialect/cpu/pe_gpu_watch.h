/* Annotations for a sanitizer of a test: fibers, barriers, local memory; no-ops without one.
 *
 * The kernels are built by it, and the emulation is not, but told which one there is:
 *
 * PE_GPU_BOUNDS   the address sanitizer knows a fiber's stack, and finds each read and write of
 *                 local memory beside its arrays
 * PE_GPU_RACES    to the thread sanitizer each item of a launch is a thread. Nothing orders items
 *                 but barriers of their own group, and nothing orders groups, so that two items
 *                 that meet at one place of any memory, one of them to write, are a race
 */
#ifndef PE_GPU_WATCH_H
#define PE_GPU_WATCH_H

#include <stddef.h>

#if defined(PE_GPU_BOUNDS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(PE_GPU_RACES)
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

/* Groups whose items are watched at once, each by stacks and local memory of its own: those of one
 * round are compared, and rounds follow one another. */
enum {
#ifdef PE_GPU_RACES
    PE_WATCHED_GROUPS = 16,
    PE_WATCHED_ITEMS = 512,
    PE_WATCHES_RACES = 1,
#else
    PE_WATCHED_GROUPS = 1,
    PE_WATCHED_ITEMS = 256,
    PE_WATCHES_RACES = 0,
#endif
};

/* What a sanitizer knows a fiber by: its thread, or its stack. */
typedef struct pe_gpu_watched {
    void *thread, *kept;
    const void *bottom;
    size_t bytes;
} pe_gpu_watched;

#ifdef PE_GPU_RACES
/* Barriers take turns: an item that is at the next one already must not be taken for one that has
 * come to this. Eight bytes each, as much as the sanitizer tells apart. */
static struct {
    long start, end, barriers[PE_WATCHED_GROUPS][2];
} pe_gpu_points;
#endif

/* Before the processor goes on with another fiber; `leaver` is NULL where it ends. */
static inline void pe_watch_leave(pe_gpu_watched *leaver, const pe_gpu_watched *next) {
    (void)leaver;
    (void)next;
#if defined(PE_GPU_BOUNDS)
    __sanitizer_start_switch_fiber(leaver ? &leaver->kept : NULL, next->bottom, next->bytes);
#elif defined(PE_GPU_RACES)
    __tsan_switch_to_fiber(next->thread, __tsan_switch_to_fiber_no_sync);
#endif
}

/* After it did, on the stack of the other; `host` learns where it was from a fiber's first time. */
static inline void pe_watch_arrive(const pe_gpu_watched *own, pe_gpu_watched *host) {
    (void)own;
    (void)host;
#ifdef PE_GPU_BOUNDS
    __sanitizer_finish_switch_fiber(own->kept, host ? &host->bottom : NULL,
                                    host ? &host->bytes : NULL);
#endif
}

/* The host is the thread that launches. */
static inline void pe_watch_launch(pe_gpu_watched *host) {
    (void)host;
#ifdef PE_GPU_RACES
    host->thread = __tsan_get_current_fiber();
#endif
}

/* An item begins on this stack: it knows what the host did before. */
static inline void pe_watch_begin(pe_gpu_watched *item, const void *bottom, size_t bytes) {
    item->kept = NULL;
    item->bottom = bottom;
    item->bytes = bytes;
#ifdef PE_GPU_RACES
    if (!item->thread) {
        item->thread = __tsan_create_fiber(0);
    }
    __tsan_release(&pe_gpu_points.start);
#endif
}

static inline void pe_watch_first(void) {
#ifdef PE_GPU_RACES
    __tsan_acquire(&pe_gpu_points.start);
#endif
}

static inline void pe_watch_last(void) {
#ifdef PE_GPU_RACES
    __tsan_release(&pe_gpu_points.end);
#endif
}

/* The host knows what all items did. */
static inline void pe_watch_round(void) {
#ifdef PE_GPU_RACES
    __tsan_acquire(&pe_gpu_points.end);
#endif
}

static inline void pe_watch_wait(int group, unsigned turn) {
    (void)group;
    (void)turn;
#ifdef PE_GPU_RACES
    __tsan_release(&pe_gpu_points.barriers[group][turn % 2]);
#endif
}

static inline void pe_watch_go_on(int group, unsigned turn) {
    (void)group;
    (void)turn;
#ifdef PE_GPU_RACES
    __tsan_acquire(&pe_gpu_points.barriers[group][turn % 2]);
#endif
}

/* Before a group: nothing of local memory is anybody's. */
static inline void pe_watch_group(unsigned char *local, size_t bytes) {
    (void)local;
    (void)bytes;
#ifdef PE_GPU_BOUNDS
    __asan_poison_memory_region(local, bytes);
#endif
}

/* Around what the emulation itself writes to local memory: `bytes` of `room` are an array. */
static inline void pe_watch_open(unsigned char *place, size_t room) {
    (void)place;
    (void)room;
#if defined(PE_GPU_BOUNDS)
    __asan_unpoison_memory_region(place, room);
#elif defined(PE_GPU_RACES)
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

static inline void pe_watch_close(unsigned char *place, size_t bytes, size_t room) {
    (void)place;
    (void)bytes;
    (void)room;
#if defined(PE_GPU_BOUNDS)
    __asan_poison_memory_region(place + bytes, room - bytes);
#elif defined(PE_GPU_RACES)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
}

#endif
