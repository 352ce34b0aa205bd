/* colour/steps: colour steps of an image, one after the other. */
#ifndef FL_COLOUR_STEPS_H
#define FL_COLOUR_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buffer.h"

typedef enum fl_colour_kind {
    FL_COLOUR_BLEND,    /* from the constant `level` to the image, by `factor` */
    FL_COLOUR_SATURATE, /* from its light to the image, by `factor`; RGB alone */
    FL_COLOUR_GREY,     /* each pixel's light three times; RGB alone */
    FL_COLOUR_HUE,      /* turned by `level` of 256; RGB alone */
    FL_COLOUR_TABLE,    /* by one table for each channel, `tables` */
    FL_COLOUR_CONTRAST, /* from the image's mean light, rounded, to the image, by `factor` */
    FL_COLOUR_AUTOCONTRAST, /* as ImageOps has it, without a cutoff; fewer than 2^32 pixels */
    FL_COLOUR_EQUALIZE,     /* as ImageOps has it; fewer than 2^32 pixels */
    FL_COLOUR_SMOOTH,
    FL_COLOUR_SHARPEN, /* from the smooth image to the image, by `factor` */
    FL_COLOUR_BLUR,    /* `passes` box blurs of these radii */
} fl_colour_kind;

typedef struct fl_colour_step {
    fl_colour_kind kind;
    uint8_t level;
    float factor;
    float x_radius, y_radius;
    int passes;
    const uint8_t *tables; /* 256 bytes a channel; the caller's */
} fl_colour_step;

/* Writes the image after the steps to `out`, which is other memory, or the image itself. Rows follow each other; `channels` is 1 or 3.
 * Neighbouring steps that work on single pixels are done together, some thousand pixels at a time, which stay in the
 * first cache. False: no memory. `scratch` is the caller's, grows, and holds nothing. Any thread. */
bool fl_colour_run(const uint8_t *image, uint8_t *out, size_t width, size_t height, size_t channels,
                   const fl_colour_step *steps, size_t count, fl_buffer *scratch);

#endif
