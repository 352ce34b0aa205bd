/* resize/half_ramp: tables of 16-bit floats that a line gives: 8 values at once instead of a look-up for
 * each. */
#ifndef FL_RESIZE_HALF_RAMP_H
#define FL_RESIZE_HALF_RAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/image.h"

/* A table of float16 or bfloat16 whose values are slope * byte + start of each channel, in float32 with one
 * rounding, and rounded to 16 bits. The line is found out from the table alone: `found` only when it gives
 * all its 768 values bit for bit on this CPU. Kept by the resizer from image to image. */
typedef struct fl_resize_half_ramp {
    uint16_t table[3][256];
    float slope[3], start[3];
    fl_dtype dtype;
    bool known, found; /* table is set; it is such a ramp */
} fl_resize_half_ramp;

/* NULL when the table's values must be looked up. dtype: FL_F16 or FL_BF16. */
const fl_resize_half_ramp *fl_resize_half_ramp_of(fl_resize_half_ramp *ramp, const void *table,
                                                  fl_dtype dtype);
void fl_resize_half_ramp_interleaved(const fl_resize_half_ramp *ramp, const uint8_t *rgb, uint16_t *dst,
                                     size_t n); /* n pixels */
void fl_resize_half_ramp_plane(const fl_resize_half_ramp *ramp, int channel, const uint8_t *bytes,
                               uint16_t *dst, size_t n); /* n bytes */

#endif
