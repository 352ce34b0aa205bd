/* The row kernels with AVX2. Each gives the bytes of its namesake in resize/kernels_scalar.c. */
#include "resize/kernels_avx2.h"

#include <string.h>

#include "common/simd.h"
#include "resize/kernels_scalar.h"
#include "resize/pixels_avx2.h"

#if defined(__x86_64__)

enum { NONE = -128 }; /* picks no byte, also after a small number is added */

FL_AVX2_INLINE void store_quads(int16_t *quads, __m256i even, __m256i odd) {
    _mm256_store_si256((__m256i *)quads, _mm256_unpacklo_epi64(even, odd));
    _mm256_store_si256((__m256i *)(quads + FL_RESIZE_QUAD_LANES), _mm256_unpackhi_epi64(even, odd));
}

/* Four pixels; the first is at byte `skip` of 16 that are loaded from `at`. Rows 0 and 2 are summed in one
 * vector's lanes, 1 and 3 in another's, two pixels at a time, so that an unpack of the two is a quad. Bytes
 * go to the upper half of a 16-bit lane, and a multiply keeps the upper half of its product. */
FL_AVX2_INLINE void four_quads(const fl_resize_quad_rows *rows, const __m256i coef[2][FL_RESIZE_QUAD_TAPS],
                               uint32_t taps, size_t at, int skip, __m256i start, int16_t *quads) {
    const __m256i shift = _mm256_set1_epi8((char)skip);
    const __m256i first = _mm256_add_epi8(
        FL_AVX2_BOTH(NONE, 0, NONE, 1, NONE, 2, NONE, NONE, NONE, 3, NONE, 4, NONE, 5, NONE, NONE), shift);
    const __m256i second = _mm256_add_epi8(
        FL_AVX2_BOTH(NONE, 6, NONE, 7, NONE, 8, NONE, NONE, NONE, 9, NONE, 10, NONE, 11, NONE, NONE), shift);
    __m256i sum[2][2];
    for (int odd = 0; odd < 2; odd++) {
        const uint8_t *low = rows->row[odd] + at, *high = rows->row[odd + 2] + at;
        sum[odd][0] = sum[odd][1] = start;
        for (uint32_t k = 0; k < taps; k++, low += rows->stride, high += rows->stride) {
            __m256i pixels = fl_resize_load_rows(low, high);
            __asm__("" : "+x"(pixels)); /* or gcc loads them twice */
            sum[odd][0] = _mm256_add_epi16(
                sum[odd][0], _mm256_mulhi_epu16(_mm256_shuffle_epi8(pixels, first), coef[odd][k]));
            sum[odd][1] = _mm256_add_epi16(
                sum[odd][1], _mm256_mulhi_epu16(_mm256_shuffle_epi8(pixels, second), coef[odd][k]));
        }
    }
    store_quads(quads, sum[0][0], sum[1][0]);
    store_quads(quads + 2 * FL_RESIZE_QUAD_LANES, sum[0][1], sum[1][1]);
}

FL_AVX2_INLINE void quad_down_taps(const fl_resize_quad_rows *given, int16_t *quads, size_t n,
                                   uint32_t taps) {
    const fl_resize_quad_rows rows = *given; /* a copy, that stores of int16 cannot alias */
    const __m256i start = _mm256_set1_epi16((int16_t)(taps / 2));
    __m256i coef[2][FL_RESIZE_QUAD_TAPS];
    for (int j = 0; j < 2; j++)
        for (uint32_t k = 0; k < taps; k++)
            coef[j][k] = _mm256_inserti128_si256(_mm256_set1_epi16(rows.coef[j][k]),
                                                 _mm_set1_epi16(rows.coef[j + 2][k]), 1);
    four_quads(&rows, coef, taps, 0, 0, start, quads); /* 3 n >= 16 */
    for (size_t next = 4; next < n; next += 4) { /* loads that begin earlier do not end too late */
        const size_t p = next + 4 <= n ? next : n - 4;
        four_quads(&rows, coef, taps, 3 * p - 4, 4, start, quads + p * FL_RESIZE_QUAD_LANES);
    }
}

FL_AVX2 static void quad_down(const fl_resize_quad_rows *rows, int16_t *quads, size_t n) {
    if (3 * n < 16) {
        fl_resize_kernels_scalar.quad_down(rows, quads, n);
        return;
    }
    switch (rows->taps) { /* a constant count keeps coefficients in registers */
    case 1: quad_down_taps(rows, quads, n, 1); break;
    case 2: quad_down_taps(rows, quads, n, 2); break;
    case 3: quad_down_taps(rows, quads, n, 3); break;
    case 4: quad_down_taps(rows, quads, n, 4); break;
    case 5: quad_down_taps(rows, quads, n, 5); break;
    case 6: quad_down_taps(rows, quads, n, 6); break;
    default: quad_down_taps(rows, quads, n, rows->taps);
    }
}

FL_AVX2_INLINE void quad_across_taps(const fl_resize_axis *axis, const int16_t *quads, uint8_t *const dst[4],
                                     uint32_t taps) {
    const __m256i compress = FL_AVX2_BOTH(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i round = _mm256_set1_epi16(
        1 << (15 - FL_RESIZE_QUAD_BITS)); /* a rounding multiply by it is a rounding shift */
    const int16_t *coef = axis->coef; /* copies, that stores of bytes cannot alias */
    const uint32_t *first = axis->first, low = axis->low, count = axis->key.count;
    uint8_t *out[4] = {dst[0], dst[1], dst[2], dst[3]};
    for (uint32_t i = 0; i < count; i += FL_RESIZE_BLOCK) {
        __m256i pixel[FL_RESIZE_BLOCK];
        for (int j = 0; j < FL_RESIZE_BLOCK; j++, coef += 2 * taps) {
            const __m256i *quad =
                (const __m256i *)(quads + (size_t)(first[i + j] - low) * FL_RESIZE_QUAD_LANES);
            __m256i sum = _mm256_mulhrs_epi16(quad[0], fl_resize_coef_pair(coef));
            for (uint32_t k = 1; k < taps; k++)
                sum = _mm256_add_epi16(sum, _mm256_mulhrs_epi16(quad[k], fl_resize_coef_pair(coef + 2 * k)));
            pixel[j] = _mm256_mulhrs_epi16(sum, round);
        }
        /* a: pixels 0 and 1, b: 2 and 3, each (row 0, row 1, row 0, row 1 | row 2, row 3, row 2, row 3) in
         * 32-bit pixels */
        const __m256 a = _mm256_castsi256_ps(_mm256_packus_epi16(pixel[0], pixel[1]));
        const __m256 b = _mm256_castsi256_ps(_mm256_packus_epi16(pixel[2], pixel[3]));
        const __m256i even =
            _mm256_shuffle_epi8(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), compress);
        const __m256i odd = _mm256_shuffle_epi8(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)), compress);
        const size_t at = 3 * (size_t)i;
        fl_resize_store_pixels(out[0] + at, _mm256_castsi256_si128(even), count - i);
        fl_resize_store_pixels(out[1] + at, _mm256_castsi256_si128(odd), count - i);
        fl_resize_store_pixels(out[2] + at, _mm256_extracti128_si256(even, 1), count - i);
        fl_resize_store_pixels(out[3] + at, _mm256_extracti128_si256(odd, 1), count - i);
    }
}

FL_AVX2 static void quad_across(const fl_resize_axis *axis, const int16_t *quads, uint8_t *const dst[4]) {
    switch (axis->taps) {
    case 1: quad_across_taps(axis, quads, dst, 1); break;
    case 2: quad_across_taps(axis, quads, dst, 2); break;
    case 3: quad_across_taps(axis, quads, dst, 3); break;
    case 4: quad_across_taps(axis, quads, dst, 4); break;
    case 5: quad_across_taps(axis, quads, dst, 5); break;
    case 6: quad_across_taps(axis, quads, dst, 6); break;
    default: quad_across_taps(axis, quads, dst, axis->taps);
    }
}

/* One tap pair, or two, of an output pixel of two rows, a row a lane, added to its sums of (red, green, blue,
 * 0). Taps come in pairs, interleaved as R0 R1 G0 G1 B0 B1 so that one multiply-add takes both; a 16-byte load
 * holds five pixels, of which four are used. */
FL_AVX2_INLINE __m256i long_add(__m256i sum, const uint8_t *low, const uint8_t *high, const int16_t *coef,
                                bool two) {
    const __m256i first = FL_AVX2_BOTH(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m256i second = FL_AVX2_BOTH(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    const __m256i pixels = fl_resize_load_rows(low, high);
    sum = _mm256_add_epi32(sum,
                           _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, first), fl_resize_coef_pair(coef)));
    if (!two) return sum;
    return _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, second), fl_resize_coef_pair(coef + 2)));
}

FL_AVX2_INLINE void long_across_taps(const fl_resize_axis *axis, fl_resize_row_form form,
                                     const uint8_t *const src[2], int16_t *const dst[2], uint32_t taps) {
    const __m256i compress = FL_AVX2_BOTH(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1);
    const __m256i half = _mm256_set1_epi32(1 << (axis->bits - form.bits - 1));
    const __m128i shift = _mm_cvtsi32_si128(axis->bits - form.bits);
    const __m256i lowest = _mm256_set1_epi16((int16_t)form.low),
                  highest = _mm256_set1_epi16((int16_t)form.high);
    const uint32_t count = axis->key.count, *first = axis->first;
    const int16_t *coef = axis->coef;
    int16_t *out[2] = {dst[0], dst[1]};
    for (uint32_t i = 0; i < count; i += 2, coef += taps) {
        const uint8_t *low = src[0] + (size_t)first[i] * 3, *high = src[1] + (size_t)first[i] * 3;
        const ptrdiff_t next = ((ptrdiff_t)first[i + 1] - (ptrdiff_t)first[i]) * 3; /* mirrored: back */
        __m256i one = half, other = half; /* two pixels side by side, so that neither waits for its sums */
        for (uint32_t k = 0; k + 4 <= taps; k += 4, low += 12, high += 12, coef += 4) {
            one = long_add(one, low, high, coef, true);
            other = long_add(other, low + next, high + next, coef + taps, true);
        }
        if (taps % 4 != 0) {
            one = long_add(one, low, high, coef, false);
            other = long_add(other, low + next, high + next, coef + taps, false);
            coef += 2;
        }
        const __m256i both = _mm256_packs_epi32(_mm256_sra_epi32(one, shift), _mm256_sra_epi32(other, shift));
        const __m256i rgb =
            _mm256_shuffle_epi8(_mm256_min_epi16(_mm256_max_epi16(both, lowest), highest), compress);
        for (int r = 0; r < 2; r++) {
            const __m128i values = r ? _mm256_extracti128_si256(rgb, 1) : _mm256_castsi256_si128(rgb);
            int16_t last[8];
            if (count - i >= 3) { /* the 2 values too many are overwritten by the next pixels */
                _mm_storeu_si128((__m128i *)(out[r] + 3 * (size_t)i), values);
            } else {
                _mm_storeu_si128((__m128i *)last, values);
                memcpy(out[r] + 3 * (size_t)i, last, (count - i < 2 ? 3 : 6) * sizeof *last);
            }
        }
    }
}

FL_AVX2 static void long_across(const fl_resize_axis *axis, fl_resize_row_form form,
                                const uint8_t *const src[2], int16_t *const dst[2]) {
    switch (axis->taps) {
    case 4: long_across_taps(axis, form, src, dst, 4); break;
    case 6: long_across_taps(axis, form, src, dst, 6); break;
    default: long_across_taps(axis, form, src, dst, axis->taps);
    }
}

/* 16 values at `at`, taps in pairs: clipped to bytes, still 16 bits each. */
FL_AVX2_INLINE __m256i down_sum(const int16_t *const *rows, const int16_t *coef, uint32_t taps, size_t at,
                                __m256i half, __m128i shift) {
    __m256i low = half, high = half;
    for (uint32_t k = 0; k < taps; k += 2) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[k] + at)),
                      c = fl_resize_coef_pair(coef + k);
        const __m256i b =
            k + 1 < taps ? _mm256_loadu_si256((const __m256i *)(rows[k + 1] + at)) : _mm256_setzero_si256();
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), c));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), c));
    }
    return _mm256_packs_epi32(_mm256_sra_epi32(low, shift), _mm256_sra_epi32(high, shift));
}

FL_AVX2_INLINE void long_down_taps(const fl_resize_axis *axis, fl_resize_row_form form, const int16_t *coef,
                                   const int16_t *const *rows, uint8_t *dst, size_t n, uint32_t taps) {
    const __m256i half = _mm256_set1_epi32(1 << (axis->bits + form.bits - 1));
    const __m128i shift = _mm_cvtsi32_si128(axis->bits + form.bits);
    for (size_t next = 0; next < n; next += 16) {
        const size_t at = next + 16 <= n ? next : n - 16; /* the last 16 overlap; n >= 16 */
        const __m256i values = down_sum(rows, coef, taps, at, half, shift);
        _mm_storeu_si128((__m128i *)(dst + at), _mm_packus_epi16(_mm256_castsi256_si128(values),
                                                                 _mm256_extracti128_si256(values, 1)));
    }
}

FL_AVX2 static void long_down(const fl_resize_axis *axis, fl_resize_row_form form, const int16_t *coef,
                              const int16_t *const *rows, uint8_t *dst, size_t n) {
    if (n < 16) fl_resize_kernels_scalar.long_down(axis, form, coef, rows, dst, n);
    else if (axis->taps == 4) long_down_taps(axis, form, coef, rows, dst, n, 4);
    else if (axis->taps == 6) long_down_taps(axis, form, coef, rows, dst, n, 6);
    else long_down_taps(axis, form, coef, rows, dst, n, axis->taps);
}

/* Five pixels at a time; the byte before them is loaded too, and the byte after them stored, so neither end
 * is overrun. */
FL_AVX2 static void mirror(const uint8_t *rgb, uint8_t *dst, size_t n) {
    const __m128i turn = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
    for (; n >= 6; n -= 5, dst += 15)
        _mm_storeu_si128((__m128i *)dst,
                         _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(rgb + 3 * (n - 5) - 1)), turn));
    fl_resize_kernels_scalar.mirror(rgb, dst, n);
}

/* 16 pixels, 48 bytes, at a time: each plane's bytes are picked from the three loads and put together. */
FL_AVX2 static void split(const uint8_t *rgb, uint8_t *const plane[3], size_t n) {
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
            const __m128i ab = _mm_or_si128(_mm_shuffle_epi8(a, _mm_loadu_si128(pick)),
                                            _mm_shuffle_epi8(b, _mm_loadu_si128(pick + 1)));
            _mm_storeu_si128((__m128i *)(plane[p] + i),
                             _mm_or_si128(ab, _mm_shuffle_epi8(c, _mm_loadu_si128(pick + 2))));
        }
    }
    fl_resize_kernels_scalar.split(rgb + 3 * i, (uint8_t *const[3]){plane[0] + i, plane[1] + i, plane[2] + i},
                                   n - i);
}

/* Sums of a pixel and its neighbour, two in each lane. */
FL_AVX2_INLINE __m256i neighbours(const uint8_t *low, const uint8_t *high, __m256i pairs) {
    return _mm256_maddubs_epi16(_mm256_shuffle_epi8(fl_resize_load_rows(low, high), pairs),
                                _mm256_set1_epi8(1));
}

/* Four pixels of eight in each row: one load begins with these, the other ends with them. Four bytes too many
 * are stored, which the next pixels overwrite. */
FL_AVX2 static void halve(const uint8_t *top, const uint8_t *bottom, uint8_t *dst, size_t n) {
    const __m256i pairs = _mm256_setr_epi8(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, NONE, NONE, NONE, NONE, 4, 7,
                                           5, 8, 6, 9, 10, 13, 11, 14, 12, 15, NONE, NONE, NONE, NONE);
    const __m256i join =
        _mm256_setr_epi8(0, 1, 2, 3, 4, 5, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
                         NONE, NONE, NONE, NONE, NONE, 0, 1, 2, 3, 4, 5, NONE, NONE, NONE, NONE);
    const __m256i two = _mm256_set1_epi16(2);
    for (; n >= 6; n -= 4, top += 24, bottom += 24, dst += 12) {
        const __m256i sum =
            _mm256_add_epi16(neighbours(top, top + 8, pairs), neighbours(bottom, bottom + 8, pairs));
        const __m256i mean = _mm256_srli_epi16(_mm256_add_epi16(sum, two), 2);
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(mean, mean), join);
        _mm_storeu_si128((__m128i *)dst,
                         _mm_or_si128(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
    }
    fl_resize_kernels_scalar.halve(top, bottom, dst, n);
}

const fl_resize_kernels *fl_resize_kernels_avx2(void) {
    static const fl_resize_kernels kernels = {quad_down, quad_across, long_across, long_down,
                                              mirror,    split,       halve};
    return &kernels;
}

#else

const fl_resize_kernels *fl_resize_kernels_avx2(void) { return NULL; }

#endif
