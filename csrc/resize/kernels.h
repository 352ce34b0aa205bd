/* resize/kernels: the inner loops over rows, of which there is a set in plain C and one for each kind of CPU.
 *
 * NOTE [ resize: one rounding ]
 * Between the passes a value keeps fraction bits, so that only the end rounds to a byte. Short bilinear
 * filters (FL_RESIZE_QUAD) go down first: four output rows are made at once as int16 with
 * FL_RESIZE_QUAD_BITS, interleaved pixel by pixel, and one multiply per tap then takes the four rows across.
 * All others (FL_RESIZE_LONG) go across first, as Pillow, into int16 rows with fl_resize_row_bits of the
 * filter down. Every step is integer arithmetic defined by the scalar kernels; a SIMD kernel gives the same
 * bytes or is wrong.
 *
 * Error bounds: with T taps, coefficients that are rounded but sum to 1.0 exactly move a value by at most 255
 * * T/2 of their last bit. FL_RESIZE_QUAD, T <= 16: 0.06 a pass, and half of FL_RESIZE_QUAD_BITS' last bit
 * for each tap of each pass, 0.06 again: below 0.25 in all. FL_RESIZE_LONG: below 0.16, up to 256 taps below
 * 0.3, and the 1/2 of the end. Pillow's own two roundings are within 1 (bilinear) or 1.13 (bicubic) of the
 * exact value: so the two never differ by 2.
 */
#ifndef FL_RESIZE_KERNELS_H
#define FL_RESIZE_KERNELS_H

#include "resize/axis.h"

enum {
    /* fraction bits of a quad's int16: 255 << 7 fits, and so do the roundings of FL_RESIZE_QUAD_TAPS */
    FL_RESIZE_QUAD_BITS = 7,
    FL_RESIZE_QUAD_LANES = 16, /* a quad: red, green, blue and a lane that counts for nothing, of four rows */
};

/* Four rows of source pixels that four output rows start at; each output row takes taps of them, stride bytes
 * apart. */
typedef struct fl_resize_quad_rows {
    const uint8_t *row[4];
    const int16_t *coef[4];
    size_t stride;
    uint32_t taps;
} fl_resize_quad_rows;

/* Form of a row's values between the passes of FL_RESIZE_LONG. */
typedef struct fl_resize_row_form {
    int bits; /* of fraction */
    int low, high; /* values are clipped to this, in their last bit: Pillow's intermediate image has bytes */
} fl_resize_row_form;

typedef struct fl_resize_kernels {
    /* n pixels of each row, down: n quads. Reads nothing past the pixels. */
    void (*quad_down)(const fl_resize_quad_rows *rows, int16_t *quads, size_t n);
    /* Quads, of which the first is the source's pixel axis->low, across to key.count RGB pixels of four rows.
     * Rows of which only the last are wanted may be the same. */
    void (*quad_across)(const fl_resize_axis *axis, const int16_t *quads, uint8_t *const dst[4]);
    /* Two source rows to two rows of key.count * 3 values. Both may be the same. Reads axis->reach bytes from
     * each row's start. */
    void (*long_across)(const fl_resize_axis *axis, fl_resize_row_form form, const uint8_t *const src[2],
                        int16_t *const dst[2]);
    /* rows[0..taps) of n values each, combined by coef into n bytes; reads and writes nothing past n. */
    void (*long_down)(const fl_resize_axis *axis, fl_resize_row_form form, const int16_t *coef,
                      const int16_t *const *rows, uint8_t *dst, size_t n);
    /* n RGB pixels, last first. */
    void (*mirror)(const uint8_t *rgb, uint8_t *dst, size_t n);
    /* n RGB pixels into three planes. */
    void (*split)(const uint8_t *rgb, uint8_t *const plane[3], size_t n);
    /* Two rows of 2 n RGB pixels to n: rounded means of four. */
    void (*halve)(const uint8_t *top, const uint8_t *bottom, uint8_t *dst, size_t n);
} fl_resize_kernels;

#endif
