/* Milestones of a schedule as text: "30,60". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pe_checkpoint.h"

void pe_print_milestones(const int64_t *milestones, char *text) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < PE_MOST_MILESTONES && milestones[i] > 0; i++) {
        length += (size_t)snprintf(text + length, PE_MILESTONES_BYTES - length, "%s%lld",
                                   i ? "," : "", (long long)milestones[i]);
    }
}

bool pe_parse_milestones(const char *text, int64_t *milestones) {
    memset(milestones, 0, PE_MOST_MILESTONES * sizeof *milestones);
    int64_t last = 0;
    for (int i = 0; *text; i++) {
        const size_t digits = strspn(text, "0123456789");
        if (i == PE_MOST_MILESTONES || digits < 1 || digits > 9) {
            return false;
        }
        milestones[i] = strtoll(text, NULL, 10);
        if (milestones[i] <= last) {
            return false;
        }
        last = milestones[i];
        text += digits;
        if (*text == ',' && text[1]) {
            text++;
        } else if (*text) {
            return false;
        }
    }
    return true;
}
