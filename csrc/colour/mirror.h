/* colour/mirror: an image beyond its edges, mirrored about its outermost pixels, as torch's reflection pads. */
#ifndef FL_COLOUR_MIRROR_H
#define FL_COLOUR_MIRROR_H

#include <stddef.h>
#include <string.h>

#include "common/simd.h"

/* The row in the place of row y, which is less than the height away from the image. */
FL_INLINE size_t fl_colour_mirrored_row(ptrdiff_t y, size_t height) {
    const ptrdiff_t last = (ptrdiff_t)height - 1;
    return (size_t)(y < 0 ? -y : y > last ? 2 * last - y : y);
}

/* Writes the `reach` pixels before and behind a row of n floats, fewer than the row has. */
FL_INLINE void fl_colour_mirror_ends(float *row, size_t n, size_t channels, size_t reach) {
    for (size_t i = 1; i <= reach; i++) {
        memcpy(row - i * channels, row + i * channels, channels * sizeof *row);
        memcpy(row + n + (i - 1) * channels, row + n - (i + 1) * channels, channels * sizeof *row);
    }
}

#endif
