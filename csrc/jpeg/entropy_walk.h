/* jpeg/entropy_walk: the walk over coded data behind jpeg/entropy.h. */
#ifndef FL_JPEG_ENTROPY_WALK_H
#define FL_JPEG_ENTROPY_WALK_H

#include "common/buffer.h"
#include "jpeg/entropy_index.h"
#include "jpeg/header.h"
#include "jpeg/markers.h"

/* The tables of an MCU's blocks, in order. */
typedef struct fl_jpeg_mcu {
    const fl_jpeg_codes *dc[FL_JPEG_BLOCKS_MAX], *ac[FL_JPEG_BLOCKS_MAX];
    uint32_t blocks, luma; /* luma: those of the first component */
} fl_jpeg_mcu;

enum { FL_JPEG_STREAMS = 3 };

/* Scratch of walks. Zeroed at first; freed by fl_jpeg_walk_free. */
typedef struct fl_jpeg_walk_room {
    fl_buffer plain; /* coded data of one restart interval, stuffing removed, FL_JPEG_PAD zeros behind */
    fl_buffer starts[FL_JPEG_STREAMS]; /* of uint64_t */
    fl_buffer steps[FL_JPEG_STREAMS];  /* of int16_t */
} fl_jpeg_walk_room;

/* Room for the marks that a walk leaves: one at every `every` MCUs of each row, in order. Each MCU row has
 * `across` MCUs. */
typedef struct fl_jpeg_notes {
    fl_jpeg_mark *next;
    uint32_t every, across;
    uint32_t column; /* of the MCU that comes */
} fl_jpeg_notes;

/* Growth of buffers whose size depends on a file's. */
static const fl_buffer_rule FL_JPEG_WALK_RULE = {.least = 1 << 16, .keep = 64 << 20};

void fl_jpeg_walk_free(fl_jpeg_walk_room *room);

/* Images of more MCUs are walked from one place only, and nothing is noted of them: the notes take up to 84
 * bytes for each. */
enum { FL_JPEG_NOTED_MOST = 1 << 18 };

/* True when the coded data at [at, end) is `mcus` MCUs, with restart markers every `interval` of them (0:
 * none), that end with EOI. False, too, when memory runs out. With notes (NULL: none; only for
 * fl_jpeg_header_usual, and not for more than FL_JPEG_NOTED_MOST MCUs) marks are made on the way; `every` is
 * 0 afterwards when the data are sound, but have DC coefficients that no mark holds. */
bool fl_jpeg_walk_coded(fl_jpeg_walk_room *room, const fl_jpeg_mcu *mcu, uint32_t mcus, uint32_t interval,
                        const uint8_t *at, const uint8_t *end, fl_jpeg_notes *notes);

#endif
