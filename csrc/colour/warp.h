/* colour/warp: Pillow's Image.transform, AFFINE and PERSPECTIVE. */
#ifndef FL_COLOUR_WARP_H
#define FL_COLOUR_WARP_H

#include <stddef.h>
#include <stdint.h>

typedef enum fl_colour_filter { FL_COLOUR_NEAREST, FL_COLOUR_BILINEAR, FL_COLOUR_BICUBIC } fl_colour_filter;

typedef struct fl_colour_map {
    /* Where a pixel of the result comes from, x and y the coordinates of its middle: ((c0 x + c1 y + c2) / w,
     * (c3 x + c4 y + c5) / w), where w is 1, or c6 x + c7 y + 1. */
    double c[8];
    int perspective;
} fl_colour_map;

typedef struct fl_colour_canvas {
    uint8_t *pixels; /* of the result; rows follow each other */
    uint32_t width, height;
} fl_colour_canvas;

/* Writes the result's pixels that come from inside of the image, and leaves the others as they are. The image has
 * rows that follow each other, of 1 or 3 channels, as the result, and fewer than 2^31 bytes; it is other memory. Any thread. */
void fl_colour_warp(const uint8_t *image, uint32_t width, uint32_t height, uint32_t channels,
                    const fl_colour_map *map, fl_colour_filter filter, fl_colour_canvas out);

#endif
