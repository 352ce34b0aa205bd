/* resize/ramp: float tables that a formula gives: 8 values at once instead of a look-up for each. */
#ifndef FL_RESIZE_RAMP_H
#define FL_RESIZE_RAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A float32 table that is (byte / 255 - mean) / std, each step rounded to float32, found out from the table
 * alone: `found` only when the formula gives all its 768 values bit for bit on this CPU. Kept by the resizer
 * from image to image. */
typedef struct fl_resize_ramp {
    float table[3][256], mean[3], std[3];
    bool known, found; /* table is set; it is such a ramp */
} fl_resize_ramp;

/* NULL when the table's values must be looked up. */
const fl_resize_ramp *fl_resize_ramp_of(fl_resize_ramp *ramp, const void *table);
void fl_resize_ramp_interleaved(const fl_resize_ramp *ramp, const uint8_t *rgb, float *dst,
                                size_t n); /* n pixels */
void fl_resize_ramp_plane(const fl_resize_ramp *ramp, int channel, const uint8_t *bytes, float *dst,
                          size_t n); /* n bytes of one channel */

#endif
