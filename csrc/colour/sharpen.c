/* NOTE [ smooth: an exact quotient ]
 *
 * Pillow adds the nine products with k / 13 in float, then 0.5, and rounds down. The exact sum, s / 13 + 1/2, is
 * at least 1/26 away from an integer, which Pillow's error does not reach: so the quotient of integers is the
 * same. */
#include "colour/sharpen.h"

#include <string.h>

#include "colour/vectors.h"
#include "common/cpu.h"

/* (s + 6) / 13 of at most 13 * 255: 5042 is 2^16 / 13, rounded up. */
FL_INLINE uint8_t thirteenth(uint16_t s) { return (uint8_t)(((uint32_t)(uint16_t)(s + 6) * 5042) >> 16); }

FL_INLINE void row(const uint8_t *above, const uint8_t *at, const uint8_t *below, uint8_t *restrict out,
                   size_t bytes, size_t step) {
    for (size_t i = step; i < bytes - step; i++) {
        const uint16_t left = (uint16_t)(above[i - step] + at[i - step] + below[i - step]),
                       middle = (uint16_t)(above[i] + 5 * at[i] + below[i]),
                       right = (uint16_t)(above[i + step] + at[i + step] + below[i + step]);
        out[i] = thirteenth((uint16_t)(left + middle + right));
    }
}

FL_INLINE void rows(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height, size_t step) {
    const size_t bytes = width * step;
    for (size_t y = 0; y < height; y++) {
        const uint8_t *at = image + y * bytes;
        uint8_t *to = out + y * bytes;
        if (y == 0 || y + 1 == height || width < 3) {
            memcpy(to, at, bytes);
        } else {
            memcpy(to, at, step);
            memcpy(to + bytes - step, at + bytes - step, step);
            row(at - bytes, at, at + bytes, to, bytes, step);
        }
    }
}

/* With a step that the compiler knows. */
FL_INLINE void all(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                   size_t channels) {
    if (channels == 3) rows(image, out, width, height, 3);
    else rows(image, out, width, height, channels);
}

FL_PLAIN static void smooth_plain(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                                  size_t channels) {
    all(image, out, width, height, channels);
}

#if defined(__x86_64__)
FL_AVX2 static void smooth_avx2(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                                size_t channels) {
    all(image, out, width, height, channels);
}
#define SMOOTH (fl_cpu_has(FL_CPU_AVX2) ? smooth_avx2 : smooth_plain)
#else
#define SMOOTH smooth_plain
#endif

void fl_colour_smooth(const uint8_t *image, uint8_t *restrict out, size_t width, size_t height,
                      size_t channels) {
    SMOOTH(image, out, width, height, channels);
}
