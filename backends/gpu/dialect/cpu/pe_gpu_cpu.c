/* Fibers, warps, groups and local memory of pe_gpu_cpu.h. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pe_gpu_cpu.h"
#include "pe_gpu_watch.h"

enum {
    MOST_ITEMS = 256,
    WARP = 32,
    STACK_BYTES = 1 << 16,
    GUARD_BYTES = 1 << 12,
    LOCAL_BYTES = 32768, /* the minimum of OpenCL 1.2 */
    FENCE_BYTES = 64,    /* after each array of local memory */
};

/* WAITING for its group, MEETING the other items of its warp. */
typedef enum { READY, WAITING, MEETING, DONE } pe_gpu_state;

/* An item's part of a warp's product. */
typedef struct pe_gpu_pieces {
    pe_u32 a[4], b[2];
} pe_gpu_pieces;

typedef struct pe_gpu_fiber {
    void *stack_pointer;
    pe_gpu_state state;
    int line;      /* source line where it waits */
    size_t cursor; /* bytes of local memory requested */
    int turn;      /* of its pieces: those of the product before may still be read */
    unsigned waits;
    pe_gpu_pieces pieces[2];
} pe_gpu_fiber;

static struct {
    pthread_mutex_t lock;
    unsigned order;
    const pe_gpu_launch *launch;
    void *const *pointers;
    char *stacks;
    void *host_stack;
    int item, group, alone; /* alone: without a fiber, because item 0 met no barrier */
    int place;              /* of the group among those of its round; one that is alone has 0 */
    size_t local_bytes;
    pe_gpu_watched host, watched[PE_WATCHED_ITEMS];
    pe_gpu_fiber fibers[MOST_ITEMS];
    _Alignas(64) unsigned char memory[PE_WATCHED_GROUPS][LOCAL_BYTES + FENCE_BYTES];
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Saves the callee-saved registers on the stack, and switches to another fiber. */
void pe_gpu_switch(void **keep, void *next);

#if defined(__x86_64__)
__asm__(".text\n.globl pe_gpu_switch\n.hidden pe_gpu_switch\n"
        ".type pe_gpu_switch,@function\npe_gpu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
enum { KEPT_WORDS = 6, RETURN_WORD = 6 };
#elif defined(__aarch64__)
__asm__(".text\n.globl pe_gpu_switch\n.hidden pe_gpu_switch\n"
        ".type pe_gpu_switch,@function\npe_gpu_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n");
enum { KEPT_WORDS = 20, RETURN_WORD = 11 };
#else
#error "the emulated GPU switches fibers on x86-64 and AArch64"
#endif

static void stop(const char *what, const char *more) {
    fprintf(stderr, "pe: kernel %s: %s%s\n", gpu.launch->name, what, more);
    abort();
}

int pe_item(void) { return gpu.item; }

int pe_group(void) { return gpu.group; }

/* The sanitizer's handle of the running item. */
static pe_gpu_watched *watched(void) {
    return &gpu.watched[gpu.place * gpu.launch->items + gpu.item];
}

static void pause_item(pe_gpu_state state, int line) {
    if (gpu.alone) {
        stop("divergent barrier", ": another item passed none");
    }
    pe_gpu_fiber *fiber = &gpu.fibers[gpu.item];
    fiber->state = state;
    fiber->line = line;
    pe_watch_leave(watched(), &gpu.host);
    pe_gpu_switch(&fiber->stack_pointer, gpu.host_stack);
    pe_watch_arrive(watched(), NULL);
}

void pe_gpu_wait(int line) {
    const unsigned wait = gpu.fibers[gpu.item].waits++;
    pe_watch_wait(gpu.place, wait);
    pause_item(WAITING, line);
    pe_watch_go_on(gpu.place, wait);
}

/* One of a fragment's two numbers in each part. */
static double number_of(pe_u32 pair, int place) {
    return pe_from_bf16((pe_u16)(pair >> 16 * (place % 2)));
}

void pe_gpu_multiply(float *sums, const pe_u32 *a, const pe_u32 *b, int line) {
    const int lane = gpu.item % WARP;
    pe_gpu_fiber *fiber = &gpu.fibers[gpu.item], *warp = fiber - lane;
    const int turn = fiber->turn;
    memcpy(fiber->pieces[turn].a, a, sizeof fiber->pieces[turn].a);
    memcpy(fiber->pieces[turn].b, b, sizeof fiber->pieces[turn].b);
    fiber->turn = !turn;
    pause_item(MEETING, line);
    for (int each = 0; each < 4; each++) {
        const int row = lane / 4, column = lane % 4 * 2 + each % 2, lower = each / 2;
        double sum = sums[each];
        for (int k = 0; k < 16; k++) {
            const pe_u32 *left = warp[row * 4 + k % 8 / 2].pieces[turn].a;
            const pe_u32 *right = warp[column * 4 + k % 8 / 2].pieces[turn].b;
            sum += number_of(left[lower + k / 8 * 2], k) * number_of(right[k / 8], k);
        }
        sums[each] = (float)sum;
    }
}

void *pe_gpu_shared(size_t bytes) {
    pe_gpu_fiber *fiber = &gpu.fibers[gpu.item];
    const size_t start = fiber->cursor, room = (bytes + 63) / 64 * 64 + FENCE_BYTES;
    unsigned char *local = gpu.memory[gpu.place];
    if (start + room > sizeof gpu.memory[0]) {
        stop("more local memory than every device has", "");
    }
    fiber->cursor = start + room;
    if (fiber->cursor > gpu.local_bytes) { /* the first item that requests it */
        gpu.local_bytes = fiber->cursor;
        pe_watch_open(local + start, room);
        memset(local + start, 0xFF, room);
        memset(local + start + room - FENCE_BYTES, 0xA5, FENCE_BYTES);
        pe_watch_close(local + start, bytes, room);
    }
    return local + start;
}

static void check_fence(size_t end) {
    for (size_t at = end - FENCE_BYTES; at < end; at++) {
        if (gpu.memory[gpu.place][at] != 0xA5) {
            stop("a write behind its local memory", "");
        }
    }
}

static void fiber_main(void) {
    pe_watch_arrive(watched(), &gpu.host);
    pe_watch_first();
    gpu.launch->call(gpu.pointers);
    pe_watch_last();
    pe_gpu_fiber *fiber = &gpu.fibers[gpu.item];
    fiber->state = DONE;
    pe_watch_leave(NULL, &gpu.host);
    pe_gpu_switch(&fiber->stack_pointer, gpu.host_stack);
    abort(); /* never resumed */
}

static void begin_fiber(int item) {
    const size_t each = STACK_BYTES + GUARD_BYTES;
    gpu.item = item;
    char *end = gpu.stacks + each * (size_t)(watched() - gpu.watched + 1);
    void **stack = (void **)end - 8 - KEPT_WORDS - 2;
    memset(stack, 0, (KEPT_WORDS + 2) * sizeof *stack);
    void (*entry)(void) = fiber_main;
    memcpy(stack + RETURN_WORD, &entry, sizeof entry);
    gpu.fibers[item] = (pe_gpu_fiber){.stack_pointer = stack};
    pe_watch_begin(watched(), end - STACK_BYTES, STACK_BYTES);
}

static void resume(int item) {
    gpu.item = item;
    gpu.fibers[item].state = READY;
    pe_watch_leave(&gpu.host, watched());
    pe_gpu_switch(&gpu.host_stack, gpu.fibers[item].stack_pointer);
    pe_watch_arrive(&gpu.host, NULL);
}

/* Number `step` of `count` in the chosen order. */
static int in_order(int step, int count) {
    if (gpu.order == 0) {
        return step;
    }
    if (gpu.order == 1) {
        return count - 1 - step;
    }
    const uint64_t prime = 2654435761; /* above any count, so that this is a permutation */
    return (int)((((uint64_t)step * prime) + gpu.order) % (uint64_t)count);
}

/* The common state of `count` items; aborts if they are not at the same place. */
static pe_gpu_state state_of(int first, int count, const char *where) {
    const pe_gpu_fiber *fibers = &gpu.fibers[first];
    for (int item = 1; item < count; item++) {
        if (fibers[item].state != fibers->state || fibers[item].line != fibers->line) {
            stop("divergent barrier", where);
        }
    }
    return fibers->state;
}

/* Resumes warps whose items have met, one warp after another, until they wait for the group. One
 * warp far ahead of the others reveals a missing barrier. */
static void run_warps(int items) {
    const int warps = (items + WARP - 1) / WARP;
    for (int step = 0; step < warps; step++) {
        const int first = in_order(step, warps) * WARP;
        const int count = items - first < WARP ? items - first : WARP;
        while (state_of(first, count, ": items of a warp are at different places") == MEETING) {
            if (count < WARP) {
                stop("a product by a part of a warp", "");
            }
            for (int lane = 0; lane < WARP; lane++) {
                resume(first + in_order(lane, WARP));
            }
        }
    }
}

/* Whether all items have reached the same barrier; aborts if only some have. */
static int all_wait(int items) {
    run_warps(items);
    return state_of(0, items, ": items of a group are at different places") == WAITING;
}

/* If the first item meets no barrier, the others run as plain calls. */
static void run_alone(int items) {
    gpu.alone = 1;
    for (int step = 1; step < items; step++) {
        gpu.item = in_order(step, items);
        gpu.fibers[gpu.item].cursor = 0;
        gpu.launch->call(gpu.pointers);
    }
    gpu.alone = 0;
}

static void run_group(int group, int items) {
    gpu.group = group;
    gpu.local_bytes = 0;
    pe_watch_group(gpu.memory[gpu.place], sizeof gpu.memory[0]);
    const int first = in_order(0, items);
    begin_fiber(first);
    resume(first);
    if (gpu.fibers[first].state == DONE && !PE_WATCHES_RACES) {
        run_alone(items);
    } else {
        for (int step = 1; step < items; step++) {
            begin_fiber(in_order(step, items));
            resume(in_order(step, items));
        }
        while (all_wait(items)) {
            for (int step = 0; step < items; step++) {
                resume(in_order(step, items));
            }
        }
    }
    if (gpu.local_bytes) {
        check_fence(gpu.local_bytes);
    }
}

/* The next group is watched together with this one, or in a new round. */
static void end_group(void) {
    gpu.place++;
    if (gpu.place == PE_WATCHED_GROUPS || (gpu.place + 1) * gpu.launch->items > PE_WATCHED_ITEMS) {
        gpu.place = 0;
        pe_watch_round();
    }
}

static void make_stacks(void) {
    const size_t each = STACK_BYTES + GUARD_BYTES;
    void *memory = mmap(NULL, each * PE_WATCHED_ITEMS, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        stop("no memory for the stacks of its items", "");
    }
    gpu.stacks = memory;
    for (size_t item = 0; item < PE_WATCHED_ITEMS; item++) {
        mprotect(gpu.stacks + each * item, GUARD_BYTES, PROT_NONE);
    }
}

void pe_gpu_set_order(unsigned order) {
    pthread_mutex_lock(&gpu.lock);
    gpu.order = order;
    pthread_mutex_unlock(&gpu.lock);
}

void pe_gpu_run(const pe_gpu_launch *launch, void *const *pointers) {
    pthread_mutex_lock(&gpu.lock);
    gpu.launch = launch;
    gpu.pointers = pointers;
    if (launch->items < 1 || launch->items > MOST_ITEMS) {
        stop("more items in a group than are made", "");
    }
    if (!gpu.stacks) {
        make_stacks();
    }
    pe_watch_launch(&gpu.host);
    for (int step = 0; step < launch->groups; step++) {
        run_group(in_order(step, launch->groups), launch->items);
        end_group();
    }
    gpu.place = 0;
    pe_watch_round();
    pthread_mutex_unlock(&gpu.lock);
}
