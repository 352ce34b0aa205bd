/* resize/pixels_avx2: loads and stores of RGB pixels that several kernels with AVX2 use. */
#ifndef FL_RESIZE_PIXELS_AVX2_H
#define FL_RESIZE_PIXELS_AVX2_H

#include <stdint.h>
#include <string.h>

#include "common/simd.h"

#if defined(__x86_64__)

/* 16 bytes of two rows, one in each lane. */
FL_AVX2_INLINE __m256i fl_resize_load_rows(const uint8_t *low, const uint8_t *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

/* Two int16 coefficients, for every pair of taps in a vector. */
FL_AVX2_INLINE __m256i fl_resize_coef_pair(const int16_t *coef) {
    int32_t both;
    memcpy(&both, coef, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Stores the first of 4 RGB pixels that there is room for: `left` is the number of pixels to the end of the
 * row. The 4 bytes that a whole vector has too many are overwritten by the next 4 pixels. */
FL_AVX2_INLINE void fl_resize_store_pixels(uint8_t *dst, __m128i rgb, uint32_t left) {
    if (left >= 6) {
        _mm_storeu_si128((__m128i *)dst, rgb);
    } else {
        uint8_t last[16];
        _mm_storeu_si128((__m128i *)last, rgb);
        memcpy(dst, last, left < 4 ? 3 * (size_t)left : 12);
    }
}

#endif

#endif
