/* The row kernels in plain C: the definition of the resizer's arithmetic, which SIMD kernels must give byte for byte.
 * Inner loops run along a row without branches, so that compilers vectorise them for any CPU. */
#include "fl_resize_rows.h"

enum { CHUNK = 64 }; /* sums of so many bytes stay in registers or L1 while the taps go by */

static inline uint8_t clip(int32_t value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

static inline int32_t coefficient(const fl_axis *axis, const int16_t *coef, uint32_t k) {
    return axis->sum == FL_FINE ? fl_fine_coef(coef, k) : coef[k];
}

static void horizontal_row(const fl_axis *axis, const uint8_t *src, uint8_t *dst) {
    const int32_t half = 1 << (axis->bits - 1);
    for (uint32_t i = 0; i < axis->key.count; i++) {
        const uint8_t *pixel = src + (size_t)axis->first[i] * 3;
        const int16_t *coef = axis->coef + (size_t)i * axis->stride;
        int32_t red = half, green = half, blue = half;
        for (uint32_t k = 0; k < axis->taps; k++, pixel += 3) {
            const int32_t c = coefficient(axis, coef, k);
            red += pixel[0] * c;
            green += pixel[1] * c;
            blue += pixel[2] * c;
        }
        *dst++ = clip(red >> axis->bits);
        *dst++ = clip(green >> axis->bits);
        *dst++ = clip(blue >> axis->bits);
    }
}

static void horizontal(const fl_axis *axis, const uint8_t *const src[2], uint8_t *const dst[2]) {
    horizontal_row(axis, src[0], dst[0]);
    if (dst[1] != dst[0]) horizontal_row(axis, src[1], dst[1]);
}

static void vertical32(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n) {
    int32_t sum[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) sum[i] = 1 << (axis->bits - 1);
        for (uint32_t k = 0; k < axis->taps; k++) {
            const uint8_t *row = rows[k] + at;
            const int32_t c = coefficient(axis, coef, k);
            for (size_t i = 0; i < m; i++) sum[i] += row[i] * c;
        }
        for (size_t i = 0; i < m; i++) dst[at + i] = clip(sum[i] >> axis->bits);
    }
}

static void vertical16(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n) {
    uint16_t sum[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) sum[i] = (uint16_t)(128 + axis->taps / 2);
        for (uint32_t k = 0; k < axis->taps; k++) {
            const uint8_t *row = rows[k] + at;
            const uint32_t c = (uint16_t)coef[k];
            for (size_t i = 0; i < m; i++) sum[i] = (uint16_t)(sum[i] + (uint16_t)(row[i] * c >> 8));
        }
        for (size_t i = 0; i < m; i++) dst[at + i] = (uint8_t)(sum[i] >> 8);
    }
}

static void vertical(const fl_axis *axis, const int16_t *coef, const uint8_t *const *rows, uint8_t *dst, size_t n) {
    (axis->sum == FL_SUM16 ? vertical16 : vertical32)(axis, coef, rows, dst, n);
}

static void split(const uint8_t *rgb, uint8_t *const plane[3], size_t n) {
    uint8_t *restrict red = plane[0], *restrict green = plane[1], *restrict blue = plane[2]; /* planes of one image */
    for (size_t i = 0; i < n; i++) {
        red[i] = rgb[3 * i];
        green[i] = rgb[3 * i + 1];
        blue[i] = rgb[3 * i + 2];
    }
}

const fl_kernels fl_kernels_scalar = {"scalar", horizontal, vertical, split};

void fl_horizontal_wide(const fl_axis *axis, const uint8_t *src, int16_t *dst) {
    const int shift = axis->bits - FL_WIDE_BITS;
    const int32_t half = 1 << (shift - 1);
    for (uint32_t i = 0; i < axis->key.count; i++) {
        const uint8_t *pixel = src + (size_t)axis->first[i] * 3;
        const int16_t *coef = axis->coef + (size_t)i * axis->stride;
        int32_t red = half, green = half, blue = half;
        for (uint32_t k = 0; k < axis->taps; k++, pixel += 3) {
            red += pixel[0] * coef[k];
            green += pixel[1] * coef[k];
            blue += pixel[2] * coef[k];
        }
        *dst++ = (int16_t)(red >> shift);
        *dst++ = (int16_t)(green >> shift);
        *dst++ = (int16_t)(blue >> shift);
    }
}

void fl_vertical_wide(const fl_axis *axis, const int16_t *coef, const int16_t *const *rows, uint8_t *dst, size_t n) {
    const int shift = axis->bits + FL_WIDE_BITS;
    int32_t sum[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) sum[i] = 1 << (shift - 1);
        for (uint32_t k = 0; k < axis->taps; k++) {
            const int16_t *row = rows[k] + at;
            const int32_t c = coef[k];
            for (size_t i = 0; i < m; i++) sum[i] += row[i] * c;
        }
        for (size_t i = 0; i < m; i++) dst[at + i] = clip(sum[i] >> shift);
    }
}
