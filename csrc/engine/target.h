/* engine/target: where the rows of a batch lie that are images: one after another and of one size, or each of
 * its own.
 *
 * NOTE [ target: images of different sizes ]
 * FL_LAY_EQUAL   every row has the sink's size; no places.
 * FL_LAY_LIST    each row has its own size and lies tight at its own place.
 * FL_LAY_FLAT    the same, one right after another.
 * FL_LAY_PADDED  each row has its own size and lies in the top left corner of a frame: the batch's largest
 * width and height, each rounded
 *                up to a multiple. All bytes of the frame beyond the row are zeros: whoever makes the row
 *                clears them.
 * Sizes are known before the rows are made. Only where a size follows from what the record holds (`bounded`)
 * a place has the largest size that is possible, and whoever makes the row notes its own; so a slot never
 * needs more than was taken for it. Frames are made as small as their images when all rows are made.
 * Masks of an image have a target of their own, with the sizes of the image's rows.
 */
#ifndef FL_ENGINE_TARGET_H
#define FL_ENGINE_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/image.h"
#include "common/status.h"

typedef enum fl_lay { FL_LAY_EQUAL = 0, FL_LAY_LIST = 1, FL_LAY_PADDED = 2, FL_LAY_FLAT = 3 } fl_lay;

typedef struct fl_place {
    size_t at, bytes; /* from the target's first byte; all that belongs to the row */
    /* of the row; 0 x 0 where it cannot be made. Of a bounded target written by whoever makes the row */
    uint32_t width, height;
} fl_place;

/* Form of one part in all rows of a batch. */
typedef struct fl_target {
    fl_sink sink; /* of row 0; with places its size is the frame's, or 0 x 0 where there is none */
    size_t row_bytes; /* without places: row i starts row_bytes * i further */
    uint32_t unit, planes; /* bytes of a pixel in a plane, and planes */
    bool bounded; /* the places' sizes are the largest that are possible */
    fl_place *places; /* [rows], or NULL: all rows are of the sink's size */
} fl_target;

/* Sets where rows lie. Set before: unit, planes, the sink's dtype and layout, and for FL_LAY_EQUAL its size,
 * else the places' sizes. `multiple` is that of a frame's sides. *bytes: of all rows. FL_EARG where they are
 * too many. */
fl_code fl_target_lay(fl_target *target, uint32_t rows, fl_lay lay, uint32_t multiple, size_t *bytes,
                      fl_error *err);

/* Checks that a row may be of width x height; notes it as the row's size if that was not known.
 * FL_ERECORD. */
fl_code fl_target_fit(const fl_target *target, uint32_t row, uint32_t width, uint32_t height, fl_error *err);

/* The row's bytes are zeros. Of a bounded target it is then of 0 x 0 pixels. */
void fl_target_clear(const fl_target *target, uint32_t row);

/* The row's bytes beyond its image are zeros. */
void fl_target_clear_margin(const fl_target *target, uint32_t row);

/* Makes the frames of a bounded target whose rows are made as small as fl_target_lay makes them for the rows'
 * own sizes, and moves the rows together. Nothing, where there are no frames, or the target is not
 * bounded. */
void fl_target_tighten(fl_target *target, uint32_t rows, uint32_t multiple);

/* Makes the frames of a target width x height pixels, no larger than they are, and moves the rows
 * together. */
void fl_target_narrow(fl_target *target, uint32_t rows, uint32_t width, uint32_t height);

/* Moves what a smaller frame has of a plane of frames, line by line, to `to`, which is not behind `from`;
 * returns the end of it. Pitches are in bytes. */
uint8_t *fl_target_move_plane(const uint8_t *from, size_t from_pitch, uint8_t *to, size_t to_pitch,
                              size_t lines);

static inline fl_sink fl_target_sink(const fl_target *target, uint32_t row) {
    fl_sink sink = target->sink;
    if (target->places) {
        const fl_place *place = &target->places[row];
        sink.data = (uint8_t *)sink.data + place->at;
        sink.width = place->width, sink.height = place->height;
    } else {
        sink.data = (uint8_t *)sink.data + target->row_bytes * row;
    }
    return sink;
}

#endif
