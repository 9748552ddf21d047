/* Samples a token from its logits. */
#include <math.h>
#include <string.h>

#include "pe_generate.h"
#include "pe_random.h"

enum { STREAM = 0x746f6b65 };

static int64_t likeliest(const float *logits, int64_t count) {
    int64_t best = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        best = logits[i] > logits[best] ? i : best;
        finite = finite && isfinite(logits[i]);
    }
    return finite ? best : -1;
}

static double share_above(const float *weights, int64_t count, float least) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += weights[i] >= least ? weights[i] : 0.0f;
    }
    return sum;
}

/* The largest threshold such that the weights of at least this size have this sum. Weights are
 * not negative, so they sort like their bits, and 31 bisections find the threshold without
 * sorting. */
static float least_weight(const float *weights, int64_t count, double sum) {
    uint32_t low = 0, high = 0x3f800001; /* above 1, the largest weight */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        float least;
        memcpy(&least, &middle, sizeof least);
        if (share_above(weights, count, least) >= sum) {
            low = middle;
        } else {
            high = middle;
        }
    }
    float least;
    memcpy(&least, &low, sizeof least);
    return least;
}

int64_t pe_draw(float *logits, int64_t count, const pe_sampling *sampling, uint32_t number) {
    const int64_t best = likeliest(logits, count);
    if (best < 0 || !(sampling->temperature > 0)) {
        return best;
    }
    const float highest = logits[best];
    for (int64_t i = 0; i < count; i++) {
        logits[i] = expf((logits[i] - highest) / sampling->temperature);
    }
    double sum = share_above(logits, count, 0);
    const float least =
        sampling->top_p < 1 ? least_weight(logits, count, sampling->top_p * sum) : 0;
    sum = share_above(logits, count, least);
    double left = sum * pe_uniform(pe_random_key((int32_t)sampling->seed, STREAM), number);
    int64_t last = best;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] > 0 && logits[i] >= least) {
            last = i;
            left -= logits[i];
            if (left < 0) {
                break;
            }
        }
    }
    return last;
}
