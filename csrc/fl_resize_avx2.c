/* The row kernels with AVX2. Each gives the bytes of its namesake in fl_resize_scalar.c. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#include "fl_resize_rows.h"

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))

/* The same 16 bytes in both lanes. */
#define BOTH(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

INLINE __m256i load_pair(const uint8_t *low, const uint8_t *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)), _mm_loadu_si128((const __m128i *)high),
                                   1);
}

INLINE __m256i coef_pair(const int16_t *coef) {
    int32_t both;
    memcpy(&both, coef, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Sums of one output pixel of two rows, a row a lane: (red, green, blue, 0), of the upper halves too for FL_FINE. */
typedef struct sums {
    __m256i low, high;
} sums;

INLINE sums add_taps(sums sum, __m256i pixels, const int16_t *coef, fl_sum kind) {
    sum.low = _mm256_add_epi32(sum.low, _mm256_madd_epi16(pixels, coef_pair(kind == FL_FINE ? coef + 2 : coef)));
    if (kind == FL_FINE) sum.high = _mm256_add_epi32(sum.high, _mm256_madd_epi16(pixels, coef_pair(coef)));
    return sum;
}

INLINE __m256i finish(sums sum, fl_sum kind, __m128i bits) {
    const __m256i all = kind == FL_FINE ? _mm256_add_epi32(sum.low, _mm256_slli_epi32(sum.high, FL_FINE_BITS)) : sum.low;
    return _mm256_sra_epi32(all, bits);
}

/* Taps come in pairs, interleaved as R0 R1 G0 G1 B0 B1 so that one multiply-add takes both; a 16-byte load holds five
 * pixels, of which four are used. */
INLINE __m256i pixel_sums(const uint8_t *low, const uint8_t *high, const int16_t *coef, uint32_t taps, fl_sum kind, __m256i half,
                          __m128i bits) {
    const __m256i first = BOTH(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m256i second = BOTH(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const uint32_t pair = kind == FL_FINE ? 4 : 2; /* of taps, in coefficients */
    sums sum = {half, _mm256_setzero_si256()};
    for (uint32_t k = 0; k + 4 <= taps; k += 4, low += 12, high += 12, coef += 2 * pair) {
        const __m256i pixels = load_pair(low, high);
        sum = add_taps(sum, _mm256_shuffle_epi8(pixels, first), coef, kind);
        sum = add_taps(sum, _mm256_shuffle_epi8(pixels, second), coef + pair, kind);
    }
    if (taps % 4 != 0) sum = add_taps(sum, _mm256_shuffle_epi8(load_pair(low, high), first), coef, kind);
    return finish(sum, kind, bits);
}

INLINE void horizontal_taps(const fl_axis *axis, const uint8_t *const src[2], uint8_t *const dst[2], uint32_t taps, fl_sum kind) {
    const __m256i compress = BOTH(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i half = _mm256_set1_epi32(1 << (axis->bits - 1));
    const __m128i bits = _mm_cvtsi32_si128(axis->bits);
    const uint32_t stride = (taps + 1) / 2 * (kind == FL_FINE ? 4 : 2), count = axis->key.count;
    const uint8_t *low = src[0], *high = src[1];
    const int16_t *coef = axis->coef; /* copies, that stores of bytes cannot alias */
    const uint32_t *first = axis->first;
    uint8_t *out_low = dst[0], *out_high = dst[1];
    for (uint32_t i = 0; i < count; i += FL_BLOCK, out_low += 3 * FL_BLOCK, out_high += 3 * FL_BLOCK) {
        __m256i pixel[FL_BLOCK];
        for (int j = 0; j < FL_BLOCK; j++, coef += stride) {
            const size_t at = (size_t)first[i + j] * 3;
            pixel[j] = pixel_sums(low + at, high + at, coef, taps, kind, half, bits);
        }
        const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(pixel[0], pixel[1]), _mm256_packs_epi32(pixel[2], pixel[3]));
        const __m256i rgb = _mm256_shuffle_epi8(bytes, compress);
        const __m128i rgb_low = _mm256_castsi256_si128(rgb), rgb_high = _mm256_extracti128_si256(rgb, 1);
        if (count - i >= FL_BLOCK + 2) { /* the 4 bytes too many are overwritten by the next block */
            _mm_storeu_si128((__m128i *)out_low, rgb_low);
            _mm_storeu_si128((__m128i *)out_high, rgb_high);
        } else {
            uint8_t last[2][16];
            _mm_storeu_si128((__m128i *)last[0], rgb_low);
            _mm_storeu_si128((__m128i *)last[1], rgb_high);
            const size_t n = count - i < FL_BLOCK ? 3 * (size_t)(count - i) : 3 * FL_BLOCK;
            memcpy(out_low, last[0], n);
            memcpy(out_high, last[1], n);
        }
    }
}

AVX2 static void horizontal(const fl_axis *axis, const uint8_t *const src[2], uint8_t *const dst[2]) {
    const uint32_t taps = axis->taps;
    if (axis->sum == FL_FINE) {
        if (taps == 4) horizontal_taps(axis, src, dst, 4, FL_FINE);
        else horizontal_taps(axis, src, dst, taps, FL_FINE);
        return;
    }
    switch (taps) { /* a constant count unrolls the loops */
    case 2: horizontal_taps(axis, src, dst, 2, FL_SUM32); break;
    case 4: horizontal_taps(axis, src, dst, 4, FL_SUM32); break;
    case 6: horizontal_taps(axis, src, dst, 6, FL_SUM32); break;
    default: horizontal_taps(axis, src, dst, taps, FL_SUM32);
    }
}

/* 32 bytes of the FL_SUM16 sum at `at`. Even and odd bytes of a row are summed apart, each in the upper half of a 16-bit lane. */
INLINE __m256i sum16(const uint8_t *const *rows, const __m256i *coef, uint32_t taps, size_t at, __m256i start) {
    const __m256i upper = _mm256_set1_epi16((int16_t)0xFF00);
    __m256i even = start, odd = start;
    for (uint32_t k = 0; k < taps; k++) {
        __m256i row = _mm256_loadu_si256((const __m256i *)(rows[k] + at));
        const __m256i c = coef[k];
        __asm__("" : "+x"(row)); /* or gcc loads it twice, and half the loads cross a cache line */
        even = _mm256_add_epi16(even, _mm256_mulhi_epu16(_mm256_slli_epi16(row, 8), c));
        odd = _mm256_add_epi16(odd, _mm256_mulhi_epu16(_mm256_and_si256(row, upper), c));
    }
    return _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_and_si256(odd, upper));
}

INLINE void vertical16_taps(const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n, uint32_t taps) {
    const __m256i start = _mm256_set1_epi16((int16_t)(128 + taps / 2));
    const uint8_t *row[FL_SUM16_TAPS]; /* copies, that stores of bytes cannot alias */
    __m256i c[FL_SUM16_TAPS];
    for (uint32_t k = 0; k < taps; k++) {
        row[k] = rows[k];
        c[k] = _mm256_set1_epi16(coef[k]);
    }
    for (size_t at = 0; at + 32 <= n; at += 32) _mm256_storeu_si256((__m256i *)(dst + at), sum16(row, c, taps, at, start));
    if (n % 32 != 0) _mm256_storeu_si256((__m256i *)(dst + n - 32), sum16(row, c, taps, n - 32, start)); /* n >= 32 */
}

/* 32 bytes of the FL_SUM32 or FL_FINE sum at `at`, taps in pairs. */
INLINE __m256i sum32(const uint8_t *const *rows, const int16_t *coef, uint32_t taps, fl_sum kind, size_t at, __m256i half, __m128i bits) {
    const __m256i zero = _mm256_setzero_si256();
    const uint32_t pair = kind == FL_FINE ? 4 : 2;
    sums sum[4] = {{half, zero}, {half, zero}, {half, zero}, {half, zero}};
    for (uint32_t k = 0; k < taps; k += 2, coef += pair) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[k] + at));
        const __m256i b = k + 1 < taps ? _mm256_loadu_si256((const __m256i *)(rows[k + 1] + at)) : zero;
        const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        sum[0] = add_taps(sum[0], _mm256_unpacklo_epi8(low, zero), coef, kind);
        sum[1] = add_taps(sum[1], _mm256_unpackhi_epi8(low, zero), coef, kind);
        sum[2] = add_taps(sum[2], _mm256_unpacklo_epi8(high, zero), coef, kind);
        sum[3] = add_taps(sum[3], _mm256_unpackhi_epi8(high, zero), coef, kind);
    }
    const __m256i first = _mm256_packs_epi32(finish(sum[0], kind, bits), finish(sum[1], kind, bits));
    return _mm256_packus_epi16(first, _mm256_packs_epi32(finish(sum[2], kind, bits), finish(sum[3], kind, bits)));
}

INLINE void vertical32_taps(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n, uint32_t taps,
                            fl_sum kind) {
    const __m256i half = _mm256_set1_epi32(1 << (axis->bits - 1));
    const __m128i bits = _mm_cvtsi32_si128(axis->bits);
    for (size_t at = 0; at + 32 <= n; at += 32) _mm256_storeu_si256((__m256i *)(dst + at), sum32(rows, coef, taps, kind, at, half, bits));
    if (n % 32 != 0) _mm256_storeu_si256((__m256i *)(dst + n - 32), sum32(rows, coef, taps, kind, n - 32, half, bits)); /* n >= 32 */
}

AVX2 static void vertical(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n) {
    if (n < 32) {
        fl_kernels_scalar.vertical(axis, coef, rows, dst, n);
    } else if (axis->sum == FL_SUM16) {
        switch (axis->taps) { /* a constant count keeps coefficients in registers */
        case 2: vertical16_taps(coef, rows, dst, n, 2); break;
        case 3: vertical16_taps(coef, rows, dst, n, 3); break;
        case 4: vertical16_taps(coef, rows, dst, n, 4); break;
        case 5: vertical16_taps(coef, rows, dst, n, 5); break;
        case 6: vertical16_taps(coef, rows, dst, n, 6); break;
        default: vertical16_taps(coef, rows, dst, n, axis->taps);
        }
    } else if (axis->sum == FL_FINE) {
        if (axis->taps == 4) vertical32_taps(axis, coef, rows, dst, n, 4, FL_FINE);
        else vertical32_taps(axis, coef, rows, dst, n, axis->taps, FL_FINE);
    } else {
        vertical32_taps(axis, coef, rows, dst, n, axis->taps, FL_SUM32);
    }
}

/* 16 pixels, 48 bytes, at a time: each plane's bytes are picked from the three loads and put together. */
AVX2 static void split(const uint8_t *rgb, uint8_t *const plane[3], size_t n) {
    static const int8_t picks[3][3][16] = {
        {{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13}},
        {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14}},
        {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1},
         {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15}},
    };
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i *at = (const __m128i *)(rgb + 3 * i);
        const __m128i a = _mm_loadu_si128(at), b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2);
        for (int p = 0; p < 3; p++) {
            const __m128i *pick = (const __m128i *)picks[p];
            const __m128i ab = _mm_or_si128(_mm_shuffle_epi8(a, _mm_loadu_si128(pick)), _mm_shuffle_epi8(b, _mm_loadu_si128(pick + 1)));
            _mm_storeu_si128((__m128i *)(plane[p] + i), _mm_or_si128(ab, _mm_shuffle_epi8(c, _mm_loadu_si128(pick + 2))));
        }
    }
    fl_kernels_scalar.split(rgb + 3 * i, (uint8_t *const[3]){plane[0] + i, plane[1] + i, plane[2] + i}, n - i);
}

const fl_kernels fl_kernels_avx2 = {"avx2", horizontal, vertical, split};

#else
typedef int fl_resize_avx2_is_for_x86_64; /* ISO C wants a declaration in every file */
#endif
