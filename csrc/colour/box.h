/* colour/box: Pillow's extended box blur, of which its Gaussian blur is three. */
#ifndef FL_COLOUR_BOX_H
#define FL_COLOUR_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buffer.h"

/* Radius of the boxes whose `passes`-fold blur is nearest to a Gaussian of this radius (Gwosdek et al., "Theoretical
 * foundations of Gaussian convolution by extended box filtering", SSVM 2011). */
float fl_colour_gaussian_radius(float radius, int passes);

/* In place: `passes` box blurs of these radii, not negative; `channels` bytes a pixel. False: no memory.
 * `scratch` is the caller's, grows, and holds nothing. Any thread. */
bool fl_colour_box_blur(uint8_t *image, size_t width, size_t height, size_t channels, float x_radius,
                        float y_radius, int passes, fl_buffer *scratch);

#endif
