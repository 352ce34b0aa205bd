/* resize/sink: the last step of a row: from RGB bytes to the sink's type and layout. */
#ifndef FL_RESIZE_SINK_H
#define FL_RESIZE_SINK_H

#include "common/buffer.h"
#include "common/image.h"
#include "common/status.h"
#include "resize/half_ramp.h"
#include "resize/kernels.h"
#include "resize/ramp.h"

/* Fills the sink outside `keep` (of the unmirrored image; inside the sink, may be empty) with one colour
 * (through its lut): what padding shows. */
void fl_resize_sink_fill(const fl_sink *sink, const fl_box *keep, const uint8_t rgb[3]);

enum { FL_RESIZE_LINES = 4 }; /* rows that are finished at once */

/* What a resizer keeps from image to image for the rows that it finishes. */
typedef struct fl_resize_room {
    fl_resize_ramp whole; /* of the last table of float32 */
    fl_resize_half_ramp half;
    fl_buffer line[FL_RESIZE_LINES]; /* rows that the sink does not take as they are */
    fl_buffer band; /* lines that wait for those of the same patches */
} fl_resize_room;

void fl_resize_room_free(fl_resize_room *room);

/* The rows of one window on their way into the sink: RGB, or one byte a pixel where the sink has one
 * channel. */
typedef struct fl_resize_rows {
    const fl_sink *sink;
    const fl_resize_kernels *kernels;
    const fl_resize_ramp *ramp; /* or NULL */
    const fl_resize_half_ramp *half; /* or NULL */
    fl_resize_room *room;
    uint32_t x, y; /* the window's left column, already mirrored, and its top row */
    uint32_t n, count; /* pixels of a row, and rows */
    bool in_place; /* the sink takes finished rows as they are */
} fl_resize_rows;

/* Rows of a window of the unmirrored image. FL_ENOMEM. */
fl_code fl_resize_rows_start(fl_resize_rows *rows, const fl_sink *sink, const fl_box *window,
                             fl_resize_room *room, fl_error *err);

/* Where row i of the window is to be finished: in the sink, or in one of the lines. */
uint8_t *fl_resize_rows_at(const fl_resize_rows *rows, uint32_t i, int line);

/* The line of the sink that row i is. */
uint32_t fl_resize_rows_y(const fl_resize_rows *rows, uint32_t i);

/* n values of one channel in the sink's type, where that is not FL_U8. */
void fl_resize_rows_convert(const fl_resize_rows *rows, int channel, const uint8_t *values, void *to,
                            size_t n);

/* Stores row i, already mirrored, unless it is where the sink wants it. Every row is stored, in this order. */
void fl_resize_rows_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row);

#endif
