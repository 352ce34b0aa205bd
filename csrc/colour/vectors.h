/* colour/vectors: bytes in vectors of the compiler's own kind, which are right on every CPU, and RGB pixels as
 * three planes. */
#ifndef FL_COLOUR_VECTORS_H
#define FL_COLOUR_VECTORS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/simd.h"

enum { FL_COLOUR_BLOCK = 64 }; /* pixels that a kernel works on at a time */

/* Before a loop over a block: unrolled, its vectors would be kilobytes of code. */
#define FL_COLOUR_ROLLED _Pragma("GCC unroll 1")

typedef struct fl_colour_planes {
    uint8_t r[FL_COLOUR_BLOCK], g[FL_COLOUR_BLOCK], b[FL_COLOUR_BLOCK];
} fl_colour_planes;

/* A block of RGB pixels as planes. */
FL_INLINE void fl_colour_split(const uint8_t *rgb, fl_colour_planes *out) {
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        out->r[i] = rgb[3 * i];
        out->g[i] = rgb[3 * i + 1];
        out->b[i] = rgb[3 * i + 2];
    }
}

/* A block of planes as RGB pixels. */
FL_INLINE void fl_colour_join(const fl_colour_planes *in, uint8_t *rgb) {
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        rgb[3 * i] = in->r[i];
        rgb[3 * i + 1] = in->g[i];
        rgb[3 * i + 2] = in->b[i];
    }
}

#if defined(__x86_64__)

/* The same two by shuffles of 32 bytes. */
FL_AVX2_INLINE __m256i fl_colour_lanes(const uint8_t *low) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)(low + 48)), 1);
}

FL_AVX2_INLINE __m256i fl_colour_three(__m256i a, __m256i b, __m256i c, __m256i of_a, __m256i of_b,
                                       __m256i of_c) {
    return _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(a, of_a), _mm256_shuffle_epi8(b, of_b)),
                           _mm256_shuffle_epi8(c, of_c));
}

#define FL_THREE(a, b, c, first, second, third)                                                              \
    fl_colour_three(a, b, c, FL_AVX2_BOTH first, FL_AVX2_BOTH second, FL_AVX2_BOTH third)

FL_AVX2_INLINE void fl_colour_split_avx2(const uint8_t *rgb, fl_colour_planes *out) {
    for (int i = 0; i < FL_COLOUR_BLOCK; i += 32, rgb += 96) {
        const __m256i a = fl_colour_lanes(rgb), b = fl_colour_lanes(rgb + 16), c = fl_colour_lanes(rgb + 32);
        _mm256_storeu_si256((__m256i *)(out->r + i),
                            FL_THREE(a, b, c, (0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13)));
        _mm256_storeu_si256((__m256i *)(out->g + i),
                            FL_THREE(a, b, c, (1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14)));
        _mm256_storeu_si256((__m256i *)(out->b + i),
                            FL_THREE(a, b, c, (2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1),
                                     (-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15)));
    }
}

FL_AVX2_INLINE void fl_colour_store_lanes(uint8_t *low, __m256i v) {
    _mm_storeu_si128((__m128i *)low, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(low + 48), _mm256_extracti128_si256(v, 1));
}

FL_AVX2_INLINE void fl_colour_join_avx2(const fl_colour_planes *in, uint8_t *rgb) {
    for (int i = 0; i < FL_COLOUR_BLOCK; i += 32, rgb += 96) {
        const __m256i r = _mm256_loadu_si256((const __m256i *)(in->r + i)),
                      g = _mm256_loadu_si256((const __m256i *)(in->g + i)),
                      b = _mm256_loadu_si256((const __m256i *)(in->b + i));
        fl_colour_store_lanes(rgb,
                              FL_THREE(r, g, b, (0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5),
                                       (-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1),
                                       (-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1)));
        fl_colour_store_lanes(rgb + 16,
                              FL_THREE(r, g, b, (-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1),
                                       (5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10),
                                       (-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1)));
        fl_colour_store_lanes(
            rgb + 32, FL_THREE(r, g, b, (-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1),
                               (-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1),
                               (10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15)));
    }
}

#endif

/* Calls `kernel(planes, ...)` for each block of the pixels, with a version of split and join: what is beyond the
 * last pixel is black, and dropped. */
#define FL_COLOUR_BLOCKS(version, rgb, pixels, kernel, ...)                                                  \
    do {                                                                                                     \
        fl_colour_planes planes;                                                                             \
        for (size_t at = 0; at < (pixels); at += FL_COLOUR_BLOCK) {                                          \
            uint8_t last[3 * FL_COLOUR_BLOCK], *where = (rgb) + 3 * at;                                      \
            const size_t left = (pixels) - at;                                                               \
            if (left < FL_COLOUR_BLOCK) {                                                                    \
                memset(last, 0, sizeof last);                                                                \
                where = memcpy(last, where, 3 * left);                                                       \
            }                                                                                                \
            fl_colour_split##version(where, &planes);                                                        \
            kernel(&planes, __VA_ARGS__);                                                                    \
            fl_colour_join##version(&planes, where);                                                         \
            if (where == last) memcpy((rgb) + 3 * at, last, 3 * left);                                       \
        }                                                                                                    \
    } while (0)

/* The same of pixels that are only read: `out` gets one byte a pixel, by `kernel(planes, ..., found)`. */
#define FL_COLOUR_BYTES(version, rgb, pixels, out, kernel, ...)                                              \
    do {                                                                                                     \
        fl_colour_planes planes;                                                                             \
        for (size_t at = 0; at < (pixels); at += FL_COLOUR_BLOCK) {                                          \
            uint8_t last[3 * FL_COLOUR_BLOCK], found[FL_COLOUR_BLOCK];                                       \
            const uint8_t *where = (rgb) + 3 * at;                                                           \
            const size_t left = (pixels) - at < FL_COLOUR_BLOCK ? (pixels) - at : FL_COLOUR_BLOCK;           \
            if (left < FL_COLOUR_BLOCK) {                                                                    \
                memset(last, 0, sizeof last);                                                                \
                where = memcpy(last, where, 3 * left);                                                       \
            }                                                                                                \
            fl_colour_split##version(where, &planes);                                                        \
            kernel(__VA_ARGS__, found);                                                                      \
            memcpy((out) + at, found, left);                                                                 \
        }                                                                                                    \
    } while (0)

#endif
