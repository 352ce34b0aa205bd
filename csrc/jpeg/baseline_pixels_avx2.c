/* Upsampling and colour with AVX2. Each kernel gives the bytes of its namesake in jpeg/baseline_scalar.c for `n` samples, and rubbish behind
 * them within FL_MARGIN (FL_SLACK for pixels). */
#if defined(__x86_64__)

#include <immintrin.h>

#include "jpeg/baseline_avx2.h"

INLINE __m256i widen(const uint8_t *at) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at)); }

INLINE __m256i three(__m256i x) { return _mm256_add_epi16(x, _mm256_add_epi16(x, x)); }

/* Bytes of two vectors of 16, in turn. */
INLINE void store_turns(uint8_t *out, __m256i even, __m256i odd) {
    _mm256_storeu_si256((__m256i *)out, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
}

AVX2 void fl_h2v1_avx2(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i here = three(widen(in + i));
        const __m256i even = _mm256_add_epi16(_mm256_add_epi16(here, widen(in + i - 1)), _mm256_set1_epi16(1));
        const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(here, widen(in + i + 1)), _mm256_set1_epi16(2));
        store_turns(out + 2 * i, _mm256_srli_epi16(even, 2), _mm256_srli_epi16(odd, 2));
    }
}

INLINE __m256i column(const uint8_t *near, const uint8_t *far) { return _mm256_add_epi16(three(widen(near)), widen(far)); }

AVX2 void fl_h2v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i here = three(column(near + i, far + i));
        const __m256i even = _mm256_add_epi16(_mm256_add_epi16(here, column(near + i - 1, far + i - 1)), _mm256_set1_epi16(8));
        const __m256i odd = _mm256_add_epi16(_mm256_add_epi16(here, column(near + i + 1, far + i + 1)), _mm256_set1_epi16(7));
        store_turns(out + 2 * i, _mm256_srli_epi16(even, 4), _mm256_srli_epi16(odd, 4));
    }
}

AVX2 void fl_h1v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias) {
    const __m256i add = _mm256_set1_epi16((int16_t)bias);
    for (size_t i = 0; i < n; i += 16) {
        __m256i sum = _mm256_srli_epi16(_mm256_add_epi16(column(near + i, far + i), add), 2);
        sum = _mm256_permute4x64_epi64(_mm256_packus_epi16(sum, sum), 0x08);
        _mm_storeu_si128((__m128i *)(out + i), _mm256_castsi256_si128(sum));
    }
}

AVX2 void fl_h2_avx2(const uint8_t *in, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __m256i wide = widen(in + i);
        store_turns(out + 2 * i, wide, wide);
    }
}

#define BOTH(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
enum { NO = -128 };

/* 32 pixels from their 3 channels. A lane holds 16 of them, which become 48 bytes: three vectors, each of a third of every channel. */
INLINE void store_rgb(uint8_t *rgb, __m256i r, __m256i g, __m256i b) {
    const __m256i r0 = BOTH(0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO, 5);
    const __m256i g0 = BOTH(NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO);
    const __m256i b0 = BOTH(NO, NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO);
    const __m256i r1 = BOTH(NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO, 10, NO);
    const __m256i g1 = BOTH(5, NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO, 10);
    const __m256i b1 = BOTH(NO, 5, NO, NO, 6, NO, NO, 7, NO, NO, 8, NO, NO, 9, NO, NO);
    const __m256i r2 = BOTH(NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15, NO, NO);
    const __m256i g2 = BOTH(NO, NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15, NO);
    const __m256i b2 = BOTH(10, NO, NO, 11, NO, NO, 12, NO, NO, 13, NO, NO, 14, NO, NO, 15);
    const __m256i third[3] = {
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r0), _mm256_shuffle_epi8(g, g0)), _mm256_shuffle_epi8(b, b0)),
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r1), _mm256_shuffle_epi8(g, g1)), _mm256_shuffle_epi8(b, b1)),
        _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(r, r2), _mm256_shuffle_epi8(g, g2)), _mm256_shuffle_epi8(b, b2)),
    };
    for (int i = 0; i < 3; i++) {
        _mm_storeu_si128((__m128i *)(rgb + 16 * i), _mm256_castsi256_si128(third[i]));
        _mm_storeu_si128((__m128i *)(rgb + 48 + 16 * i), _mm256_extracti128_si256(third[i], 1));
    }
}

/* round(x * factor / 2^16) for a factor that fits 16 bits: ((2 x factor >> 16) + 1) >> 1 */
INLINE __m256i scaled(__m256i x, int16_t factor) {
    const __m256i high = _mm256_mulhi_epi16(_mm256_add_epi16(x, x), _mm256_set1_epi16(factor));
    return _mm256_srai_epi16(_mm256_sub_epi16(high, _mm256_set1_epi16(-1)), 1);
}

/* 16 pixels in 16 bits. Factors of 2^16 or more are split into whole multiples and a rest that fits 16 bits. */
INLINE void convert(__m256i y, __m256i u, __m256i v, __m256i *r, __m256i *g, __m256i *b) {
    const __m256i factors = _mm256_set1_epi32((int32_t)((uint32_t)(65536 - 46802) << 16 | (uint16_t)-22554));
    const __m256i half = _mm256_set1_epi32(32768);
    *r = _mm256_add_epi16(_mm256_add_epi16(y, v), scaled(v, 91881 - 65536));
    *b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(u, u)), scaled(u, 116130 - 131072));
    const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(u, v), factors), half);
    const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(u, v), factors), half);
    const __m256i rest = _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
    *g = _mm256_add_epi16(_mm256_sub_epi16(y, v), rest);
}

AVX2 void fl_ycc_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n) {
    const __m256i zero = _mm256_setzero_si256(), centre = _mm256_set1_epi16(128);
    for (size_t i = 0; i < n; i += 32) {
        const __m256i luma = _mm256_loadu_si256((const __m256i *)(y + i));
        const __m256i u = _mm256_loadu_si256((const __m256i *)(cb + i)), v = _mm256_loadu_si256((const __m256i *)(cr + i));
        __m256i r[2], g[2], b[2];
        convert(_mm256_unpacklo_epi8(luma, zero), _mm256_sub_epi16(_mm256_unpacklo_epi8(u, zero), centre),
                _mm256_sub_epi16(_mm256_unpacklo_epi8(v, zero), centre), &r[0], &g[0], &b[0]);
        convert(_mm256_unpackhi_epi8(luma, zero), _mm256_sub_epi16(_mm256_unpackhi_epi8(u, zero), centre),
                _mm256_sub_epi16(_mm256_unpackhi_epi8(v, zero), centre), &r[1], &g[1], &b[1]);
        store_rgb(rgb + 3 * i, _mm256_packus_epi16(r[0], r[1]), _mm256_packus_epi16(g[0], g[1]), _mm256_packus_epi16(b[0], b[1]));
    }
}

AVX2 void fl_grey_avx2(const uint8_t *y, uint8_t *rgb, size_t n) {
    for (size_t i = 0; i < n; i += 32) {
        const __m256i luma = _mm256_loadu_si256((const __m256i *)(y + i));
        store_rgb(rgb + 3 * i, luma, luma, luma);
    }
}

#else
typedef int fl_no_avx2_here; /* ISO C wants a declaration in every file */
#endif
