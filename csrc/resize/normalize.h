/* resize/normalize: a float image, less a mean and over a standard deviation for each channel, in one
 * pass. */
#ifndef FL_RESIZE_NORMALIZE_H
#define FL_RESIZE_NORMALIZE_H

#include <stddef.h>

enum { FL_RESIZE_NORMALIZE_CHANNELS = 4 };

/* dst = (src - mean) / std of n floats, each step rounded to float32, as two passes of torch's sub_ and div_
 * give it. `dst` may be `src`. */
void fl_resize_normalize(const float *src, float *dst, size_t n, float mean, float std);
/* The same of n pixels of up to FL_RESIZE_NORMALIZE_CHANNELS interleaved channels. */
void fl_resize_normalize_interleaved(const float *src, float *dst, size_t n, size_t channels,
                                     const float *mean, const float *std);

#endif
