/* Streams, copies and graphs: operations on a stream wait until it is synchronized. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

typedef struct kernel_call {
    const function *function;
    void *pointers[POINTERS];
    struct kernel_call *next;
} kernel_call;

typedef struct graph {
    kernel_call *first, **end;
} graph;

/* A copy, or a graph; `staged` is host memory that may be changed once the call is over. */
typedef struct work {
    void *to;
    void *staged;
    uint64_t from;
    size_t bytes;
    const graph *graph;
    struct work *next;
} work;

typedef struct stream {
    work *first, **end;
} stream;

static graph *capture;
static bool invalid;

bool fake_capturing(void) { return capture != NULL; }

/* An operation that is illegal in a capture ends it. */
static int refused(void) {
    invalid |= capture != NULL;
    return fake_ready();
}

static int put(stream *s, work one) {
    work *made = malloc(sizeof *made);
    *made = one;
    *s->end = made;
    s->end = &made->next;
    return OK;
}

static void run_graph(const graph *g) {
    for (const kernel_call *c = g->first; c; c = c->next) {
        c->function->run(c->function->twin, c->pointers);
    }
}

static void do_work(work *w) {
    if (w->graph) {
        run_graph(w->graph);
    } else if (w->staged) {
        memcpy(w->to, w->staged, w->bytes);
    } else {
        memcpy(w->to, (const void *)(uintptr_t)w->from, w->bytes);
    }
}

SHOWN int cuStreamCreate(void **made, unsigned flags) {
    stream *s = calloc(1, sizeof *s);
    s->end = &s->first;
    *made = s;
    fake_counts.live++;
    return refused() ? refused() : flags == 1 ? OK : INVALID_VALUE;
}

SHOWN int cuStreamSynchronize(void *given) {
    stream *s = given;
    if (refused()) {
        return refused();
    }
    fake_open_memory(true);
    while (s->first) {
        work *w = s->first;
        s->first = w->next;
        do_work(w);
        free(w->staged);
        free(w);
    }
    s->end = &s->first;
    fake_open_memory(false);
    const int fault = fake_settings.fault;
    fake_settings.fault = OK;
    return fault;
}

SHOWN int cuStreamDestroy_v2(void *given) {
    const int error = ((stream *)given)->first ? cuStreamSynchronize(given) : OK;
    free(given);
    fake_counts.live--;
    return error;
}

SHOWN int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *given) {
    if (refused() || !fake_is_there(to, bytes) || fake_is_there((uintptr_t)from, 1)) {
        return refused() ? refused() : INVALID_VALUE;
    }
    void *staged = malloc(bytes);
    memcpy(staged, from, bytes);
    fake_counts.bytes_there += (int)bytes;
    return put(given, (work){.to = (void *)(uintptr_t)to, .staged = staged, .bytes = bytes});
}

SHOWN int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *given) {
    if (refused() || !fake_is_there(from, bytes) || fake_is_there((uintptr_t)to, 1)) {
        return refused() ? refused() : INVALID_VALUE;
    }
    fake_counts.bytes_here += (int)bytes;
    return put(given, (work){.to = to, .from = from, .bytes = bytes});
}

SHOWN int cuStreamBeginCapture_v2(void *given, int mode) {
    if (refused() || mode < 0 || mode > 2 || !given) {
        return refused() ? refused() : INVALID_VALUE;
    }
    capture = calloc(1, sizeof *capture);
    capture->end = &capture->first;
    invalid = false;
    return OK;
}

static void free_graph(graph *g) {
    while (g->first) {
        kernel_call *c = g->first;
        g->first = c->next;
        free(c);
    }
    free(g);
}

SHOWN int cuStreamEndCapture(void *given, void **made) {
    graph *g = capture;
    *made = NULL;
    capture = NULL;
    if (!g || !given) {
        return INVALID_VALUE;
    }
    if (invalid) {
        free_graph(g);
        return CAPTURE_INVALIDATED;
    }
    *made = g;
    fake_counts.captures++;
    fake_counts.live++;
    return OK;
}

/* A copy, because the graph may be destroyed. */
SHOWN int cuGraphInstantiateWithFlags(void **made, void *given, unsigned long long flags) {
    graph *copy = calloc(1, sizeof *copy);
    copy->end = &copy->first;
    for (const kernel_call *c = ((graph *)given)->first; c; c = c->next) {
        kernel_call *one = malloc(sizeof *one);
        *one = *c;
        one->next = NULL;
        *copy->end = one;
        copy->end = &one->next;
    }
    *made = copy;
    fake_counts.live++;
    return flags ? INVALID_VALUE : refused();
}

SHOWN int cuGraphDestroy(void *given) {
    free_graph(given);
    fake_counts.live--;
    return OK;
}

SHOWN int cuGraphExecDestroy(void *given) { return cuGraphDestroy(given); }

SHOWN int cuGraphLaunch(void *given, void *on) {
    if (refused() || !given) {
        return refused() ? refused() : INVALID_HANDLE;
    }
    fake_counts.graph_launches++;
    return put(on, (work){.graph = given});
}

/* Prints why a launch is invalid; returns whether it is valid. */
static bool check_launch(const function *f, const unsigned *sizes, void *const *arguments) {
    const char *why =
        !f->only_pointers || f->pointers > POINTERS ? "takes more than pointers"
        : sizes[0] != (unsigned)f->twin->groups || sizes[3] != (unsigned)f->twin->items
            ? "is launched with other sizes than the CPU's"
        : sizes[1] != 1 || sizes[2] != 1 || sizes[4] != 1 || sizes[5] != 1
            ? "is launched in more than one dimension"
        : (int)sizes[3] > f->most_items ? "has groups above its bounds"
                                        : NULL;
    for (int i = 0; !why && i < f->pointers; i++) {
        uint64_t address;
        memcpy(&address, arguments[i], sizeof address);
        why = fake_is_there(address, 1) ? NULL : "is given memory that is not the device's";
    }
    if (why) {
        fprintf(stderr, "fake CUDA: %s %s\n", f->name, why);
    }
    return why == NULL;
}

SHOWN int cuLaunchKernel(void *given, unsigned x, unsigned y, unsigned z, unsigned items,
                         unsigned items_y, unsigned items_z, unsigned shared, void *on,
                         void **arguments, void **extra) {
    const function *f = given;
    const unsigned sizes[] = {x, y, z, items, items_y, items_z};
    fake_counts.launches += capture == NULL;
    if (!capture || extra || shared || !on || !check_launch(f, sizes, arguments)) {
        return INVALID_VALUE; /* our runtime launches graphs only */
    }
    kernel_call *call = calloc(1, sizeof *call);
    call->function = f;
    for (int i = 0; i < f->pointers; i++) {
        memcpy(&call->pointers[i], arguments[i], sizeof(void *));
    }
    *capture->end = call;
    capture->end = &call->next;
    fake_counts.launches_in_captures++;
    return OK;
}
