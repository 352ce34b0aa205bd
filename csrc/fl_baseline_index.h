/* fl_baseline_index: where in a scan's coded data MCUs start, so that a decoder need not read all that comes before them. */
#ifndef FL_BASELINE_INDEX_H
#define FL_BASELINE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The state before an MCU: its first bit, as a byte of the coded data (stuffed zeros and restart markers counted) and the bits of it
 * already used, and the DC coefficient of the block before it in each component. */
typedef struct fl_mark {
    uint32_t byte;
    uint8_t bit;
    int16_t dc[3];
} fl_mark;

/* Marks of every MCU row's MCUs 0, every, 2 every, ...; row by row, `across` of them in each. Borrowed. */
typedef struct fl_index {
    uint32_t every, across;
    size_t count;
    const fl_mark *marks;
} fl_index;

#endif
