/* The last step of a row: from RGB bytes to the sink's type and layout. */
#include <string.h>

#include "fl_resize_rows.h"

/* Table look-ups for one element type: n RGB pixels, interleaved or into planes `plane` elements apart. */
#define LOOK_UP(NAME, TYPE)                                                                                                                \
    static void NAME##_interleaved(const uint8_t *rgb, const TYPE *lut, TYPE *restrict dst, size_t n) {                                    \
        const TYPE *red = lut, *green = lut + 256, *blue = lut + 512;                                                                      \
        for (size_t i = 0; i < n; i++, rgb += 3, dst += 3) {                                                                               \
            dst[0] = red[rgb[0]];                                                                                                          \
            dst[1] = green[rgb[1]];                                                                                                        \
            dst[2] = blue[rgb[2]];                                                                                                         \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void NAME##_planar(const uint8_t *rgb, const TYPE *lut, TYPE *restrict dst, size_t plane, size_t n) {                           \
        for (int c = 0; c < 3; c++, rgb++, lut += 256, dst += plane)                                                                       \
            for (size_t i = 0; i < n; i++) dst[i] = lut[rgb[3 * i]];                                                                       \
    }
LOOK_UP(word, uint32_t)
LOOK_UP(half, uint16_t)
#undef LOOK_UP

static size_t element_size(fl_dtype dtype) { return dtype == FL_F32 ? 4 : dtype == FL_U8 ? 1 : 2; }

size_t fl_sink_bytes(fl_dtype dtype, uint32_t width, uint32_t height) { return (size_t)width * height * 3 * element_size(dtype); }

/* Planes of floats `plane` elements apart. */
static void ramp_planar(const fl_ramp *ramp, const fl_kernels *kernels, const uint8_t *rgb, float *dst, size_t plane, size_t n) {
    enum { PIXELS = 256 };
    uint8_t bytes[3][PIXELS];
    for (size_t i = 0; i < n; i += PIXELS) {
        const size_t m = n - i < PIXELS ? n - i : PIXELS;
        kernels->split(rgb + 3 * i, (uint8_t *const[3]){bytes[0], bytes[1], bytes[2]}, m);
        for (int c = 0; c < 3; c++) fl_ramp_plane(ramp, c, bytes[c], dst + (size_t)c * plane + i, m);
    }
}

void fl_sink_row(const fl_sink *sink, const fl_kernels *kernels, const fl_ramp *ramp, uint32_t x, uint32_t y, const uint8_t *rgb,
                 size_t n) {
    const size_t at = (size_t)y * sink->width + x, plane = (size_t)sink->width * sink->height;
    if (sink->dtype == FL_U8) {
        uint8_t *data = sink->data;
        if (sink->layout == FL_HWC) memcpy(data + 3 * at, rgb, 3 * n);
        else kernels->split(rgb, (uint8_t *const[3]){data + at, data + plane + at, data + 2 * plane + at}, n);
    } else if (ramp != NULL) {
        float *data = sink->data;
        if (sink->layout == FL_HWC) fl_ramp_interleaved(ramp, rgb, data + 3 * at, n);
        else ramp_planar(ramp, kernels, rgb, data + at, plane, n);
    } else if (sink->dtype == FL_F32) {
        uint32_t *data = sink->data; /* the bits of a float: copied, never calculated with */
        if (sink->layout == FL_HWC) word_interleaved(rgb, sink->lut, data + 3 * at, n);
        else word_planar(rgb, sink->lut, data + at, plane, n);
    } else {
        uint16_t *data = sink->data;
        if (sink->layout == FL_HWC) half_interleaved(rgb, sink->lut, data + 3 * at, n);
        else half_planar(rgb, sink->lut, data + at, plane, n);
    }
}

void fl_sink_fill(const fl_sink *sink, const uint8_t rgb[3]) {
    enum { PIXELS = 64 };
    uint8_t line[3 * PIXELS];
    for (int i = 0; i < 3 * PIXELS; i++) line[i] = rgb[i % 3];
    for (uint32_t y = 0; y < sink->height; y++)
        for (uint32_t x = 0; x < sink->width; x += PIXELS)
            fl_sink_row(sink, &fl_kernels_scalar, NULL, x, y, line, sink->width - x < PIXELS ? sink->width - x : PIXELS);
}
