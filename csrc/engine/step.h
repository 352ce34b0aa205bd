/* engine/step: one resolved step of a sample's geometry: what a transform list does to the canvas, one crop,
 * pad, resize or flip at a time. */
#ifndef FL_ENGINE_STEP_H
#define FL_ENGINE_STEP_H

#include <stdint.h>

typedef enum fl_step_kind {
    FL_STEP_CROP =
        1, /* to width x height from (x, y), which may reach beyond the canvas: there it pads with 0 */
    FL_STEP_PAD = 2, /* x and y: what is added on the left and on top */
    FL_STEP_RESIZE = 3,
    FL_STEP_HFLIP = 4,
    FL_STEP_VFLIP = 5,
    FL_STEP_IOU_CROP = 6, /* FL_STEP_CROP that also zeroes the boxes whose centres are not inside */
    FL_STEP_SANITIZE = 7, /* drops boxes smaller than min_size or min_area, or not inside the canvas */
    FL_STEP_FORMAT = 8 /* converts upright boxes to box_format */
} fl_step_kind;

typedef struct fl_step {
    fl_step_kind kind;
    int64_t in_width, in_height; /* the canvas before */
    int64_t width, height; /* the canvas after */
    int64_t x, y;
    double min_size, min_area;
    int box_format; /* fl_box_format */
} fl_step;

#endif
