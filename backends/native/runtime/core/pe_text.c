#include "pe_text.h"

int pe_print(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = pe_print_list(text, size, format, arguments);
    va_end(arguments);
    return length;
}

#if __STDC_HOSTED__

#include <stdio.h>
#include <string.h>

int pe_print_list(char *text, size_t size, const char *format, va_list arguments) {
    return vsnprintf(text, size, format, arguments);
}

const char *pe_reason(int error) { return strerror(error); }

#else

#include <string.h>

/* Text that is cut at its end; `length` is that of the whole text. */
typedef struct line {
    char *text;
    size_t size, length;
} line;

static void put(line *l, char c) {
    if (l->length + 1 < l->size) {
        l->text[l->length] = c;
    }
    l->length++;
}

static void put_text(line *l, const char *text) {
    while (*text) {
        put(l, *text++);
    }
}

static void put_number(line *l, long long number) {
    unsigned long long rest =
        number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    char digits[24];
    int count = 0;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) {
        put(l, '-');
    }
    while (count > 0) {
        put(l, digits[--count]);
    }
}

int pe_print_list(char *text, size_t size, const char *format, va_list arguments) {
    line l = {text, size, 0};
    while (*format) {
        if (strncmp(format, "%s", 2) == 0) {
            put_text(&l, va_arg(arguments, const char *));
            format += 2;
        } else if (strncmp(format, "%d", 2) == 0) {
            put_number(&l, va_arg(arguments, int));
            format += 2;
        } else if (strncmp(format, "%zu", 3) == 0) {
            put_number(&l, (long long)va_arg(arguments, size_t));
            format += 3;
        } else if (strncmp(format, "%lld", 4) == 0) {
            put_number(&l, va_arg(arguments, long long));
            format += 4;
        } else {
            put(&l, *format++);
        }
    }
    if (size) {
        text[l.length < size ? l.length : size - 1] = '\0';
    }
    return (int)l.length;
}

const char *pe_reason(int error) {
    (void)error;
    return "there is no operating system";
}

#endif
