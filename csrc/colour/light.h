/* colour/light: the light of RGB pixels, Pillow's mode L. */
#ifndef FL_COLOUR_LIGHT_H
#define FL_COLOUR_LIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "colour/vectors.h"

/* ITU-R 601-2 luma in 16 bits of fraction, as Pillow rounds it. */
FL_INLINE int fl_colour_light_of(int r, int g, int b) {
    return (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
}

/* The lights of a block. */
FL_INLINE void fl_colour_block_light(const fl_colour_planes *in, uint8_t out[FL_COLOUR_BLOCK]) {
    FL_COLOUR_ROLLED
    for (int i = 0; i < FL_COLOUR_BLOCK; i++)
        out[i] = (uint8_t)fl_colour_light_of(in->r[i], in->g[i], in->b[i]);
}

#if defined(__x86_64__)
/* The same; green's weight is more than an int16, and half of it is in each of two sums of products. */
FL_AVX2_INLINE void fl_colour_block_light_avx2(const fl_colour_planes *in, uint8_t out[FL_COLOUR_BLOCK]) {
    const __m256i red = _mm256_set1_epi32(19595 | 19235 << 16), blue = _mm256_set1_epi32(7471 | 19235 << 16),
                  half = _mm256_set1_epi32(0x8000), zero = _mm256_setzero_si256();
    for (int i = 0; i < FL_COLOUR_BLOCK; i += 32) {
        const __m256i r = _mm256_loadu_si256((const __m256i *)(in->r + i)),
                      g = _mm256_loadu_si256((const __m256i *)(in->g + i)),
                      b = _mm256_loadu_si256((const __m256i *)(in->b + i));
        __m256i words[2];
        for (int k = 0; k < 2; k++) {
            const __m256i rg = k ? _mm256_unpackhi_epi8(r, g) : _mm256_unpacklo_epi8(r, g),
                          bg = k ? _mm256_unpackhi_epi8(b, g) : _mm256_unpacklo_epi8(b, g);
            const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi8(rg, zero), red),
                                                 _mm256_madd_epi16(_mm256_unpacklo_epi8(bg, zero), blue)),
                          high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi8(rg, zero), red),
                                                  _mm256_madd_epi16(_mm256_unpackhi_epi8(bg, zero), blue));
            words[k] = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_add_epi32(low, half), 16),
                                           _mm256_srli_epi32(_mm256_add_epi32(high, half), 16));
        }
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_packus_epi16(words[0], words[1]));
    }
}

/* The same, of 64 bytes. */
FL_AVX512_INLINE __m512i fl_colour_some_light(__m512i r, __m512i g, __m512i b) {
    const __m512i red = _mm512_set1_epi32(19595 | 19235 << 16), blue = _mm512_set1_epi32(7471 | 19235 << 16),
                  half = _mm512_set1_epi32(0x8000), zero = _mm512_setzero_si512();
    __m512i words[2];
    for (int k = 0; k < 2; k++) {
        const __m512i rg = k ? _mm512_unpackhi_epi8(r, g) : _mm512_unpacklo_epi8(r, g),
                      bg = k ? _mm512_unpackhi_epi8(b, g) : _mm512_unpacklo_epi8(b, g);
        const __m512i low = _mm512_add_epi32(_mm512_madd_epi16(_mm512_unpacklo_epi8(rg, zero), red),
                                             _mm512_madd_epi16(_mm512_unpacklo_epi8(bg, zero), blue)),
                      high = _mm512_add_epi32(_mm512_madd_epi16(_mm512_unpackhi_epi8(rg, zero), red),
                                              _mm512_madd_epi16(_mm512_unpackhi_epi8(bg, zero), blue));
        words[k] = _mm512_packus_epi32(_mm512_srli_epi32(_mm512_add_epi32(low, half), 16),
                                       _mm512_srli_epi32(_mm512_add_epi32(high, half), 16));
    }
    return _mm512_packus_epi16(words[0], words[1]);
}

FL_AVX512_INLINE void fl_colour_block_light_avx512(const fl_colour_planes *in, uint8_t out[FL_COLOUR_BLOCK]) {
    _mm512_storeu_si512(out, fl_colour_some_light(_mm512_loadu_si512(in->r), _mm512_loadu_si512(in->g),
                                                  _mm512_loadu_si512(in->b)));
}
#endif

/* One byte a pixel. Any thread, as below. */
void fl_colour_light(const uint8_t *rgb, size_t pixels, uint8_t *out);

/* The mean light of an image of 1 or 3 channels, rounded as ImageEnhance.Contrast rounds it. */
uint8_t fl_colour_mean_light(const uint8_t *image, size_t pixels, size_t channels);

/* In place: each pixel's light three times. */
void fl_colour_grey(uint8_t *rgb, size_t pixels);

#endif
