/* Scaling equal to Pillow's ImageOps.fit with Image.BILINEAR, bit for bit: fixed-point weights,
 * lines first, and 8-bit samples between the two passes. Compiled with -ffp-contract=off.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pe_picture.h"

enum {
    BITS = 22 /* fraction bits of a weight; leaves 8 for a sample and 2 for overshoot */
};

/* The weights that turn samples along one axis into `count` new ones. */
typedef struct axis {
    int64_t count, most;
    int64_t *begin, *taken;
    int32_t *weights; /* `most` for each new sample */
} axis;

static void drop(axis *a) {
    free(a->begin);
    free(a->taken);
    free(a->weights);
}

/* Computes the weights of the samples below one new sample: a triangle around its middle. */
static void weigh(const axis *a, int64_t i, int64_t size, double from, double scale,
                  double *numbers) {
    const double spread = scale < 1 ? 1 : scale, middle = from + ((double)i + 0.5) * scale;
    const int64_t low = (int64_t)(middle - spread + 0.5), high = (int64_t)(middle + spread + 0.5);
    const int64_t begin = low < 0 ? 0 : low, end = high > size ? size : high;
    double sum = 0;
    for (int64_t j = 0; j < end - begin; j++) {
        const double far = fabs(((double)(j + begin) - middle + 0.5) * (1 / spread));
        numbers[j] = far < 1 ? 1 - far : 0;
        sum += numbers[j];
    }
    for (int64_t j = 0; j < end - begin; j++) {
        const double weight = sum != 0 ? numbers[j] / sum : numbers[j];
        a->weights[i * a->most + j] = (int32_t)(0.5 + weight * (1 << BITS));
    }
    a->begin[i] = begin;
    a->taken[i] = end - begin;
}

/* Sets the weights for `count` new samples of the interval [from, to] of `size` samples. */
static bool set_axis(axis *a, int64_t size, float from, float to, int64_t count) {
    const double scale = (double)(to - from) / (double)count;
    a->count = count;
    a->most = (int64_t)ceil(scale < 1 ? 1 : scale) * 2 + 1;
    const size_t numbers = (size_t)a->most, all = (size_t)count * numbers;
    a->begin = malloc((size_t)count * sizeof *a->begin);
    a->taken = malloc((size_t)count * sizeof *a->taken);
    a->weights = calloc(all, sizeof *a->weights);
    double *room = malloc(numbers * sizeof *room);
    const bool there = a->begin && a->taken && a->weights && room;
    for (int64_t i = 0; there && i < count; i++) {
        weigh(a, i, size, (double)from, scale, room);
    }
    free(room);
    return there;
}

/* One new sample, from samples that are `step` apart. */
static unsigned char mix(const axis *a, int64_t i, const unsigned char *from, int64_t step) {
    const int32_t *weights = a->weights + i * a->most;
    int32_t sum = 1 << (BITS - 1);
    for (int64_t j = 0; j < a->taken[i]; j++) {
        sum += from[j * step] * weights[j];
    }
    sum >>= BITS;
    return (unsigned char)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Scales the lines `first` to before `last` to the new width. */
static void fit_lines(const pe_picture *p, const axis *a, int64_t first, int64_t last,
                      unsigned char *to) {
    for (int64_t y = first; y < last; y++) {
        const unsigned char *line = p->samples + y * p->width * p->channels;
        for (int64_t x = 0; x < a->count; x++) {
            for (int64_t c = 0; c < p->channels; c++) {
                *to++ = mix(a, x, line + a->begin[x] * p->channels + c, p->channels);
            }
        }
    }
}

/* The centered part of the picture with the new aspect ratio: left, top, right, bottom.
 */
static void cut(const pe_picture *p, int64_t height, int64_t width, float *box) {
    const double w = (double)p->width, h = (double)p->height;
    const double is = w / h, wanted = (double)width / (double)height;
    const double wide = is > wanted ? wanted * h : w, high = is >= wanted ? h : w / wanted;
    const double left = (w - wide) * 0.5, top = (h - high) * 0.5;
    box[0] = (float)left;
    box[1] = (float)top;
    box[2] = (float)(left + wide);
    box[3] = (float)(top + high);
}

bool pe_picture_fit(const pe_picture *picture, int64_t height, int64_t width,
                    unsigned char *samples) {
    axis across = {.count = 0}, down = {.count = 0};
    float box[4];
    cut(picture, height, width, box);
    unsigned char *lines = NULL;
    bool done = set_axis(&across, picture->width, box[0], box[2], width) &&
                set_axis(&down, picture->height, box[1], box[3], height);
    if (done) {
        const int64_t first = down.begin[0], step = width * picture->channels;
        const int64_t last = down.begin[height - 1] + down.taken[height - 1];
        lines = malloc((size_t)((last - first) * step));
        done = lines != NULL;
        if (done) {
            fit_lines(picture, &across, first, last, lines);
        }
        for (int64_t y = 0; done && y < height; y++) {
            for (int64_t x = 0; x < step; x++) {
                const unsigned char *from = lines + (down.begin[y] - first) * step + x;
                *samples++ = mix(&down, y, from, step);
            }
        }
    }
    free(lines);
    drop(&across);
    drop(&down);
    return done;
}
