/* Text for messages. A freestanding build knows %s, %d, %lld and %zu; any other form is left
 * unchanged. */
#ifndef PE_TEXT_H
#define PE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/* As snprintf and vsnprintf. */
__attribute__((format(printf, 3, 4))) int pe_print(char *text, size_t size, const char *format,
                                                   ...);
int pe_print_list(char *text, size_t size, const char *format, va_list arguments);

/* The meaning of an error of the operating system. */
const char *pe_reason(int error);

#endif
