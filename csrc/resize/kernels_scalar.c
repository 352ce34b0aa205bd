/* The row kernels in plain C: the definition of the resizer's arithmetic, which SIMD kernels must give byte
 * for byte. Inner loops run along a row without branches, so that compilers vectorise them for any CPU. */
#include "resize/kernels_scalar.h"

enum { CHUNK = 64 }; /* sums of so many values stay in registers or L1 while the taps go by */

static inline int32_t clip(int32_t value, int32_t low, int32_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Products are cut to FL_RESIZE_QUAD_BITS; half a unit for each, on average what the cuts lose, is there from
 * the start. */
static void quad_down(const fl_resize_quad_rows *rows, int16_t *quads, size_t n) {
    for (int j = 0; j < 4; j++) {
        for (size_t p = 0; p < n; p++) {
            int16_t *value = quads + p * FL_RESIZE_QUAD_LANES + 4 * j;
            for (int c = 0; c < 3; c++) value[c] = (int16_t)(rows->taps / 2);
            value[3] = 0;
        }
        for (uint32_t k = 0; k < rows->taps; k++) {
            const uint8_t *src = rows->row[j] + k * rows->stride;
            const uint32_t coef = (uint16_t)rows->coef[j][k];
            for (size_t p = 0; p < n; p++)
                for (int c = 0; c < 3; c++)
                    quads[p * FL_RESIZE_QUAD_LANES + 4 * j + c] += (int16_t)(src[3 * p + c] * coef >> 8);
        }
    }
}

/* Products are rounded to FL_RESIZE_QUAD_BITS. */
static void quad_across(const fl_resize_axis *axis, const int16_t *quads, uint8_t *const dst[4]) {
    for (uint32_t i = 0; i < axis->key.count; i++) {
        const int16_t *quad = quads + (size_t)(axis->first[i] - axis->low) * FL_RESIZE_QUAD_LANES;
        const int16_t *coef = axis->coef + (size_t)i * axis->stride;
        int16_t sum[FL_RESIZE_QUAD_LANES] = {0};
        for (uint32_t k = 0; k < axis->taps; k++)
            for (int lane = 0; lane < FL_RESIZE_QUAD_LANES; lane++)
                sum[lane] =
                    (int16_t)(sum[lane] +
                              ((quad[k * FL_RESIZE_QUAD_LANES + lane] * coef[2 * k] + (1 << 14)) >> 15));
        for (int j = 0; j < 4; j++)
            for (int c = 0; c < 3; c++)
                dst[j][3 * i + c] =
                    (uint8_t)((sum[4 * j + c] + (1 << (FL_RESIZE_QUAD_BITS - 1))) >> FL_RESIZE_QUAD_BITS);
    }
}

static void long_row(const fl_resize_axis *axis, fl_resize_row_form form, const uint8_t *src, int16_t *dst) {
    const int shift = axis->bits - form.bits;
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
        *dst++ = (int16_t)clip(red >> shift, form.low, form.high);
        *dst++ = (int16_t)clip(green >> shift, form.low, form.high);
        *dst++ = (int16_t)clip(blue >> shift, form.low, form.high);
    }
}

static void long_across(const fl_resize_axis *axis, fl_resize_row_form form, const uint8_t *const src[2],
                        int16_t *const dst[2]) {
    long_row(axis, form, src[0], dst[0]);
    if (dst[1] != dst[0]) long_row(axis, form, src[1], dst[1]);
}

static void long_down(const fl_resize_axis *axis, fl_resize_row_form form, const int16_t *coef,
                      const int16_t *const *rows, uint8_t *dst, size_t n) {
    const int shift = axis->bits + form.bits;
    int32_t sum[CHUNK];
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t m = n - at < CHUNK ? n - at : CHUNK;
        for (size_t i = 0; i < m; i++) sum[i] = 1 << (shift - 1);
        for (uint32_t k = 0; k < axis->taps; k++) {
            const int16_t *row = rows[k] + at;
            const int32_t c = coef[k];
            for (size_t i = 0; i < m; i++) sum[i] += row[i] * c;
        }
        for (size_t i = 0; i < m; i++) dst[at + i] = (uint8_t)clip(sum[i] >> shift, 0, 255);
    }
}

static void mirror(const uint8_t *rgb, uint8_t *dst, size_t n) {
    for (const uint8_t *pixel = rgb + 3 * n; pixel != rgb; dst += 3) {
        pixel -= 3;
        dst[0] = pixel[0];
        dst[1] = pixel[1];
        dst[2] = pixel[2];
    }
}

static void split(const uint8_t *rgb, uint8_t *const plane[3], size_t n) {
    uint8_t *restrict red = plane[0], *restrict green = plane[1],
                      *restrict blue = plane[2]; /* planes of one image */
    for (size_t i = 0; i < n; i++) {
        red[i] = rgb[3 * i];
        green[i] = rgb[3 * i + 1];
        blue[i] = rgb[3 * i + 2];
    }
}

static void halve(const uint8_t *top, const uint8_t *bottom, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++, top += 6, bottom += 6, dst += 3)
        for (size_t c = 0; c < 3; c++)
            dst[c] = (uint8_t)((top[c] + top[c + 3] + bottom[c] + bottom[c + 3] + 2) >> 2);
}

const fl_resize_kernels fl_resize_kernels_scalar = {quad_down, quad_across, long_across, long_down,
                                                    mirror,    split,       halve};
