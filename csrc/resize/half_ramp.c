#include "resize/half_ramp.h"

#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/simd.h"

/* ---- in vectors
 * ---------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)

/* Slopes and starts of 8 values. */
typedef struct line {
    __m256 slope, start;
} line;

FL_AVX2_HALF_INLINE __m128i to_brain(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value),
                  last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(
        bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7FFF))); /* to the nearest, ties to even */
    const __m256i high = _mm256_srli_epi32(rounded, 16);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08));
}

FL_AVX2_HALF_INLINE __m128i convert(const uint8_t *bytes, line line, bool brain) {
    const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
    const __m256 found = _mm256_fmadd_ps(value, line.slope, line.start);
    return brain ? to_brain(found) : _mm256_cvtps_ph(found, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* The lines of values c, c + 1, ... c + 7 of pixels whose channels take turns, or (step 0) of one channel. */
FL_AVX2_HALF_INLINE line line_of(const fl_resize_half_ramp *ramp, int c, int step) {
    float slope[8], start[8];
    for (int i = 0; i < 8; i++, c = (c + step) % 3) slope[i] = ramp->slope[c], start[i] = ramp->start[c];
    return (line){_mm256_loadu_ps(slope), _mm256_loadu_ps(start)};
}

FL_AVX2_HALF_INLINE void interleaved(const fl_resize_half_ramp *ramp, const uint8_t *rgb, uint16_t *dst,
                                     size_t n, bool brain) {
    const line lines[3] = {line_of(ramp, 0, 1), line_of(ramp, 2, 1), line_of(ramp, 1, 1)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8, rgb += 24, dst += 24)
        for (int k = 0; k < 3; k++)
            _mm_storeu_si128((__m128i *)(dst + 8 * k), convert(rgb + 8 * k, lines[k], brain));
    for (size_t k = 0; i + k < n; k++)
        for (int c = 0; c < 3; c++) dst[3 * k + c] = ramp->table[c][rgb[3 * k + c]];
}

FL_AVX2_HALF_INLINE void plane(const fl_resize_half_ramp *ramp, int channel, const uint8_t *bytes,
                               uint16_t *dst, size_t n, bool brain) {
    const line line = line_of(ramp, channel, 0);
    const size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i), convert(bytes + i, line, brain));
    for (size_t i = whole; i < n; i++) dst[i] = ramp->table[channel][bytes[i]];
}

FL_AVX2_HALF void fl_resize_half_ramp_interleaved(const fl_resize_half_ramp *ramp, const uint8_t *rgb,
                                                  uint16_t *dst, size_t n) {
    if (ramp->dtype == FL_BF16) interleaved(ramp, rgb, dst, n, true);
    else interleaved(ramp, rgb, dst, n, false);
}

FL_AVX2_HALF void fl_resize_half_ramp_plane(const fl_resize_half_ramp *ramp, int channel,
                                            const uint8_t *bytes, uint16_t *dst, size_t n) {
    if (ramp->dtype == FL_BF16) plane(ramp, channel, bytes, dst, n, true);
    else plane(ramp, channel, bytes, dst, n, false);
}

/* ---- the line of a table
 * ------------------------------------------------------------------------------------------- */

static double value_of(uint16_t bits, fl_dtype dtype) {
    const int sign = bits >> 15, fraction_bits = dtype == FL_F16 ? 10 : 7, bias = dtype == FL_F16 ? 15 : 127;
    const int exponent = (bits & 0x7FFF) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    if (exponent == 2 * bias + 1) return NAN; /* infinity, or none */
    const double value = exponent ? ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
                                  : ldexp(fraction, 1 - bias - fraction_bits);
    return sign ? -value : value;
}

/* Between which numbers lie those that round to each value of the channel's table; false for one that is not
 * finite. */
static bool bounds_of(const uint16_t *table, fl_dtype dtype, double low[256], double high[256]) {
    for (int i = 0; i < 256; i++) {
        const uint16_t magnitude = table[i] & 0x7FFF, sign = table[i] & 0x8000;
        const double value = value_of(table[i], dtype),
                     more = value_of((uint16_t)(sign | (magnitude + 1)), dtype);
        const double less = magnitude ? value_of((uint16_t)(sign | (magnitude - 1)), dtype) : -more;
        const double out = (value + more) / 2, in = magnitude ? (value + less) / 2 : 0;
        if (!isfinite(value) || !isfinite(more)) return false;
        low[i] = sign ? out : in;
        high[i] = sign ? in : out;
    }
    return true;
}

/* The middle of the lines that go between all bounds; false: there are none. */
static bool between(const double low[256], const double high[256], float *slope, float *start) {
    double least = -INFINITY, most = INFINITY;
    for (int i = 0; i < 256; i++)
        for (int j = i + 1; j < 256; j++) {
            least = fmax(least, (low[j] - high[i]) / (j - i));
            most = fmin(most, (high[j] - low[i]) / (j - i));
        }
    if (!(least <= most)) return false;
    *slope = (float)((least + most) / 2);
    double from = -INFINITY, to = INFINITY;
    for (int i = 0; i < 256; i++) {
        from = fmax(from, low[i] - (double)*slope * i);
        to = fmin(to, high[i] - (double)*slope * i);
    }
    *start = (float)((from + to) / 2);
    return from <= to && isfinite(*start);
}

static bool find_line(fl_resize_half_ramp *ramp, int channel) {
    double low[256], high[256];
    uint8_t bytes[256];
    uint16_t values[256];
    if (!bounds_of(ramp->table[channel], ramp->dtype, low, high) ||
        !between(low, high, &ramp->slope[channel], &ramp->start[channel]))
        return false;
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    fl_resize_half_ramp_plane(ramp, channel, bytes, values, 256);
    return memcmp(values, ramp->table[channel], sizeof values) == 0;
}

const fl_resize_half_ramp *fl_resize_half_ramp_of(fl_resize_half_ramp *ramp, const void *table,
                                                  fl_dtype dtype) {
    if (!fl_cpu_has(FL_CPU_AVX2 | FL_CPU_FMA | FL_CPU_F16C)) return NULL;
    if (!ramp->known || ramp->dtype != dtype || memcmp(ramp->table, table, sizeof ramp->table) != 0) {
        memcpy(ramp->table, table, sizeof ramp->table);
        ramp->dtype = dtype;
        ramp->known = true;
        ramp->found = find_line(ramp, 0) && find_line(ramp, 1) && find_line(ramp, 2);
    }
    return ramp->found ? ramp : NULL;
}

#else

const fl_resize_half_ramp *fl_resize_half_ramp_of(fl_resize_half_ramp *ramp, const void *table,
                                                  fl_dtype dtype) {
    (void)ramp, (void)table, (void)dtype;
    return NULL;
}

void fl_resize_half_ramp_interleaved(const fl_resize_half_ramp *ramp, const uint8_t *rgb, uint16_t *dst,
                                     size_t n) {
    for (size_t i = 0; i < 3 * n; i++) dst[i] = ramp->table[i % 3][rgb[i]];
}

void fl_resize_half_ramp_plane(const fl_resize_half_ramp *ramp, int channel, const uint8_t *bytes,
                               uint16_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = ramp->table[channel][bytes[i]];
}

#endif
