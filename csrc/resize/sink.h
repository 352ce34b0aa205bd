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

/* Ramps of the last tables of a resizer. */
typedef struct fl_resize_ramps {
    fl_resize_ramp whole; /* float32 */
    fl_resize_half_ramp half;
} fl_resize_ramps;

enum { FL_RESIZE_LINES = 4 }; /* rows that are finished at once */

/* The rows of one window on their way into the sink: RGB, or one byte a pixel where the sink has one
 * channel. */
typedef struct fl_resize_rows {
    const fl_sink *sink;
    const fl_resize_kernels *kernels;
    const fl_resize_ramp *ramp; /* or NULL */
    const fl_resize_half_ramp *half; /* or NULL */
    fl_buffer *line; /* FL_RESIZE_LINES rows that the sink does not take as they are */
    uint32_t x, y; /* the window's left column, already mirrored, and its top row */
    uint32_t n; /* pixels of a row */
    bool in_place; /* the sink takes finished rows as they are */
} fl_resize_rows;

/* Rows of n pixels whose first is to be at (at_x, at_y) of the unmirrored image. `ramps` are the resizer's.
 * FL_ENOMEM. */
fl_code fl_resize_rows_start(fl_resize_rows *rows, const fl_sink *sink, uint32_t at_x, uint32_t at_y,
                             uint32_t n, fl_resize_ramps *ramps, fl_buffer line[FL_RESIZE_LINES],
                             fl_error *err);

/* Where row i of the window is to be finished: in the sink, or in one of the lines. */
uint8_t *fl_resize_rows_at(const fl_resize_rows *rows, uint32_t i, int line);

/* Stores row i, already mirrored, unless it is where the sink wants it. */
void fl_resize_rows_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row);

#endif
