/* fl_entropy_walk: the walk over coded data behind fl_entropy.h, and the tables that it reads. Nobody else includes it. */
#ifndef FL_ENTROPY_WALK_H
#define FL_ENTROPY_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_WINDOW = 12, FL_WINDOWS = 1 << FL_WINDOW };
enum { FL_MCU_BLOCKS = 10 /* T.81 B.2.3, and libjpeg's own limit */ };

/* What a window of FL_WINDOW bits starts with, in 16 bits so that the tables of a scan fit the nearest cache: low byte: bits, code and
 * value bits together (a symbol may reach beyond the window); high byte: run, the coefficients that they cover. FL_RUN_EOB stands for
 * the rest of the block: larger than a block, with room to add the runs before it. FL_RUN_NONE: no code of at most FL_WINDOW bits. */
typedef uint16_t fl_step;
enum { FL_RUN_EOB = 129, FL_RUN_NONE = 255 };

typedef struct fl_codes {
    uint8_t lengths[16], symbols[256]; /* as in the file: the key of this cache */
    uint16_t symbol_count;
    bool built;
    int32_t last[17]; /* the largest code of each length, -1 for none */
    int32_t offset[17]; /* symbols[code + offset[length]] */
    fl_step all[FL_WINDOWS]; /* of as many symbols as lie in the window wholly */
    fl_step first[FL_WINDOWS]; /* of the first of them alone */
} fl_codes;

/* Bits that follow a symbol's code, and the coefficients that it covers: the zeros in its high half and one more. */
void fl_symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run);

/* Tables from the lengths and symbols in `codes`. False for lengths that are no prefix code, or that use the code of all ones. */
bool fl_codes_build(fl_codes *codes, bool ac);

/* The tables of an MCU's blocks, in order. */
typedef struct fl_mcu {
    const fl_codes *dc[FL_MCU_BLOCKS], *ac[FL_MCU_BLOCKS];
    uint32_t blocks;
} fl_mcu;

enum { FL_STREAMS = 3 };

/* Scratch of walks. Zeroed at first; freed by fl_walk_free. */
typedef struct fl_walk_room {
    uint8_t *plain; /* coded data of one restart interval, stuffing removed, zeros behind */
    uint64_t *starts[FL_STREAMS];
    size_t plain_room, starts_room;
} fl_walk_room;

void fl_walk_free(fl_walk_room *room);

/* True when the coded data at [at, end) is `mcus` MCUs, with restart markers every `interval` of them (0: none), that end with EOI.
 * False, too, when memory runs out. */
bool fl_walk_scan(fl_walk_room *room, const fl_mcu *mcu, uint32_t mcus, uint32_t interval, const uint8_t *at, const uint8_t *end);

#endif
