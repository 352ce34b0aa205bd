/* resize/reduce: Pillow's Image.reduce of 8-bit grey and RGB images, bit for bit: means of whole pixels. */
#ifndef FL_RESIZE_REDUCE_H
#define FL_RESIZE_REDUCE_H

#include "common/buffer.h"
#include "common/image.h"
#include "common/status.h"

enum { FL_RESIZE_REDUCE_MOST = 1 << 24 }; /* pixels of a mean; from here on Pillow's 32-bit sums overflow */

/* Means of across x down pixels of the box, from its top left corner on; the last column and row are of those
 * pixels that there are. `out` has ceil(box.width / across) x ceil(box.height / down) pixels, without gaps;
 * sums are kept in `room`. The view is RGB, or planes of one channel of one byte. FL_EARG: the box is empty
 * or not inside the view, a factor is 0, or a mean is of FL_RESIZE_REDUCE_MOST pixels or more. FL_ENOMEM. */
fl_code fl_resize_reduce(const fl_view *view, const fl_box *box, uint32_t across, uint32_t down,
                         fl_buffer *room, uint8_t *out, fl_error *err);

#endif
