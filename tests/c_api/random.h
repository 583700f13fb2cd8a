/* The same numbers everywhere, from -1 to 1. */

#ifndef TILEWISE_TESTS_C_API_RANDOM_H
#define TILEWISE_TESTS_C_API_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static void fill(float* data, size_t count, uint32_t state) {
    for (size_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        data[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

#endif
