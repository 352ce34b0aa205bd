/* NOTE [ nearest: by sums of steps ]
 *
 * Pillow finds the nearest neighbours of an affine map by sums of steps along a row and down the rows: in double for
 * maps without shear, else in 16 bits of fraction where all corners have room, else in double. Those of a
 * perspective are computed for each pixel. So it is here. */
#include "colour/nearest.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/simd.h"

typedef struct nearest {
    const uint8_t *pixels;
    uint32_t width, height;
    const fl_colour_map *map;
    fl_colour_canvas out;
} nearest;

FL_INLINE void copied(const nearest *n, size_t step, uint8_t *to, int32_t x, int32_t y) {
    if ((uint32_t)x < n->width && (uint32_t)y < n->height)
        memcpy(to, n->pixels + ((size_t)y * n->width + (size_t)x) * step, step);
}

/* A coordinate's whole part; -1 for a negative one, and for what is no coordinate of an image. */
FL_INLINE int32_t whole(double at) { return at >= 0.0 && at < (double)(1u << 31) ? (int32_t)at : -1; }

FL_INLINE void nearest_perspective(const nearest *n, size_t step) {
    const double *c = n->map->c;
    uint8_t *to = n->out.pixels;
    for (uint32_t y = 0; y < n->out.height; y++)
        for (uint32_t x = 0; x < n->out.width; x++, to += step) {
            const double xin = x + 0.5, yin = y + 0.5;
            copied(n, step, to, whole((c[0] * xin + c[1] * yin + c[2]) / (c[6] * xin + c[7] * yin + 1)),
                   whole((c[3] * xin + c[4] * yin + c[5]) / (c[6] * xin + c[7] * yin + 1)));
        }
}

/* By sums of steps in double. `turned` maps have columns and rows that depend on both coordinates. */
FL_INLINE void nearest_steps(const nearest *n, size_t step, bool turned) {
    const double *c = n->map->c;
    double first_x = turned ? c[2] + c[1] * 0.5 + c[0] * 0.5 : c[2] + c[0] * 0.5,
           first_y = turned ? c[5] + c[4] * 0.5 + c[3] * 0.5 : c[5] + c[4] * 0.5;
    uint8_t *to = n->out.pixels;
    for (uint32_t y = 0; y < n->out.height; y++) {
        double xin = first_x, yin = first_y;
        for (uint32_t x = 0; x < n->out.width; x++, to += step) {
            copied(n, step, to, whole(xin), whole(yin));
            xin += c[0];
            if (turned) yin += c[3];
        }
        if (turned) first_x += c[1];
        first_y += c[4];
    }
}

/* What is no int32 is the least one, as x86's conversion has it. */
static int32_t fixed(double at) {
    const double whole = floor(at * 65536.0 + 0.5);
    return whole >= -2147483648.0 && whole < 2147483648.0 ? (int32_t)whole : INT32_MIN;
}

/* In 16 bits of fraction; sums wrap around, as they may for pixels far outside. */
FL_INLINE void nearest_fixed(const nearest *n, size_t step) {
    const double *c = n->map->c;
    const uint32_t right_x = (uint32_t)fixed(c[0]), right_y = (uint32_t)fixed(c[3]),
                   down_x = (uint32_t)fixed(c[1]), down_y = (uint32_t)fixed(c[4]);
    uint32_t first_x = (uint32_t)fixed(c[2] + c[0] * 0.5 + c[1] * 0.5),
             first_y = (uint32_t)fixed(c[5] + c[3] * 0.5 + c[4] * 0.5);
    uint8_t *to = n->out.pixels;
    for (uint32_t y = 0; y < n->out.height; y++, first_x += down_x, first_y += down_y) {
        uint32_t xin = first_x, yin = first_y;
        for (uint32_t x = 0; x < n->out.width; x++, to += step, xin += right_x, yin += right_y)
            copied(n, step, to, (int32_t)xin >> 16, (int32_t)yin >> 16);
    }
}

static bool has_room(const double c[6], double x, double y) {
    return fabs(x * c[0] + y * c[1] + c[2]) < 32768.0 && fabs(x * c[3] + y * c[4] + c[5]) < 32768.0;
}

FL_INLINE void nearest_any(const nearest *n, size_t step) {
    const double *c = n->map->c, right = n->out.width, down = n->out.height;
    if (n->map->perspective) nearest_perspective(n, step);
    else if (c[1] == 0 && c[3] == 0) nearest_steps(n, step, false);
    else if (has_room(c, 0, 0) && has_room(c, right, down) && has_room(c, 0, down) && has_room(c, right, 0))
        nearest_fixed(n, step);
    else nearest_steps(n, step, true);
}

void fl_colour_nearest(const uint8_t *image, uint32_t width, uint32_t height, uint32_t channels,
                       const fl_colour_map *map, fl_colour_canvas out) {
    const nearest n = {image, width, height, map, out};
    if (channels == 3) nearest_any(&n, 3);
    else nearest_any(&n, 1);
}
