/* resize/sink: the last step of a row: from RGB bytes to the sink's type and layout. */
#ifndef FL_RESIZE_SINK_H
#define FL_RESIZE_SINK_H

#include "common/image.h"
#include "resize/kernels.h"
#include "resize/ramp.h"

/* Fills the sink outside `keep` (of the unmirrored image; inside the sink, may be empty) with one colour (through its lut): what padding shows. */
void fl_resize_sink_fill(const fl_sink *sink, const fl_box *keep, const uint8_t rgb[3]);

/* n RGB pixels into the sink's type and layout, at (x, y) of the stored (already mirrored) image. ramp may be NULL. */
void fl_resize_sink_row(const fl_sink *sink, const fl_resize_kernels *kernels, const fl_resize_ramp *ramp, uint32_t x, uint32_t y,
                        const uint8_t *rgb, size_t n);

#endif
