/* Annotations for the sanitizers of tests: fibers, barriers, local memory; no-ops without one.
 *
 * Kernels are built with the sanitizer; the emulation is not, and a macro selects its annotations:
 *
 * PE_GPU_BOUNDS   the address sanitizer has the stack of each fiber, and finds accesses to
 *                 local memory outside its arrays
 * PE_GPU_RACES    for the thread sanitizer each item of a launch is a thread. Only barriers of
 *                 its own group order items, and nothing orders groups: two items that access
 *                 one location of any memory, one of them writing, are a race
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

/* Groups whose items are watched together, each with its own stacks and local memory: races are
 * found within a round, not between rounds. */
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

/* The sanitizer's handle of a fiber: its thread, or its stack. */
typedef struct pe_gpu_watched {
    void *thread, *kept;
    const void *bottom;
    size_t bytes;
} pe_gpu_watched;

#ifdef PE_GPU_RACES
/* Barriers alternate, so that an item at the next barrier is not mistaken for one at this barrier.
 * Eight bytes each, the granularity of the sanitizer. */
static struct {
    long start, end, barriers[PE_WATCHED_GROUPS][2];
} pe_gpu_points;
#endif

/* Before the switch to another fiber; `leaver` is NULL if the current one ends. */
static inline void pe_watch_leave(pe_gpu_watched *leaver, const pe_gpu_watched *next) {
    (void)leaver;
    (void)next;
#if defined(PE_GPU_BOUNDS)
    __sanitizer_start_switch_fiber(leaver ? &leaver->kept : NULL, next->bottom, next->bytes);
#elif defined(PE_GPU_RACES)
    __tsan_switch_to_fiber(next->thread, __tsan_switch_to_fiber_no_sync);
#endif
}

/* After the switch, on the stack of the other; a fiber's first run records the host's stack. */
static inline void pe_watch_arrive(const pe_gpu_watched *own, pe_gpu_watched *host) {
    (void)own;
    (void)host;
#ifdef PE_GPU_BOUNDS
    __sanitizer_finish_switch_fiber(own->kept, host ? &host->bottom : NULL,
                                    host ? &host->bytes : NULL);
#endif
}

/* The host is the launching thread. */
static inline void pe_watch_launch(pe_gpu_watched *host) {
    (void)host;
#ifdef PE_GPU_RACES
    host->thread = __tsan_get_current_fiber();
#endif
}

/* An item starts on this stack, ordered after the host's writes. */
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

/* Orders the host after all items. */
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

/* Before a group: no local memory is allocated. */
static inline void pe_watch_group(unsigned char *local, size_t bytes) {
    (void)local;
    (void)bytes;
#ifdef PE_GPU_BOUNDS
    __asan_poison_memory_region(local, bytes);
#endif
}

/* Around the emulation's own writes to local memory: `bytes` of `room` are an array. */
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
