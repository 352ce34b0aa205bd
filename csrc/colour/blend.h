/* colour/blend: Pillow's Image.blend on bytes in place, with a constant, with an image, or with each pixel's own
 * light. */
#ifndef FL_COLOUR_BLEND_H
#define FL_COLOUR_BLEND_H

#include <stddef.h>
#include <stdint.h>

/* a + factor * (b - a) in float, cut off at 0 and 255, then rounded down; a is the constant `from`, b a byte of
 * `bytes`. Any thread, as all below. */
void fl_colour_blend_from(uint8_t *bytes, size_t count, uint8_t from, float factor);

/* The same from the bytes of another image. */
void fl_colour_blend(uint8_t *bytes, const uint8_t *from, size_t count, float factor);

/* The same from each RGB pixel's light. */
void fl_colour_saturate(uint8_t *rgb, size_t pixels, float factor);

#endif
