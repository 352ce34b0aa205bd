/* common/clock: the monotonic clock, for durations and deadlines. */
#ifndef FL_COMMON_CLOCK_H
#define FL_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an unspecified moment. */
static inline int64_t fl_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
