/* resize/axis: coefficient tables: where each output along an axis looks, and with what weights. */
#ifndef FL_RESIZE_AXIS_H
#define FL_RESIZE_AXIS_H

#include "common/buffer.h"
#include "resize/resize.h"

typedef enum fl_resize_sum { FL_RESIZE_LONG = 0, FL_RESIZE_QUAD = 1 } fl_resize_sum;

enum {
    FL_RESIZE_QUAD_TAPS = 16, /* a longer filter takes FL_RESIZE_LONG: roundings of its taps would add up */
    FL_RESIZE_COEF_BITS_MAX =
        22, /* 255 * 2^22 times bicubic's sum of |coefficients| (below 1.9) stays inside an int32 */
    FL_RESIZE_LOAD = 16, /* a horizontal kernel reads this many bytes at a pixel, whatever it uses of them */
    FL_RESIZE_BLOCK = 4 /* kernels across make this many output pixels at a time; tables are padded to it */
};

/* A box edge may be this far outside by rounding of the caller's arithmetic, in pixels; it is then moved
 * inside. */
#define FL_RESIZE_EDGE 1e-6

/* The values from which a table is computed; equal keys mean equal tables. */
typedef struct fl_resize_axis_key {
    double start, length; /* the box along this axis, in source pixels */
    uint32_t source, out; /* the view's size and the size that the box becomes */
    uint32_t begin, count; /* the outputs wanted: begin .. begin + count - 1 */
    fl_resize_filter filter;
    fl_resize_sum sum;
    bool antialias, mirror; /* mirror: entry 0 is the last output wanted */
    bool horizontal;
} fl_resize_axis_key;

/* Output i = sum over k < taps of coefficient(i, k) * source[first[i] + k]. first[i] + taps <= the source's
 * size, except that horizontal FL_RESIZE_LONG tables, whose taps are padded to an even number, start at 0 and
 * have zeros where a narrow source has no pixel. Coefficients are int16 at coef + i * stride; horizontal
 * FL_RESIZE_QUAD tables have each twice, so that a 32-bit broadcast loads it. */
typedef struct fl_resize_axis {
    fl_resize_axis_key key;
    bool valid;
    int bits; /* 2^bits = 1.0 */
    uint32_t taps, stride;
    uint32_t *first; /* count, padded to FL_RESIZE_BLOCK with copies of the last */
    int16_t *coef; /* vertical FL_RESIZE_QUAD: the bits of uint16_t; zero in the padding */
    uint32_t low, high; /* source pixels low .. high - 1 are used */
    size_t reach; /* bytes from a row's start that a horizontal FL_RESIZE_LONG kernel reads */
    double *weight; /* count x taps: what the coefficients were rounded from */
    fl_buffer first_buffer, coef_buffer, weight_buffer; /* where those are */
} fl_resize_axis;

/* The keys of a resize but for `sum` and `horizontal`. */
void fl_resize_axis_keys(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink,
                         fl_resize_axis_key *across, fl_resize_axis_key *down);

/* True if output i along this axis is one source pixel. */
bool fl_resize_axis_copies(const fl_resize_axis_key *key);

/* Width of the filter in source pixels: it follows from the geometry alone, not from the view's size or the
 * window. */
double fl_resize_axis_width(const fl_resize_axis_key *key);

/* Fraction bits of the int16 rows that an FL_RESIZE_LONG filter goes down: 303 (bicubic's overshoot) << 6
 * fits an int16, and its sums, below 2^9 whole and fl_resize_row_bits + bits fraction bits, an int32. Long
 * filters need the bits for their small coefficients. */
int fl_resize_row_bits(const fl_resize_axis_key *down);

/* Makes the table for key, or keeps it when it is already the one. FL_ENOMEM leaves the axis empty but
 * usable. */
fl_code fl_resize_axis_build(fl_resize_axis *axis, const fl_resize_axis_key *key, fl_error *err);
void fl_resize_axis_free(fl_resize_axis *axis);

/* fl_buffer_fit by the resizer's rule. */
fl_code fl_resize_fit(fl_buffer *buffer, size_t count, size_t size, fl_error *err);

#endif
