/* fl_entropy_walk: the walk over coded data behind fl_entropy.h. */
#ifndef FL_ENTROPY_WALK_H
#define FL_ENTROPY_WALK_H

#include "fl_scan.h"

/* The tables of an MCU's blocks, in order. */
typedef struct fl_mcu {
    const fl_codes *dc[FL_BLOCKS_MAX], *ac[FL_BLOCKS_MAX];
    uint32_t blocks;
} fl_mcu;

enum { FL_STREAMS = 3 };

/* Scratch of walks. Zeroed at first; freed by fl_walk_free. */
typedef struct fl_walk_room {
    uint8_t *plain; /* coded data of one restart interval, stuffing removed, FL_PAD zeros behind */
    uint64_t *starts[FL_STREAMS];
    size_t plain_room, starts_room;
} fl_walk_room;

void fl_walk_free(fl_walk_room *room);

/* True when the coded data at [at, end) is `mcus` MCUs, with restart markers every `interval` of them (0: none), that end with EOI.
 * False, too, when memory runs out. */
bool fl_walk_scan(fl_walk_room *room, const fl_mcu *mcu, uint32_t mcus, uint32_t interval, const uint8_t *at, const uint8_t *end);

#endif
