/* resize/exact_axis: Pillow's coefficient tables, in the form that fast kernels take. NOTE [ resize: Pillow's
 * arithmetic ] */
#ifndef FL_RESIZE_EXACT_AXIS_H
#define FL_RESIZE_EXACT_AXIS_H

#include "common/buffer.h"
#include "resize/exact.h"

enum {
    FL_RESIZE_EXACT_BITS = 22, /* fraction bits of a coefficient */
    FL_RESIZE_EXACT_LOW_BITS =
        11, /* a coefficient is high << 11 + low, both int16: two 16-bit multiplies are exact */
    FL_RESIZE_EXACT_PAIR = 4 /* int16 of a pair of taps: high, high, low, low */
};

/* The values from which a table is computed; equal keys mean equal tables. */
typedef struct fl_resize_exact_key {
    float begin, end; /* the box along this axis */
    uint32_t source, out; /* the image's size and the size that the box becomes */
    uint32_t from, count; /* the outputs wanted: from .. from + count - 1 */
    fl_resize_exact_filter filter;
    bool copies; /* output i is pixel begin + i, whatever the filter: a pass that Pillow leaves out */
    bool mirror; /* entry 0 is the last output wanted */
} fl_resize_exact_key;

/* Output i = sum over k < taps of coefficient(i, k) * image[first[i] + k], where coefficients of pixels
 * beyond the image's end are 0. */
typedef struct fl_resize_exact_axis {
    fl_resize_exact_key key;
    bool valid;
    uint32_t taps; /* of the longest filter, made even */
    /* count, padded to FL_RESIZE_BLOCK with copies of the last; without `mirror` it never decreases */
    uint32_t *first;
    int16_t *coef; /* 2 * taps for each output, in pairs; 0 in the padding */
    uint32_t low, high; /* pixels low .. high - 1 of the image are used */
    fl_buffer first_buffer, coef_buffer, weight_buffer;
} fl_resize_exact_axis;

/* Pixels *low .. *high - 1 of the image that the outputs wanted are made of; both 0 where they are made of
 * none. */
void fl_resize_exact_range(const fl_resize_exact_key *key, uint32_t *low, uint32_t *high);

/* Makes the table for key, or keeps it when it is already the one. FL_ENOMEM leaves the axis empty but
 * usable. */
fl_code fl_resize_exact_axis_build(fl_resize_exact_axis *axis, const fl_resize_exact_key *key, fl_error *err);
void fl_resize_exact_axis_free(fl_resize_exact_axis *axis);

/* The coefficient of pixel first[i] + k. */
static inline int32_t fl_resize_exact_coef(const int16_t *coef, uint32_t k) {
    const int16_t *pair = coef + k / 2 * FL_RESIZE_EXACT_PAIR;
    return pair[k % 2] * (1 << FL_RESIZE_EXACT_LOW_BITS) + pair[2 + k % 2];
}

#endif
