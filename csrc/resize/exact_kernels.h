/* resize/exact_kernels: the inner loops of Pillow's arithmetic, of which there is a set in plain C and one
 * for each kind of CPU.
 *
 * A sum begins at one half, wraps in 32 bits, is shifted right and clipped to a byte (NOTE [ resize: Pillow's
 * arithmetic ]). As addition modulo 2^32 has no order, a SIMD kernel may sum the high and the low part of
 * coefficients apart; it gives the same bytes or is wrong.
 */
#ifndef FL_RESIZE_EXACT_KERNELS_H
#define FL_RESIZE_EXACT_KERNELS_H

#include "resize/exact_axis.h"

enum {
    FL_RESIZE_EXACT_ROWS = 4, /* rows that a kernel takes across at once */
    FL_RESIZE_EXACT_TAIL = 16 /* bytes that it may read after the last pixel in use of a row */
};

typedef struct fl_resize_exact_kernels {
    /* FL_RESIZE_EXACT_ROWS rows of RGB pixels across, to key.count pixels each. A source row begins with the
     * image's pixel axis->low. Rows of which only the first are wanted may be the same at the end. Writes
     * nothing past the pixels. */
    void (*across)(const fl_resize_exact_axis *axis, const uint8_t *const *src, uint8_t *const *dst);
    /* The same of pixels of one byte. */
    void (*across_grey)(const fl_resize_exact_axis *axis, const uint8_t *const *src, uint8_t *const *dst);
    /* rows[0..taps) of n bytes each, an even number of rows, combined by the coefficients of one output;
     * reads and writes nothing past n. */
    void (*down)(const int16_t *coef, uint32_t taps, const uint8_t *const *rows, uint8_t *dst, size_t n);
} fl_resize_exact_kernels;

#endif
