/* CHECK for the plain C tests: a failure prints where, what and the test's seed, and aborts the program, which a fuzzer takes for a crash. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

static unsigned long long check_seed;

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            fprintf(stderr, "%s:%d: %s does not hold (seed %llu)\n", __FILE__, __LINE__, #condition, check_seed);                          \
            abort();                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

#endif
