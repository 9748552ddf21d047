/* Runs the kernels of a test; each pointer has an allocation of its exact size.
 *
 * Arguments: a file with the initial bytes of all pointers; a file for their final bytes; the order
 * of items; the number of a barrier that is skipped; the number of a pointer whose allocation lacks
 * its last number; the number of the only case to run, or -1. It prints each case's number with
 * those of the barriers that it reached, a pair on a line. */
#include <stdio.h>
#include <stdlib.h>

#include "sanitized.h"

enum { MOST_BARRIERS = 4096, ALIGNMENT = 128, NUMBER_BYTES = 4 };

static int left_out, met[MOST_BARRIERS];

void counted_barrier(int number) {
    met[number] = 1;
    if (number != left_out) {
        pe_gpu_wait(number);
    }
}

/* The end is exact; the start is aligned as on a device. */
static void *allocate(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, ALIGNMENT, bytes) != 0) {
        exit(3);
    }
    return p;
}

static void skip_case(const sanitized_case *one, FILE *in) {
    for (int n = 0; n < one->pointers; n++) {
        fseek(in, (long)one->bytes[n], SEEK_CUR);
    }
}

static void run_case(const sanitized_case *one, FILE *in, FILE *out, int lacking) {
    void *pointers[SANITIZED_POINTERS];
    size_t bytes[SANITIZED_POINTERS];
    for (int n = 0; n < one->pointers; n++) {
        bytes[n] = one->bytes[n] - (n == lacking ? NUMBER_BYTES : 0);
        pointers[n] = allocate(bytes[n]);
        if (fread(pointers[n], 1, bytes[n], in) != bytes[n] ||
            fseek(in, (long)(one->bytes[n] - bytes[n]), SEEK_CUR) != 0) {
            exit(4);
        }
    }
    for (int n = 0; n < one->launch_count; n++) {
        pe_gpu_run(&one->launches[n], pointers);
    }
    for (int n = 0; n < one->pointers; n++) {
        fwrite(pointers[n], 1, bytes[n], out);
        free(pointers[n]);
    }
}

static void print_barriers(int number) {
    for (int n = 0; n < MOST_BARRIERS; n++) {
        if (met[n]) {
            printf("%d %d\n", number, n);
        }
        met[n] = 0;
    }
}

int main(int argc, char **argv) {
    FILE *in = argc == 7 ? fopen(argv[1], "rb") : NULL;
    FILE *out = argc == 7 ? fopen(argv[2], "wb") : NULL;
    if (!in || !out) {
        return 2;
    }
    pe_gpu_set_order((unsigned)atoi(argv[3]));
    left_out = atoi(argv[4]);
    const int only = atoi(argv[6]);
    for (int n = 0; n < sanitized_count; n++) {
        const sanitized_case *one = &sanitized_cases[n];
        if (only >= 0 && n != only) {
            skip_case(one, in);
            continue;
        }
        fprintf(stderr, "case %s\n", one->name);
        run_case(one, in, out, atoi(argv[5]));
        print_barriers(n);
    }
    fclose(in);
    return fclose(out);
}
