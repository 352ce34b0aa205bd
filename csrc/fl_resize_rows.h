/* fl_resize_rows: what the parts of the resizer share: coefficient tables and the row kernels. Internal to fl_resize*.c.
 *
 * NOTE [ resize: three kinds of sums ]
 * FL_SUM16: bilinear, vertical, short filters. Unsigned coefficients, 65536 = 1.0; every product is cut to 8 fraction bits before it
 * is added, so that 16-bit lanes hold the sum. The bias of the cuts, half a unit a tap, is added back with the rounding.
 * FL_SUM32: signed 16-bit coefficients, 2^bits = 1.0, 32-bit sums, rounded half up and clipped to a byte. bits is as large as fits, so
 * long filters with small coefficients keep their precision.
 * FL_FINE: antialiased bicubic. Coefficients of 22 bits, as Pillow's, each as an upper and a lower half (h << FL_FINE_BITS) + l with a
 * sum of its own: bicubic amplifies what the first pass rounds otherwise than Pillow, so it must hardly ever round otherwise.
 * An output's coefficients sum to 1.0 (FL_FINE: nearly) so that a constant image stays constant. All are integer arithmetic,
 * defined by the scalar kernels; a SIMD kernel gives the same bytes or is wrong.
 */
#ifndef FL_RESIZE_ROWS_H
#define FL_RESIZE_ROWS_H

#include "fl_resize.h"

typedef enum fl_sum { FL_SUM32 = 0, FL_SUM16 = 1, FL_FINE = 2 } fl_sum;

enum {
    FL_SUM16_TAPS = 16, /* a longer filter takes FL_SUM32: the cuts would cost it more than the rounding does */
    FL_COEF_BITS_MAX = 22, /* 255 * 2^22 times bicubic's sum of |coefficients| (below 1.9) stays inside an int32 */
    FL_FINE_BITS = 11, /* of FL_FINE's lower half */
    FL_LOAD = 16, /* a horizontal kernel reads this many bytes at a pixel, whatever it uses of them */
    FL_WIDE_BITS = 6, /* fraction bits of an unclipped int16 row; bicubic overshoots to 303 at most: 303 << 6 fits */
    FL_BLOCK = 4 /* horizontal kernels make this many output pixels at a time; tables are padded to it */
};

/* What a table is computed from; equal keys mean equal tables. */
typedef struct fl_axis_key {
    double start, length; /* the box along this axis, in source pixels */
    uint32_t source, out; /* the view's size and the size that the box becomes */
    uint32_t begin, count; /* the outputs wanted: begin .. begin + count - 1 */
    fl_filter filter;
    bool antialias, mirror; /* mirror: entry 0 is the last output wanted */
    bool horizontal; /* pads the taps to what the horizontal kernels step by */
} fl_axis_key;

/* Output i = sum over k < taps of coefficient(i, k) * source[first[i] + k]. first[i] + taps <= the source's size, except that
 * horizontal tables of a source narrower than their padded taps start at 0 and have zeros where there is no pixel.
 * Coefficients are int16 at coef + i * stride; FL_FINE has them in pairs of taps: h0 h1 l0 l1, h2 h3 l2 l3, ... */
typedef struct fl_axis {
    fl_axis_key key;
    bool valid;
    bool identity; /* output i is one source pixel */
    fl_sum sum;
    int bits; /* 2^bits = 1.0 */
    uint32_t taps, stride;
    uint32_t *first; /* count, padded to FL_BLOCK with copies of the last */
    int16_t *coef; /* FL_SUM16: the bits of uint16_t; zero in the padding */
    uint32_t low, high; /* source pixels low .. high - 1 are used */
    size_t reach; /* bytes from a row's start that a horizontal kernel reads */
    size_t first_room, coef_room, weight_room; /* bytes allocated */
    double *weight; /* scratch */
} fl_axis;

/* Makes the table for key, or keeps it when it is already the one. FL_ENOMEM leaves the axis empty but usable. */
fl_code fl_axis_build(fl_axis *axis, const fl_axis_key *key, fl_error *err);
void fl_axis_free(fl_axis *axis);

/* Grows *block to at least count * size bytes; contents are lost. count * size is checked for overflow. */
fl_code fl_scratch(void **block, size_t *room, size_t count, size_t size, fl_error *err);

/* Coefficient k of an output of a FL_FINE table. */
static inline int32_t fl_fine_coef(const int16_t *coef, uint32_t k) {
    const int16_t *pair = coef + k / 2 * 4 + k % 2;
    return pair[0] * (1 << FL_FINE_BITS) + pair[2];
}

typedef struct fl_kernels {
    const char *name;
    /* Two source rows to two rows of key.count RGB pixels. Both may be the same. Reads axis->reach bytes from each row's start. */
    void (*horizontal)(const fl_axis *axis, const uint8_t *const src[2], uint8_t *const dst[2]);
    /* rows[0..taps) of n bytes each, combined by coef into n bytes; reads and writes nothing past n. */
    void (*vertical)(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n);
    /* n RGB pixels into three planes. */
    void (*split)(const uint8_t *rgb, uint8_t *const plane[3], size_t n);
} fl_kernels;

extern const fl_kernels fl_kernels_scalar;
extern const fl_kernels fl_kernels_avx2; /* only on x86-64 */

/* Bicubic without antialiasing has one rounding, at its end: the rows between the passes are int16, FL_WIDE_BITS, not clipped. */
void fl_horizontal_wide(const fl_axis *axis, const uint8_t *src, int16_t *dst);
void fl_vertical_wide(const fl_axis *axis, const int16_t *coef, const int16_t *const *rows, uint8_t *dst, size_t n);

/* n RGB pixels into the sink's type and layout, at (x, y) of the stored (already mirrored) image. */
void fl_sink_row(const fl_sink *sink, const fl_kernels *kernels, uint32_t x, uint32_t y, const uint8_t *rgb, size_t n);

#endif
