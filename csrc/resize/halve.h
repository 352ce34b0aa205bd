/* resize/halve: an image at half its size, of means of 2 x 2 pixels. */
#ifndef FL_RESIZE_HALVE_H
#define FL_RESIZE_HALVE_H

#include "common/buffer.h"
#include "common/image.h"
#include "common/status.h"

/* Makes the half of an RGB view in `room`: pixel (x, y) is the mean of the four
 * from (2 x, 2 y) on, rounded, or of those of them that there are. `half`
 * borrows room's bytes. FL_ENOMEM. */
fl_code fl_resize_halve(const fl_view *view, fl_buffer *room, fl_view *half, fl_error *err);

#endif
