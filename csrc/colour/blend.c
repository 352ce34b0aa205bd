#include "colour/blend.h"

#include <math.h>
#include <stdbool.h>

#include "colour/light.h"
#include "colour/lut.h"
#include "colour/vectors.h"
#include "common/cpu.h"

/* Two roundings in float: compiled without contraction. Between 0 and 1 of `factor` nothing is cut off. */
FL_INLINE uint8_t mixed(int from, int to, float factor) {
    float value = (float)from + factor * (float)(to - from);
    value = value < 0.0f ? 0.0f : value;
    value = value > 255.0f ? 255.0f : value;
    return (uint8_t)(int)value;
}

FL_INLINE void constant(uint8_t *bytes, size_t count, uint8_t from, float factor) {
    for (size_t i = 0; i < count; i++) bytes[i] = mixed(from, bytes[i], factor);
}

FL_INLINE void images(uint8_t *restrict bytes, const uint8_t *restrict from, size_t count, float factor) {
    for (size_t i = 0; i < count; i++) bytes[i] = mixed(from[i], bytes[i], factor);
}

FL_INLINE void saturated(fl_colour_planes *planes, float factor) {
    FL_COLOUR_ROLLED
    for (int i = 0; i < FL_COLOUR_BLOCK; i++) {
        const int light = fl_colour_light_of(planes->r[i], planes->g[i], planes->b[i]);
        planes->r[i] = mixed(light, planes->r[i], factor);
        planes->g[i] = mixed(light, planes->g[i], factor);
        planes->b[i] = mixed(light, planes->b[i], factor);
    }
}

FL_PLAIN static void constant_plain(uint8_t *bytes, size_t count, uint8_t from, float factor) {
    constant(bytes, count, from, factor);
}

FL_PLAIN static void images_plain(uint8_t *restrict bytes, const uint8_t *restrict from, size_t count,
                                  float factor) {
    images(bytes, from, count, factor);
}

FL_PLAIN static void pixels_saturated_plain(uint8_t *rgb, size_t pixels, float factor) {
    FL_COLOUR_BLOCKS(, rgb, pixels, saturated, factor);
}

#if defined(__x86_64__)

/* Packing cuts off at 0 and 255 what is within int32. */
enum { FACTOR_MOST = 1 << 20 };

FL_AVX2_INLINE __m256i mixed8(__m256 from, __m256 by, __m256 factor) {
    return _mm256_cvttps_epi32(_mm256_add_ps(from, _mm256_mul_ps(factor, by)));
}

/* 8 of 32 bytes as floats. */
#define FLOATS(v, part)                                                                                      \
    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32((part) & 1                                                       \
                                                ? _mm_srli_si128(_mm256_extracti128_si256(v, (part) / 2), 8) \
                                                : _mm256_extracti128_si256(v, (part) / 2)))

FL_AVX2_INLINE __m256i packed(const __m256i at[4]) {
    const __m256i words =
        _mm256_packus_epi16(_mm256_packs_epi32(at[0], at[1]), _mm256_packs_epi32(at[2], at[3]));
    return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

FL_AVX2_INLINE __m256i mixed32(__m256i from, __m256i to, __m256 factor) {
    __m256i at[4];
#define PART(k)                                                                                              \
    do {                                                                                                     \
        const __m256 a = FLOATS(from, k);                                                                    \
        at[k] = mixed8(a, _mm256_sub_ps(FLOATS(to, k), a), factor);                                          \
    } while (0)
    PART(0);
    PART(1);
    PART(2);
    PART(3);
#undef PART
    return packed(at);
}

FL_AVX2 static void constant_avx2(uint8_t *bytes, size_t count, uint8_t from, float factor) {
    const __m256 a = _mm256_set1_ps(from), f = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m256i *at = (__m256i *)(bytes + i);
        const __m256i v = _mm256_loadu_si256(at);
        const __m256i parts[4] = {
            mixed8(a, _mm256_sub_ps(FLOATS(v, 0), a), f), mixed8(a, _mm256_sub_ps(FLOATS(v, 1), a), f),
            mixed8(a, _mm256_sub_ps(FLOATS(v, 2), a), f), mixed8(a, _mm256_sub_ps(FLOATS(v, 3), a), f)};
        _mm256_storeu_si256(at, packed(parts));
    }
    constant(bytes + i, count - i, from, factor);
}

FL_AVX2 static void images_avx2(uint8_t *restrict bytes, const uint8_t *restrict from, size_t count,
                                float factor) {
    const __m256 f = _mm256_set1_ps(factor);
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m256i *at = (__m256i *)(bytes + i);
        _mm256_storeu_si256(
            at, mixed32(_mm256_loadu_si256((const __m256i *)(from + i)), _mm256_loadu_si256(at), f));
    }
    images(bytes + i, from + i, count - i, factor);
}

/* The light of a pixel is a float once for its three sides. */
FL_AVX2_INLINE void saturated_avx2(fl_colour_planes *planes, float factor) {
    const __m256 f = _mm256_set1_ps(factor);
    uint8_t light[FL_COLOUR_BLOCK];
    fl_colour_block_light_avx2(planes, light);
    for (int i = 0; i < FL_COLOUR_BLOCK; i += 32) {
        const __m256i from = _mm256_loadu_si256((const __m256i *)(light + i));
        const __m256 a[4] = {FLOATS(from, 0), FLOATS(from, 1), FLOATS(from, 2), FLOATS(from, 3)};
        uint8_t *sides[3] = {planes->r + i, planes->g + i, planes->b + i};
        for (int c = 0; c < 3; c++) {
            __m256i *at = (__m256i *)sides[c];
            const __m256i v = _mm256_loadu_si256(at);
            const __m256i parts[4] = {mixed8(a[0], _mm256_sub_ps(FLOATS(v, 0), a[0]), f),
                                      mixed8(a[1], _mm256_sub_ps(FLOATS(v, 1), a[1]), f),
                                      mixed8(a[2], _mm256_sub_ps(FLOATS(v, 2), a[2]), f),
                                      mixed8(a[3], _mm256_sub_ps(FLOATS(v, 3), a[3]), f)};
            _mm256_storeu_si256(at, packed(parts));
        }
    }
}

FL_AVX2 static void pixels_saturated_avx2(uint8_t *rgb, size_t pixels, float factor) {
    FL_COLOUR_BLOCKS(_avx2, rgb, pixels, saturated_avx2, factor);
}

/* 64 bytes as floats, in the order in which packing finds them. */
FL_AVX512_INLINE void floats_of(__m512i v, __m512 out[4]) {
    const __m512i zero = _mm512_setzero_si512(), low = _mm512_unpacklo_epi8(v, zero),
                  high = _mm512_unpackhi_epi8(v, zero);
    out[0] = _mm512_cvtepi32_ps(_mm512_unpacklo_epi16(low, zero));
    out[1] = _mm512_cvtepi32_ps(_mm512_unpackhi_epi16(low, zero));
    out[2] = _mm512_cvtepi32_ps(_mm512_unpacklo_epi16(high, zero));
    out[3] = _mm512_cvtepi32_ps(_mm512_unpackhi_epi16(high, zero));
}

FL_AVX512_INLINE __m512i mixed16(__m512 from, __m512 to, __m512 factor) {
    return _mm512_cvttps_epi32(_mm512_add_ps(from, _mm512_mul_ps(factor, _mm512_sub_ps(to, from))));
}

FL_AVX512_INLINE void saturated_avx512(fl_colour_planes *planes, float factor) {
    uint8_t *sides[3] = {planes->r, planes->g, planes->b};
    const __m512i v[3] = {_mm512_loadu_si512(sides[0]), _mm512_loadu_si512(sides[1]),
                          _mm512_loadu_si512(sides[2])};
    const __m512 f = _mm512_set1_ps(factor);
    __m512 from[4], to[4];
    floats_of(fl_colour_some_light(v[0], v[1], v[2]), from);
    for (int c = 0; c < 3; c++) {
        floats_of(v[c], to);
        const __m512i low = _mm512_packs_epi32(mixed16(from[0], to[0], f), mixed16(from[1], to[1], f)),
                      high = _mm512_packs_epi32(mixed16(from[2], to[2], f), mixed16(from[3], to[3], f));
        _mm512_storeu_si512(sides[c], _mm512_packus_epi16(low, high));
    }
}

FL_AVX512 static void pixels_saturated_avx512(uint8_t *rgb, size_t pixels, float factor) {
    FL_COLOUR_BLOCKS(_avx512, rgb, pixels, saturated_avx512, factor);
}

static bool wide(float factor) { return fl_cpu_has(FL_CPU_AVX2) && fabsf(factor) <= FACTOR_MOST; }
#else
#define constant_avx2 constant_plain
#define images_avx2 images_plain
#define pixels_saturated_avx2 pixels_saturated_plain
#define pixels_saturated_avx512 pixels_saturated_plain
static bool wide(float factor) {
    (void)factor;
    return false;
}
#endif

/* Looking up a byte is cheaper than computing it where a table is in registers. */
static void by_table(uint8_t *bytes, size_t count, uint8_t from, float factor) {
    uint8_t table[256];
    for (int value = 0; value < 256; value++) table[value] = (uint8_t)value;
    (wide(factor) ? constant_avx2 : constant_plain)(table, sizeof table, from, factor);
    fl_colour_table(bytes, count, table);
}

void fl_colour_blend_from(uint8_t *bytes, size_t count, uint8_t from, float factor) {
    if (fl_cpu_has(FL_CPU_AVX512) && count > 256) by_table(bytes, count, from, factor);
    else (wide(factor) ? constant_avx2 : constant_plain)(bytes, count, from, factor);
}

void fl_colour_blend(uint8_t *bytes, const uint8_t *from, size_t count, float factor) {
    (wide(factor) ? images_avx2 : images_plain)(bytes, from, count, factor);
}

void fl_colour_saturate(uint8_t *rgb, size_t pixels, float factor) {
    if (!wide(factor)) pixels_saturated_plain(rgb, pixels, factor);
    else if (fl_cpu_has(FL_CPU_AVX512)) pixels_saturated_avx512(rgb, pixels, factor);
    else pixels_saturated_avx2(rgb, pixels, factor);
}
