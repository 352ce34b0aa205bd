/* colour/sharpen: Pillow's ImageFilter.SMOOTH, and ImageEnhance.Sharpness, which blends from it. */
#ifndef FL_COLOUR_SHARPEN_H
#define FL_COLOUR_SHARPEN_H

#include <stddef.h>
#include <stdint.h>

/* The image, smoothed: (the 3 x 3 pixels around each + 4 times itself) / 13, rounded; pixels at the edges stay.
 * Rows follow each other; `channels` bytes a pixel; out is other memory. Any thread. */
void fl_colour_smooth(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                      size_t channels);

#endif
