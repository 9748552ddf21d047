/* Computes a known answer in integers and in floating point: a board with another answer is
 * broken, or runs a program that was not built for it. Every sum is exact in f32.
 */
#include <stdint.h>
#include <stdio.h>

enum { N = 48 };

static uint32_t a[N][N], b[N][N];
static float x[N], y[N];

int main(void) {
    uint32_t state = 1, sum = 0;
    float dot = 0.0f;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            state = state * 1664525u + 1013904223u;
            a[i][j] = state;
            b[j][i] = state >> 7;
        }
        x[i] = (float)(i % 7) * 0.25f;
        y[i] = (float)(i % 5) * 0.5f - 1.0f;
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            uint32_t cell = 0;
            for (int k = 0; k < N; k++) {
                cell += a[i][k] * b[k][j];
            }
            sum = (sum << 5 | sum >> 27) ^ cell;
        }
        dot += x[i] * y[i];
    }
    printf("known answer %08x %.3f\n", (unsigned)sum, (double)dot);
    return 0;
}
