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

/* The same two by permutations of 64 bytes, of two vectors at a time: byte i of a plane is byte 3 i + c of the
 * pixels, and byte i of the pixels' vector k is pixel n / 3 of plane n modulo 3, n = 64 k + i. */
#define FL_COLOUR_8(f, c, i)                                                                                 \
    f(c, i), f(c, i + 1), f(c, i + 2), f(c, i + 3), f(c, i + 4), f(c, i + 5), f(c, i + 6), f(c, i + 7)
#define FL_COLOUR_64(f, c)                                                                                   \
    FL_COLOUR_8(f, c, 0), FL_COLOUR_8(f, c, 8), FL_COLOUR_8(f, c, 16), FL_COLOUR_8(f, c, 24),                \
        FL_COLOUR_8(f, c, 32), FL_COLOUR_8(f, c, 40), FL_COLOUR_8(f, c, 48), FL_COLOUR_8(f, c, 56)
#define FL_COLOUR_ALL(f)                                                                                     \
    {                                                                                                        \
        {FL_COLOUR_64(f, 0)}, {FL_COLOUR_64(f, 1)}, { FL_COLOUR_64(f, 2) }                                   \
    }
#define FL_COLOUR_OF_TWO(c, i) (3 * (i) + (c) < 128 ? 3 * (i) + (c) : 0)
#define FL_COLOUR_OF_THIRD(c, i) (3 * (i) + (c) < 128 ? (i) : 3 * (i) + (c) - 64)
#define FL_COLOUR_RED_GREEN(k, i) ((64 * (k) + (i)) / 3 + ((64 * (k) + (i)) % 3 == 1 ? 64 : 0))
#define FL_COLOUR_BLUE(k, i) ((64 * (k) + (i)) % 3 == 2 ? (64 * (k) + (i)) / 3 + 64 : (i))

FL_AVX512_INLINE void fl_colour_split_avx512(const uint8_t *rgb, fl_colour_planes *out) {
    static const uint8_t of_two[3][64] = FL_COLOUR_ALL(FL_COLOUR_OF_TWO),
                         of_third[3][64] = FL_COLOUR_ALL(FL_COLOUR_OF_THIRD);
    const __m512i a = _mm512_loadu_si512(rgb), b = _mm512_loadu_si512(rgb + 64),
                  third = _mm512_loadu_si512(rgb + 128);
    uint8_t *planes[3] = {out->r, out->g, out->b};
    for (int c = 0; c < 3; c++) {
        const __m512i two = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(of_two[c]), b);
        _mm512_storeu_si512(planes[c], _mm512_permutex2var_epi8(two, _mm512_loadu_si512(of_third[c]), third));
    }
}

FL_AVX512_INLINE void fl_colour_join_avx512(const fl_colour_planes *in, uint8_t *rgb) {
    static const uint8_t red_green[3][64] = FL_COLOUR_ALL(FL_COLOUR_RED_GREEN),
                         blue[3][64] = FL_COLOUR_ALL(FL_COLOUR_BLUE);
    const __m512i r = _mm512_loadu_si512(in->r), g = _mm512_loadu_si512(in->g), b = _mm512_loadu_si512(in->b);
    for (int k = 0; k < 3; k++) {
        const __m512i two = _mm512_permutex2var_epi8(r, _mm512_loadu_si512(red_green[k]), g);
        _mm512_storeu_si512(rgb + 64 * k, _mm512_permutex2var_epi8(two, _mm512_loadu_si512(blue[k]), b));
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
