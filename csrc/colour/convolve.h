/* colour/convolve: torch's convolution of bytes, each channel for itself, by which torchvision blurs. */
#ifndef FL_COLOUR_CONVOLVE_H
#define FL_COLOUR_CONVOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buffer.h"

enum { FL_COLOUR_KERNEL_MOST = 255 };

typedef struct fl_colour_kernel {
    size_t width, height; /* odd, less than twice the image's sides, at most FL_COLOUR_KERNEL_MOST */
    const float *weights; /* row by row; not negative, and about 1 together; the caller's */
} fl_colour_kernel;

/* Sums of weights by bytes, fused multiply-adds in the order of the weights from 0 on, as oneDNN's kernels have them;
 * rounded to even. Beyond the edges the image is mirrored, without the edge itself. Rows follow each other; `channels`
 * is 1 or 3, `out` is other memory. False: no memory. `scratch` is the caller's, grows, and holds nothing. Any
 * thread. */
bool fl_colour_convolve(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                        size_t channels, const fl_colour_kernel *kernel, fl_buffer *scratch);

#endif
