/* Connectionist temporal classification: losses of samples, or the gradient of their logits.
 *
 * A sample's path is blank, label, blank, ..., label, blank. `PE_FN(forward)` adds up the
 * probabilities of all prefixes, position by position, in logarithms and double precision; the
 * gradient saves them for each frame in scratch and combines them with those of the suffixes, in
 * reverse. Threads share the samples.
 *
 * Parameters: PE_FN(name), PE_FRAMES, PE_SAMPLES, PE_CLASSES, PE_LABELS, PE_BLANK, PE_LABEL,
 * PE_LENGTH and PE_LABEL_LENGTH (C types), PE_GRADIENT (0 or 1).
 */

#if !defined(PE_GRADIENT)
#error "ctc.inc.h needs PE_GRADIENT"
#endif

#include <math.h>

#define PE_PLACES (2 * PE_LABELS + 1)

typedef struct PE_FN(sample) {
    const float *logits; /* of the first frame; the next is PE_SAMPLES * PE_CLASSES further */
    const PE_LABEL *labels;
    ptrdiff_t frames, places;
    double *totals; /* log of the sum of exp(logits), for each frame */
} PE_FN(sample);

PE_INLINE double PE_FN(add)(const double a, const double b) {
    const double top = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? top : top + log1p(exp(low - top));
}

PE_INLINE ptrdiff_t PE_FN(class)(const PE_FN(sample) * s, const ptrdiff_t place) {
    return place % 2 ? (ptrdiff_t)s->labels[place / 2] : PE_BLANK;
}

/* Whether a path may continue from two positions before, past a blank. */
PE_INLINE int PE_FN(skips)(const PE_FN(sample) * s, const ptrdiff_t place) {
    return place % 2 && place > 2 && s->labels[place / 2] != s->labels[place / 2 - 1];
}

PE_INLINE double PE_FN(at)(const PE_FN(sample) * s, const ptrdiff_t frame, const ptrdiff_t place) {
    const float *row = s->logits + frame * PE_SAMPLES * PE_CLASSES;
    return (double)row[PE_FN(class)(s, place)] - s->totals[frame];
}

PE_INLINE ptrdiff_t PE_FN(inside)(const int64_t n, const ptrdiff_t most) {
    return n < 0 ? 0 : n > most ? most : (ptrdiff_t)n;
}

/* Returns whether all labels are classes. */
static int PE_FN(open)(PE_FN(sample) * s) {
    for (ptrdiff_t i = 0; i < s->places / 2; i++) {
        if (s->labels[i] < 0 || s->labels[i] >= PE_CLASSES) {
            return 0;
        }
    }
    for (ptrdiff_t frame = 0; frame < s->frames; frame++) {
        const float *row = s->logits + frame * PE_SAMPLES * PE_CLASSES;
        float top = row[0];
        for (ptrdiff_t i = 1; i < PE_CLASSES; i++) {
            top = row[i] > top ? row[i] : top;
        }
        double sum = 0;
        for (ptrdiff_t i = 0; i < PE_CLASSES; i++) {
            sum += exp((double)row[i] - (double)top);
        }
        s->totals[frame] = (double)top + log(sum);
    }
    return 1;
}

/* Runs over the frames; `alpha` has one row of positions, or with `all` one for each frame. */
static double PE_FN(forward)(const PE_FN(sample) * s, double *alpha, const int all) {
    for (ptrdiff_t frame = 0; frame < s->frames; frame++) {
        double *here = alpha + (all ? frame * PE_PLACES : 0);
        const double *before = all && frame ? here - PE_PLACES : here;
        for (ptrdiff_t i = s->places - 1; i >= 0;
             i--) { /* back to front, because source and result may be the same row */
            double sum = frame ? before[i] : i < 2 ? 0.0 : -INFINITY;
            if (frame && i > 0) {
                sum = PE_FN(add)(sum, before[i - 1]);
            }
            if (frame && PE_FN(skips)(s, i)) {
                sum = PE_FN(add)(sum, before[i - 2]);
            }
            here[i] = sum + PE_FN(at)(s, frame, i);
        }
    }
    if (s->frames == 0) {
        return s->places == 1 ? 0.0 : INFINITY;
    }
    const double *last = alpha + (all ? (s->frames - 1) * PE_PLACES : 0) + s->places - 1;
    return s->places == 1 ? -last[0] : -PE_FN(add)(last[0], last[-1]);
}

#if PE_GRADIENT

/* dx of one frame: softmax minus the probability of the paths at each position. */
static void PE_FN(frame)(const PE_FN(sample) * s, const ptrdiff_t frame, const double *alpha,
                         const double *beta, const double loss, const float dy, float *dx) {
    const float *row = s->logits + frame * PE_SAMPLES * PE_CLASSES;
    for (ptrdiff_t i = 0; i < PE_CLASSES; i++) {
        dx[i] = dy * (float)exp((double)row[i] - s->totals[frame]);
    }
    for (ptrdiff_t i = 0; i < s->places; i++) {
        const double both = alpha[i] + beta[i];
        if (both > -INFINITY) {
            dx[PE_FN(class)(s, i)] -= dy * (float)exp(both - PE_FN(at)(s, frame, i) + loss);
        }
    }
}

static void PE_FN(gradient)(const PE_FN(sample) * s, double *alpha, double *beta, const double loss,
                            const float dy, float *dx) {
    for (ptrdiff_t frame = s->frames - 1; frame >= 0; frame--) {
        const int last = frame == s->frames - 1;
        for (ptrdiff_t i = 0; i < s->places; i++) {
            double sum = !last ? beta[i] : i >= s->places - 2 ? 0.0 : -INFINITY;
            if (!last && i + 1 < s->places) {
                sum = PE_FN(add)(sum, beta[i + 1]);
            }
            if (!last && i + 2 < s->places && PE_FN(skips)(s, i + 2)) {
                sum = PE_FN(add)(sum, beta[i + 2]);
            }
            beta[i] = sum + PE_FN(at)(s, frame, i);
        }
        PE_FN(frame)(s, frame, alpha + frame * PE_PLACES, beta, loss, dy,
                     dx + frame * PE_SAMPLES * PE_CLASSES);
    }
}

#endif

/* One sample's scratch: totals, and rows of positions. */
#define PE_ROOM (PE_FRAMES + (PE_GRADIENT ? PE_FRAMES + 1 : 1) * PE_PLACES)

PE_INLINE void PE_FN(run)(pe_worker *w, const float *logits, const PE_LABEL *labels,
                          const PE_LENGTH *lengths, const PE_LABEL_LENGTH *label_lengths,
                          const float *dy, float *y, double *scratch) {
    const pe_range share = pe_split(w, PE_SAMPLES, 1);
    (void)dy;
    for (ptrdiff_t n = share.begin; n < share.end; n++) {
        double *alpha = scratch + n * PE_ROOM + PE_FRAMES;
        PE_FN(sample)
        s = {
            .logits = logits + n * PE_CLASSES,
            .labels = labels + n * PE_LABELS,
            .frames = PE_FN(inside)(lengths[n], PE_FRAMES),
            .places = 2 * PE_FN(inside)(label_lengths[n], PE_LABELS) + 1,
            .totals = scratch + n * PE_ROOM,
        };
        const double loss = PE_FN(open)(&s) ? PE_FN(forward)(&s, alpha, PE_GRADIENT) : NAN;
#if PE_GRADIENT
        const int dead = dy[n] == 0.0f, lost = !(fabs(loss) < INFINITY);
        for (ptrdiff_t frame = 0; frame < PE_FRAMES; frame++) {
            for (ptrdiff_t i = 0; i < PE_CLASSES; i++) {
                y[(frame * PE_SAMPLES + n) * PE_CLASSES + i] =
                    frame < s.frames && lost && !dead ? __builtin_nanf("") : 0.0f;
            }
        }
        if (!dead && !lost) {
            PE_FN(gradient)(&s, alpha, alpha + PE_FRAMES * PE_PLACES, loss, dy[n],
                            y + n * PE_CLASSES);
        }
#else
        y[n] = (float)loss;
#endif
    }
}

#undef PE_BLANK
#undef PE_CLASSES
#undef PE_FRAMES
#undef PE_LABEL
#undef PE_LABELS
#undef PE_LABEL_LENGTH
#undef PE_LENGTH
#undef PE_PLACES
#undef PE_ROOM
#undef PE_SAMPLES
#include "undef.inc.h"
