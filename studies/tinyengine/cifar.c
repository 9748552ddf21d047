/* The net of "CMSIS-NN: Efficient Neural Network Kernels for Arm Cortex-M CPUs" (arXiv 1801.06601,
 * table 1) on a picture of CIFAR-10's size, twice; weights are zero, which costs the same. */
#include "arm_nnfunctions.h"
#include "mark.h"
#include "semihost.h"

enum { PICTURE = 32, COLORS = 3, TAPS = 5, STRIDE = 2, FIRST = 32, LAST = 64, CLASSES = 10 };
enum { SIDE = PICTURE / 2, SHORT = PICTURE / 4, END = PICTURE / 8, WINDOW = TAPS * TAPS };

static const q7_t colors[FIRST * WINDOW * COLORS], middle[FIRST * WINDOW * FIRST];
static const q7_t last[LAST * WINDOW * FIRST], head[CLASSES * END * END * LAST];
static q7_t picture[PICTURE * PICTURE * COLORS], biases[LAST], scores[CLASSES];
static q7_t large[PICTURE * PICTURE * FIRST], small[SIDE * SIDE * FIRST];
static q15_t columns[2 * WINDOW * FIRST];

static void pool(uint16_t size, uint16_t channels) {
    arm_maxpool_q7_HWC(large, size, channels, 3, 0, STRIDE, size / 2, NULL, small);
}

static void infer(void) {
    arm_convolve_HWC_q7_RGB(picture, PICTURE, COLORS, colors, FIRST, TAPS, 2, 1, biases, 0, 11,
                            large, PICTURE, columns, NULL);
    arm_relu_q7(large, PICTURE * PICTURE * FIRST);
    pool(PICTURE, FIRST);
    arm_convolve_HWC_q7_fast(small, SIDE, FIRST, middle, FIRST, TAPS, 2, 1, biases, 0, 11, large,
                             SIDE, columns, NULL);
    arm_relu_q7(large, SIDE * SIDE * FIRST);
    pool(SIDE, FIRST);
    arm_convolve_HWC_q7_fast(small, SHORT, FIRST, last, LAST, TAPS, 2, 1, biases, 0, 11, large,
                             SHORT, columns, NULL);
    arm_relu_q7(large, SHORT * SHORT * LAST);
    pool(SHORT, LAST);
    arm_fully_connected_q7_opt(small, head, END * END * LAST, CLASSES, 0, 11, biases, scores,
                               columns);
}

void train(void) {
    for (int run = 0; run < 2; run++) {
        mark_begin();
        infer();
        mark_end();
    }
    semihost_exit(0);
}
