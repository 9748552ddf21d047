/* Measures this machine's peaks, for peaks.py: multiply-adds in registers, and y = a + s b over
 * arrays of several sizes together, each thread on its own part. PEAK_LANES is the vector width in
 * floats; one line a figure, as run_benches prints it. */
#include "bench.h"

#define PE_VL PEAK_LANES

/* Enough independent chains to hide the latency of a fused multiply-add on every supported CPU,
 * few enough for 16 registers. */
#define CHAINS 12
#define ROUNDS 32768
#define LEAST_BYTES ((size_t)24 << 20)

static void multiply_adds(pe_worker *w, void **p) {
    pe_vf sums[CHAINS];
    /* The sums approach 2: a sum that fell towards zero would be subnormal, for which an Intel core
     * takes 150 cycles. */
    const pe_vf a = pe_splat(0.5f), b = pe_splat(1.0f);
    PE_UNROLL
    for (int i = 0; i < CHAINS; i++) {
        sums[i] = pe_load((const float *)p[0] + i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        PE_UNROLL
        for (int i = 0; i < CHAINS; i++) {
            sums[i] = sums[i] * a + b;
        }
    }
    float *out = (float *)p[1] + (ptrdiff_t)w->index * CHAINS * PE_VL;
    PE_UNROLL
    for (int i = 0; i < CHAINS; i++) {
        pe_store(out + (ptrdiff_t)i * PE_VL, sums[i]);
    }
}

static void triad(pe_worker *w, void **p, size_t bytes) {
    const ptrdiff_t count = (ptrdiff_t)(bytes / 3 / sizeof(float)) / PE_VL * PE_VL;
    const pe_range mine = pe_split(w, count, PE_VL);
    const float *a = p[0], *b = p[1];
    float *y = p[2];
    /* Small arrays many times over: their caches are measured, and no barrier. */
    for (size_t moved = 0; moved < LEAST_BYTES; moved += bytes) {
        for (ptrdiff_t i = mine.begin; i < mine.end; i += PE_VL) {
            pe_store(y + i, pe_load(a + i) + 0.5f * pe_load(b + i));
        }
        __asm__ volatile("" ::: "memory");
    }
}

#define TRIAD(kib)                                                                                 \
    static void triad_##kib(pe_worker *w, void **p) { triad(w, p, (size_t)(kib) << 10); }

#define TRIAD_BENCH(kib)                                                                           \
    {triad_##kib,                                                                                  \
     "fff",                                                                                        \
     {((size_t)(kib) << 10) / 3, ((size_t)(kib) << 10) / 3, ((size_t)(kib) << 10) / 3}}

TRIAD(96)
TRIAD(384)
TRIAD(1536)
TRIAD(6144)
TRIAD(24576)
TRIAD(393216)

int main(int argc, char **argv) {
    static const bench benches[] = {
        {multiply_adds, "ff", {64 * sizeof(float), PE_MAX_THREADS * CHAINS * 64}},
        TRIAD_BENCH(96),
        TRIAD_BENCH(384),
        TRIAD_BENCH(1536),
        TRIAD_BENCH(6144),
        TRIAD_BENCH(24576),
        TRIAD_BENCH(393216),
    };
    return argc == 2 ? run_benches(benches, sizeof benches / sizeof *benches, atoi(argv[1])) : 2;
}
