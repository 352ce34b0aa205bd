/* resize/parts: what the parts of the resizer share: coefficient tables and the row kernels. Internal to csrc/resize.
 *
 * NOTE [ resize: one rounding ]
 * Between the passes a value keeps fraction bits, so that only the end rounds to a byte. Short bilinear filters (FL_QUAD) go down first:
 * four output rows are made at once as int16 with FL_QUAD_BITS, interleaved pixel by pixel, and one multiply per tap then takes
 * the four rows across. All others (FL_LONG) go across first, as Pillow, into int16 rows with fl_row_bits of the filter down.
 * Every step is integer arithmetic defined by the scalar kernels; a SIMD kernel gives the same bytes or is wrong.
 *
 * How far off: with T taps, coefficients that are rounded but sum to 1.0 exactly move a value by at most 255 * T/2 of their last bit.
 * FL_QUAD, T <= 16: 0.06 a pass, and half of FL_QUAD_BITS' last bit for each tap of each pass, 0.06 again: below 0.25 in all. FL_LONG:
 * below 0.16, up to 256 taps below 0.3, and the 1/2 of the end. Pillow's own two roundings are within 1 (bilinear) or 1.13 (bicubic)
 * of the exact value: so the two never differ by 2.
 */
#ifndef FL_RESIZE_PARTS_H
#define FL_RESIZE_PARTS_H

#include "resize/resize.h"

typedef enum fl_sum { FL_LONG = 0, FL_QUAD = 1 } fl_sum;

enum {
    FL_QUAD_TAPS = 16, /* a longer filter takes FL_LONG: roundings of its taps would add up */
    FL_QUAD_BITS = 7, /* fraction bits of a quad's int16: 255 << 7 fits, and so do the roundings of FL_QUAD_TAPS */
    FL_QUAD_LANES = 16, /* a quad: red, green, blue and a lane that counts for nothing, of four rows */
    FL_COEF_BITS_MAX = 22, /* 255 * 2^22 times bicubic's sum of |coefficients| (below 1.9) stays inside an int32 */
    FL_LOAD = 16, /* a horizontal kernel reads this many bytes at a pixel, whatever it uses of them */
    FL_BLOCK = 4 /* kernels across make this many output pixels at a time; tables are padded to it */
};

/* What a table is computed from; equal keys mean equal tables. */
typedef struct fl_axis_key {
    double start, length; /* the box along this axis, in source pixels */
    uint32_t source, out; /* the view's size and the size that the box becomes */
    uint32_t begin, count; /* the outputs wanted: begin .. begin + count - 1 */
    fl_filter filter;
    fl_sum sum;
    bool antialias, mirror; /* mirror: entry 0 is the last output wanted */
    bool horizontal;
} fl_axis_key;

/* Output i = sum over k < taps of coefficient(i, k) * source[first[i] + k]. first[i] + taps <= the source's size, except that
 * horizontal FL_LONG tables, whose taps are padded to an even number, start at 0 and have zeros where a narrow source has no pixel.
 * Coefficients are int16 at coef + i * stride; horizontal FL_QUAD tables have each twice, so that a 32-bit broadcast loads it. */
typedef struct fl_axis {
    fl_axis_key key;
    bool valid;
    int bits; /* 2^bits = 1.0 */
    uint32_t taps, stride;
    uint32_t *first; /* count, padded to FL_BLOCK with copies of the last */
    int16_t *coef; /* vertical FL_QUAD: the bits of uint16_t; zero in the padding */
    uint32_t low, high; /* source pixels low .. high - 1 are used */
    size_t reach; /* bytes from a row's start that a horizontal FL_LONG kernel reads */
    size_t first_room, coef_room, weight_room; /* bytes allocated */
    double *weight; /* scratch */
} fl_axis;

/* Whether output i along this axis is one source pixel. */
bool fl_axis_copies(const fl_axis_key *key);

/* How many source pixels the filter is wide: of the geometry alone, not of the view's size or the window. */
double fl_axis_width(const fl_axis_key *key);

/* Fraction bits of the int16 rows that an FL_LONG filter goes down: 303 (bicubic's overshoot) << 6 fits an int16, and its sums, below
 * 2^9 whole and fl_row_bits + bits fraction bits, an int32. Long filters need the bits for their small coefficients. */
int fl_row_bits(const fl_axis_key *down);

/* Makes the table for key, or keeps it when it is already the one. FL_ENOMEM leaves the axis empty but usable. */
fl_code fl_axis_build(fl_axis *axis, const fl_axis_key *key, fl_error *err);
void fl_axis_free(fl_axis *axis);

/* Grows *block to at least count * size bytes, aligned for SIMD; contents are lost. count * size is checked for overflow. */
fl_code fl_scratch(void **block, size_t *room, size_t count, size_t size, fl_error *err);

/* Four rows of source pixels that four output rows start at; each output row takes taps of them, stride bytes apart. */
typedef struct fl_quad_rows {
    const uint8_t *row[4];
    const int16_t *coef[4];
    size_t stride;
    uint32_t taps;
} fl_quad_rows;

/* What becomes of a row's values between the passes of FL_LONG. */
typedef struct fl_row_form {
    int bits; /* of fraction */
    int low, high; /* values are clipped to this, in their last bit: Pillow's intermediate image has bytes */
} fl_row_form;

typedef struct fl_kernels {
    const char *name;
    /* n pixels of each row, down: n quads. Reads nothing past the pixels. */
    void (*quad_down)(const fl_quad_rows *rows, int16_t *quads, size_t n);
    /* Quads, of which the first is the source's pixel axis->low, across to key.count RGB pixels of four rows. Rows of which only the
     * last are wanted may be the same. */
    void (*quad_across)(const fl_axis *axis, const int16_t *quads, uint8_t *const dst[4]);
    /* Two source rows to two rows of key.count * 3 values. Both may be the same. Reads axis->reach bytes from each row's start. */
    void (*long_across)(const fl_axis *axis, fl_row_form form, const uint8_t *const src[2], int16_t *const dst[2]);
    /* rows[0..taps) of n values each, combined by coef into n bytes; reads and writes nothing past n. */
    void (*long_down)(const fl_axis *axis, fl_row_form form, const int16_t *coef, const int16_t *const *rows, uint8_t *dst, size_t n);
    /* n RGB pixels, last first. */
    void (*mirror)(const uint8_t *rgb, uint8_t *dst, size_t n);
    /* n RGB pixels into three planes. */
    void (*split)(const uint8_t *rgb, uint8_t *const plane[3], size_t n);
} fl_kernels;

extern const fl_kernels fl_kernels_scalar;
extern const fl_kernels fl_kernels_avx2; /* only on x86-64 */

/* A float32 table that is (byte / 255 - mean) / std, each step rounded to float32, found out from the table alone: `found` only when the
 * formula gives all its 768 values bit for bit on this CPU. Kept by the resizer from image to image. */
typedef struct fl_ramp {
    float table[3][256], mean[3], std[3];
    bool known, found; /* table is set; it is such a ramp */
} fl_ramp;

/* NULL when the table's values must be looked up. */
const fl_ramp *fl_ramp_of(fl_ramp *ramp, const void *table);
void fl_ramp_interleaved(const fl_ramp *ramp, const uint8_t *rgb, float *dst, size_t n); /* n pixels */
void fl_ramp_plane(const fl_ramp *ramp, int channel, const uint8_t *bytes, float *dst, size_t n); /* n bytes of one channel */

/* n RGB pixels into the sink's type and layout, at (x, y) of the stored (already mirrored) image. ramp may be NULL. */
void fl_sink_row(const fl_sink *sink, const fl_kernels *kernels, const fl_ramp *ramp, uint32_t x, uint32_t y, const uint8_t *rgb, size_t n);

#endif
