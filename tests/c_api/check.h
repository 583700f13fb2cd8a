/* Checks for test programs in C: each failure is printed, and makes the program's exit code 1. */

#ifndef TILEWISE_TESTS_C_API_CHECK_H
#define TILEWISE_TESTS_C_API_CHECK_H

#include <stdio.h>
#include <string.h>
#include <tilewise.h>

static int failures = 0;

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            printf("%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                   tilewise_last_error());                                                 \
            ++failures;                                                                    \
        }                                                                                  \
    } while (0)

/* A call that must be refused, with this in its message. */
#define CHECK_REFUSED(call, text)                           \
    do {                                                    \
        CHECK((call) == TILEWISE_INVALID_ARGUMENT);         \
        CHECK(strstr(tilewise_last_error(), text) != NULL); \
    } while (0)

#endif
