/* resize/resize_planes: resample of pixels that are not 8-bit RGB: 1 to 4 channels of 1 or 2 bytes, as grey,
 * RGBA and depth images have.
 *
 * torch's arithmetic on float tensors: float32, across and then down, rounded once at the end. Antialiased
 * bicubic of 8 bits clips between the passes, as Pillow and torch do with bytes. One fl_resize_planes per
 * thread: scratch and the last tables are kept between images.
 */
#ifndef FL_RESIZE_RESIZE_PLANES_H
#define FL_RESIZE_RESIZE_PLANES_H

#include "common/image.h"
#include "common/status.h"
#include "resize/resize.h"

typedef struct fl_resize_planes fl_resize_planes;

fl_code fl_resize_planes_create(fl_resize_planes **out, fl_error *err);
void fl_resize_planes_free(fl_resize_planes *planes); /* NULL is allowed */

/* fl_resize for a view and a sink of planes, whose channels and depth must be the same: values go into a sink
 * of FL_U8 or FL_U16 as they are, into floats through its table. FL_EARG when something does not fit. */
fl_code fl_resize_planes_run(fl_resize_planes *planes, const fl_view *view, const fl_resize_spec *spec,
                             const fl_sink *sink, fl_error *err);

/* fl_resize_sink_fill for a sink of planes: `values` has one for each channel. */
void fl_resize_planes_fill(const fl_sink *sink, const fl_box *keep, const uint16_t *values);

#endif
