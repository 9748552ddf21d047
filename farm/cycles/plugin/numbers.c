/* Reads a core's numbers: lines `name value` in decimals, and those that the model knows. */
#include <stdio.h>
#include <string.h>

#include "core.h"

static bool read_field(const char *line) {
    char name[64];
    unsigned int value;
    if (sscanf(line, "%63s %u", name, &value) != 2) {
        return false;
    }
    for (const struct field *field = fields; field->name != NULL; field++) {
        if (strcmp(name, field->name) == 0) {
            *field->value = value;
            return true;
        }
    }
    return false;
}

bool read_numbers(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    char line[256];
    bool right = true;
    while (right && fgets(line, sizeof line, file) != NULL) {
        right = read_row(line) || read_field(line);
        if (!right) {
            fprintf(stderr, "cycles: %s: %s", path, line);
        }
    }
    fclose(file);
    return right;
}
