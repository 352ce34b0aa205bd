/* CHECK for the plain C tests: a failure prints where, what and the test's seed, and aborts the program,
 * which a fuzzer takes for a crash. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

static unsigned long long check_seed;

/* What random rounds are divided by: under the address sanitizer each costs ten times as much. `make
 * test-long` runs all of them. */
#if defined(__SANITIZE_ADDRESS__)
enum { THIN = 10 };
#else
enum { THIN = 1 };
#endif

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s does not hold (seed %llu)\n", __FILE__, __LINE__, #condition,         \
                    check_seed);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#endif
