/* Each kernel gives the bytes of its namesake in resize/exact_scalar.c. */
#include "resize/exact_avx2.h"

#include "common/simd.h"
#include "resize/axis.h"
#include "resize/exact_scalar.h"
#include "resize/pixels_avx2.h"

#if defined(__x86_64__)

/* Sums of the high and of the low parts of coefficients: the sum is high << FL_RESIZE_EXACT_LOW_BITS +
 * low. */
typedef struct parts {
    __m256i high, low;
} parts;

FL_AVX2_INLINE parts start_parts(void) {
    return (parts){_mm256_setzero_si256(), _mm256_set1_epi32(1 << (FL_RESIZE_EXACT_BITS - 1))};
}

FL_AVX2_INLINE void add_pair(parts *sum, __m256i pixels, __m256i high, __m256i low) {
    sum->high = _mm256_add_epi32(sum->high, _mm256_madd_epi16(pixels, high));
    sum->low = _mm256_add_epi32(sum->low, _mm256_madd_epi16(pixels, low));
}

FL_AVX2_INLINE __m256i join(parts sum) {
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(sum.high, FL_RESIZE_EXACT_LOW_BITS), sum.low),
                             FL_RESIZE_EXACT_BITS);
}

/* One output pixel of four rows, each row a lane of (red, green, blue, 0). Taps come in pairs, interleaved as
 * R0 R1 G0 G1 B0 B1; a 16-byte load holds five pixels, of which four are used. */
FL_AVX2_INLINE void pixel_of_rows(const uint8_t *const src[4], size_t at, const int16_t *coef, uint32_t taps,
                                  __m256i out[2]) {
    const __m256i first = FL_AVX2_BOTH(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m256i second = FL_AVX2_BOTH(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    parts sum[2] = {start_parts(), start_parts()};
    for (uint32_t k = 0; k < taps; k += 4, at += 12, coef += 2 * FL_RESIZE_EXACT_PAIR) {
        const __m256i low_pair = fl_resize_load_rows(src[0] + at, src[1] + at),
                      high_pair = fl_resize_load_rows(src[2] + at, src[3] + at);
        const __m256i high = fl_resize_coef_pair(coef), low = fl_resize_coef_pair(coef + 2);
        add_pair(&sum[0], _mm256_shuffle_epi8(low_pair, first), high, low);
        add_pair(&sum[1], _mm256_shuffle_epi8(high_pair, first), high, low);
        if (k + 2 == taps) break;
        const __m256i next_high = fl_resize_coef_pair(coef + 4), next_low = fl_resize_coef_pair(coef + 6);
        add_pair(&sum[0], _mm256_shuffle_epi8(low_pair, second), next_high, next_low);
        add_pair(&sum[1], _mm256_shuffle_epi8(high_pair, second), next_high, next_low);
    }
    out[0] = join(sum[0]);
    out[1] = join(sum[1]);
}

FL_AVX2_INLINE void across_taps(const fl_resize_exact_axis *axis, const uint8_t *const *given,
                                uint8_t *const *dst, uint32_t taps) {
    const __m256i compress = FL_AVX2_BOTH(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const uint8_t *const src[4] = {given[0], given[1], given[2],
                                   given[3]}; /* copies, that stores of bytes cannot alias */
    uint8_t *const out[4] = {dst[0], dst[1], dst[2], dst[3]};
    const uint32_t *first = axis->first, low = axis->low, count = axis->key.count;
    const int16_t *coef = axis->coef;
    for (uint32_t i = 0; i < count; i += FL_RESIZE_BLOCK) {
        __m256i pixel[FL_RESIZE_BLOCK][2];
        for (int j = 0; j < FL_RESIZE_BLOCK; j++, coef += 2 * taps)
            pixel_of_rows(src, (size_t)(first[i + j] - low) * 3, coef, taps, pixel[j]);
        for (int r = 0; r < 2; r++) {
            const __m256i words[2] = {_mm256_packs_epi32(pixel[0][r], pixel[1][r]),
                                      _mm256_packs_epi32(pixel[2][r], pixel[3][r])};
            const __m256i rgb = _mm256_shuffle_epi8(_mm256_packus_epi16(words[0], words[1]), compress);
            fl_resize_store_pixels(out[2 * r] + 3 * (size_t)i, _mm256_castsi256_si128(rgb), count - i);
            fl_resize_store_pixels(out[2 * r + 1] + 3 * (size_t)i, _mm256_extracti128_si256(rgb, 1),
                                   count - i);
        }
    }
}

FL_AVX2 static void across(const fl_resize_exact_axis *axis, const uint8_t *const *src, uint8_t *const *dst) {
    switch (axis->taps) { /* a constant count unrolls the loop */
    case 2: across_taps(axis, src, dst, 2); break;
    case 4: across_taps(axis, src, dst, 4); break;
    case 6: across_taps(axis, src, dst, 6); break;
    case 8: across_taps(axis, src, dst, 8); break;
    case 10: across_taps(axis, src, dst, 10); break;
    default: across_taps(axis, src, dst, axis->taps);
    }
}

/* Eight taps of one row, each pair twice, for weights in which high and low parts take turns. */
FL_AVX2_INLINE __m256i grey_taps(const uint8_t *src, __m256i weights) {
    const __m256i twice = _mm256_setr_epi8(0, -1, 1, -1, 0, -1, 1, -1, 2, -1, 3, -1, 2, -1, 3, -1, 4, -1, 5,
                                           -1, 4, -1, 5, -1, 6, -1, 7, -1, 6, -1, 7, -1);
    const __m256i pixels = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)src));
    return _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, twice), weights);
}

/* Two rows' sums of (high, low, high, low, ...) to (high, low, high, low). */
FL_AVX2_INLINE __m128 fold(__m256i a, __m256i b) {
    const __m256i both = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    return _mm_castsi128_ps(_mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
}

/* One output of four rows; `rest` masks the coefficients of the last eight taps that there are. */
FL_AVX2_INLINE __m128i grey_of_rows(const uint8_t *const src[4], size_t at, const int16_t *coef,
                                    uint32_t taps, __m256i rest) {
    __m256i weights = _mm256_maskload_epi32((const int *)coef, taps > 8 ? _mm256_set1_epi32(-1) : rest);
    __m256i a = grey_taps(src[0] + at, weights), b = grey_taps(src[1] + at, weights);
    __m256i c = grey_taps(src[2] + at, weights), d = grey_taps(src[3] + at, weights);
    for (uint32_t k = 8; k < taps; k += 8) {
        coef += 2 * 8, at += 8;
        weights = _mm256_maskload_epi32((const int *)coef, taps - k > 8 ? _mm256_set1_epi32(-1) : rest);
        a = _mm256_add_epi32(a, grey_taps(src[0] + at, weights));
        b = _mm256_add_epi32(b, grey_taps(src[1] + at, weights));
        c = _mm256_add_epi32(c, grey_taps(src[2] + at, weights));
        d = _mm256_add_epi32(d, grey_taps(src[3] + at, weights));
    }
    const __m128 ab = fold(a, b), cd = fold(c, d);
    const __m128i high = _mm_castps_si128(_mm_shuffle_ps(ab, cd, 0x88)),
                  low = _mm_castps_si128(_mm_shuffle_ps(ab, cd, 0xDD));
    const __m128i half = _mm_set1_epi32(1 << (FL_RESIZE_EXACT_BITS - 1));
    return _mm_srai_epi32(
        _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(high, FL_RESIZE_EXACT_LOW_BITS), low), half),
        FL_RESIZE_EXACT_BITS);
}

FL_AVX2 static void across_grey(const fl_resize_exact_axis *axis, const uint8_t *const *given,
                                uint8_t *const *dst) {
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const uint8_t *const src[4] = {given[0], given[1], given[2], given[3]};
    uint8_t *const out[4] = {dst[0], dst[1], dst[2], dst[3]};
    const uint32_t taps = axis->taps, count = axis->key.count, *first = axis->first, low = axis->low;
    const __m256i rest = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(taps % 8 ? taps % 8 : 8)), lane);
    const int16_t *coef = axis->coef;
    for (uint32_t i = 0; i < count; i += FL_RESIZE_BLOCK) {
        __m128i value[FL_RESIZE_BLOCK];
        for (int j = 0; j < FL_RESIZE_BLOCK; j++, coef += 2 * taps)
            value[j] = grey_of_rows(src, first[i + j] - low, coef, taps, rest);
        const __m128i words[2] = {_mm_packs_epi32(value[0], value[1]), _mm_packs_epi32(value[2], value[3])};
        uint8_t bytes[4][FL_RESIZE_BLOCK];
        _mm_storeu_si128((__m128i *)bytes, _mm_shuffle_epi8(_mm_packus_epi16(words[0], words[1]), turn));
        for (int r = 0; r < 4; r++) {
            if (count - i >= FL_RESIZE_BLOCK) memcpy(out[r] + i, bytes[r], FL_RESIZE_BLOCK);
            else memcpy(out[r] + i, bytes[r], count - i);
        }
    }
}

FL_AVX2_INLINE void down_taps(const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n,
                              uint32_t taps) {
    const __m256i zero = _mm256_setzero_si256();
    for (size_t next = 0; next < n; next += 32) {
        const size_t at = next + 32 <= n ? next : n - 32; /* the last 32 overlap; n >= 32 */
        parts sum[4] = {start_parts(), start_parts(), start_parts(), start_parts()};
        for (uint32_t k = 0; k < taps; k += 2) {
            const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[k] + at)),
                          b = _mm256_loadu_si256((const __m256i *)(rows[k + 1] + at));
            const __m256i high = fl_resize_coef_pair(coef + 2 * k),
                          low = fl_resize_coef_pair(coef + 2 * k + 2);
            const __m256i begin = _mm256_unpacklo_epi8(a, b), end = _mm256_unpackhi_epi8(a, b);
            add_pair(&sum[0], _mm256_unpacklo_epi8(begin, zero), high, low);
            add_pair(&sum[1], _mm256_unpackhi_epi8(begin, zero), high, low);
            add_pair(&sum[2], _mm256_unpacklo_epi8(end, zero), high, low);
            add_pair(&sum[3], _mm256_unpackhi_epi8(end, zero), high, low);
        }
        const __m256i words[2] = {_mm256_packs_epi32(join(sum[0]), join(sum[1])),
                                  _mm256_packs_epi32(join(sum[2]), join(sum[3]))};
        _mm256_storeu_si256((__m256i *)(dst + at), _mm256_packus_epi16(words[0], words[1]));
    }
}

FL_AVX2 static void down(const int16_t *coef, uint32_t taps, const uint8_t *const *rows, uint8_t *dst,
                         size_t n) {
    if (n < 32) {
        fl_resize_exact_scalar.down(coef, taps, rows, dst, n);
        return;
    }
    switch (taps) {
    case 2: down_taps(coef, rows, dst, n, 2); break;
    case 4: down_taps(coef, rows, dst, n, 4); break;
    case 6: down_taps(coef, rows, dst, n, 6); break;
    case 8: down_taps(coef, rows, dst, n, 8); break;
    default: down_taps(coef, rows, dst, n, taps);
    }
}

const fl_resize_exact_kernels *fl_resize_exact_avx2(void) {
    static const fl_resize_exact_kernels kernels = {across, across_grey, down};
    return &kernels;
}

#else

const fl_resize_exact_kernels *fl_resize_exact_avx2(void) { return NULL; }

#endif
