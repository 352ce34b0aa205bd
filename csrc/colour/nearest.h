/* colour/nearest: the nearest neighbours of warp.h's maps. */
#ifndef FL_COLOUR_NEAREST_H
#define FL_COLOUR_NEAREST_H

#include <stdint.h>

#include "colour/warp.h"

/* As fl_colour_warp. */
void fl_colour_nearest(const uint8_t *image, uint32_t width, uint32_t height, uint32_t channels,
                       const fl_colour_map *map, fl_colour_canvas out);

#endif
