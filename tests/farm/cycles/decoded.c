/* Prints what decode.c makes of instructions, each a number of four or eight hexadecimal digits:
 * class, registers read (@ early, > late, ^ accumulated), -> those written, the base. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thumb/decode.h"

int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        size_t bytes = strlen(words[i]) / 2;
        struct instruction one = decode((uint32_t)strtoul(words[i], NULL, 16), bytes);
        printf("%s:", class_names[one.class]);
        for (int k = 0; k < one.sources; k++) {
            printf(" %.1s%u", &"@ >^"[one.source[k].stage], one.source[k].reg);
        }
        printf(" ->");
        for (int k = 0; k < one.results; k++) {
            printf(" %u", one.result[k]);
        }
        if (one.base < REGISTERS) {
            printf(" base %u", one.base);
        }
        printf("\n");
    }
    return 0;
}
