/* resize/patches: lines of an image into patches. See FL_PATCHES. */
#ifndef FL_RESIZE_PATCHES_H
#define FL_RESIZE_PATCHES_H

#include "resize/sink.h"

/* Makes room for the lines of a row of patches. FL_ENOMEM. */
fl_code fl_resize_patches_start(const fl_resize_rows *rows, fl_error *err);

/* As fl_resize_rows_store(), of RGB. */
void fl_resize_patches_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row);

#endif
