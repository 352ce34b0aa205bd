#include "resize/ramp.h"

#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/simd.h"

#if defined(__x86_64__)

/* The quotient, correctly rounded but in rare cases, by one Newton step on its remainder (Markstein,
 * 1990). */
FL_AVX2_FMA_INLINE __m256 divide(__m256 a, __m256 b, __m256 inverse) {
    const __m256 q = _mm256_mul_ps(a, inverse);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, b, a), inverse, q);
}

/* Constants of 8 values. */
typedef struct line {
    __m256 mean, std, inverse;
} line;

FL_AVX2_FMA_INLINE __m256 convert(__m128i bytes, line line) {
    const __m256 full = _mm256_set1_ps(255.0f), value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    const __m256 unit = divide(value, full, _mm256_set1_ps(1.0f / 255.0f));
    return divide(_mm256_sub_ps(unit, line.mean), line.std, line.inverse);
}

/* The lines of values c, c + 1, ... c + 7 of pixels whose channels take turns, or (step 0) of one channel. */
FL_AVX2_FMA_INLINE line lines_of(const fl_resize_ramp *ramp, int c, int step) {
    float mean[8], std[8], inverse[8];
    for (int i = 0; i < 8; i++, c = (c + step) % 3) {
        mean[i] = ramp->mean[c];
        std[i] = ramp->std[c];
        inverse[i] = 1.0f / ramp->std[c];
    }
    return (struct line){_mm256_loadu_ps(mean), _mm256_loadu_ps(std), _mm256_loadu_ps(inverse)};
}

FL_AVX2_FMA void fl_resize_ramp_interleaved(const fl_resize_ramp *ramp, const uint8_t *rgb, float *dst,
                                            size_t n) {
    const line lines[3] = {lines_of(ramp, 0, 1), lines_of(ramp, 2, 1), lines_of(ramp, 1, 1)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8, rgb += 24, dst += 24)
        for (int k = 0; k < 3; k++)
            _mm256_storeu_ps(dst + 8 * k, convert(_mm_loadl_epi64((const __m128i *)(rgb + 8 * k)), lines[k]));
    for (size_t k = 0; i + k < n; k++)
        for (int c = 0; c < 3; c++) dst[3 * k + c] = ramp->table[c][rgb[3 * k + c]];
}

FL_AVX2_FMA void fl_resize_ramp_plane(const fl_resize_ramp *ramp, int channel, const uint8_t *bytes,
                                      float *dst, size_t n) {
    const line line = lines_of(ramp, channel, 0);
    const size_t whole = n / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        _mm256_storeu_ps(dst + i, convert(_mm_loadl_epi64((const __m128i *)(bytes + i)), line));
    for (size_t i = whole; i < n; i++) dst[i] = ramp->table[channel][bytes[i]];
}

/* True if the formula with this line gives the channel's table bit for bit. */
static bool gives(const fl_resize_ramp *ramp, int channel, const uint8_t *bytes, size_t n) {
    float value[256];
    fl_resize_ramp_plane(ramp, channel, bytes, value, n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&value[i], &ramp->table[channel][bytes[i]], sizeof value[i]) != 0) return false;
    return true;
}

static float moved(float value, int ulps) {
    const float toward = ulps < 0 ? -INFINITY : INFINITY;
    for (; ulps != 0; ulps += ulps < 0 ? 1 : -1) value = nextafterf(value, toward);
    return value;
}

/* The table's ends give mean and std but for a few units in their last place; of those near, one gives the
 * whole table or none. */
static bool find_line(fl_resize_ramp *ramp, int channel) {
    enum { NEAR = 8 };
    static const uint8_t probe[8] = {0, 255, 128, 64, 200, 31, 101, 170};
    uint8_t all[256];
    for (int i = 0; i < 256; i++) all[i] = (uint8_t)i;
    const float *table = ramp->table[channel], std = 1.0f / (table[255] - table[0]);
    if (!isnormal(std)) return false;
    for (int i = 0; i <= 2 * NEAR; i++) {
        ramp->std[channel] = moved(std, i % 2 ? (i + 1) / 2 : -i / 2); /* the nearest first */
        const float mean = -table[0] * ramp->std[channel];
        for (int j = 0; j <= 2 * NEAR; j++) {
            ramp->mean[channel] = moved(mean, j % 2 ? (j + 1) / 2 : -j / 2);
            if (gives(ramp, channel, probe, sizeof probe) && gives(ramp, channel, all, sizeof all))
                return true;
        }
    }
    return false;
}

const fl_resize_ramp *fl_resize_ramp_of(fl_resize_ramp *ramp, const void *table) {
    if (!fl_cpu_has(FL_CPU_AVX2 | FL_CPU_FMA)) return NULL;
    if (!ramp->known || memcmp(ramp->table, table, sizeof ramp->table) != 0) {
        memcpy(ramp->table, table, sizeof ramp->table);
        ramp->known = true;
        ramp->found = find_line(ramp, 0) && find_line(ramp, 1) && find_line(ramp, 2);
    }
    return ramp->found ? ramp : NULL;
}

#else

const fl_resize_ramp *fl_resize_ramp_of(fl_resize_ramp *ramp, const void *table) {
    (void)ramp, (void)table;
    return NULL;
}

void fl_resize_ramp_interleaved(const fl_resize_ramp *ramp, const uint8_t *rgb, float *dst, size_t n) {
    for (size_t i = 0; i < 3 * n; i++) dst[i] = ramp->table[i % 3][rgb[i]];
}

void fl_resize_ramp_plane(const fl_resize_ramp *ramp, int channel, const uint8_t *bytes, float *dst,
                          size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = ramp->table[channel][bytes[i]];
}

#endif
