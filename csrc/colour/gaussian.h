/* colour/gaussian: an image convolved with a line of weights each way: torchvision's gaussian_blur. */
#ifndef FL_COLOUR_GAUSSIAN_H
#define FL_COLOUR_GAUSSIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buffer.h"

typedef struct fl_colour_gaussian {
    uint32_t wide, tall; /* weights across and down; odd */
    double sigma;        /* standard deviation, pixels; above 0 */
} fl_colour_gaussian;

/* In place. Sums are made in float, and rounded once, to the nearest, of two the even; beyond its edges the image is
 * mirrored about its outermost pixels, so that wide / 2 is below the width, and tall / 2 below the height. An image
 * that is mirrored before has the mirrored bytes. False: no memory. `scratch` is the caller's, grows, and holds
 * nothing. Any thread. */
bool fl_colour_gaussian_run(uint8_t *image, size_t width, size_t height, size_t channels,
                            const fl_colour_gaussian *gaussian, fl_buffer *scratch);

#endif
