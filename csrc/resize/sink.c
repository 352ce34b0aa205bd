#include "resize/sink.h"

#include <string.h>

#include "common/cpu.h"
#include "resize/axis.h"
#include "resize/kernels_avx2.h"
#include "resize/kernels_scalar.h"
#include "resize/patches.h"

/* Table look-ups for one element type: n RGB pixels, interleaved or into planes `plane` elements apart. A loop into a
 * plane takes twice as long where its code happens to lie badly; unrolled, it does not: 44 us for 224 x 224 pixels. */
#define LOOK_UP(NAME, TYPE)                                                                                  \
    static void NAME##_interleaved(const uint8_t *rgb, const TYPE *lut, TYPE *restrict dst, size_t n) {      \
        const TYPE *red = lut, *green = lut + 256, *blue = lut + 512;                                        \
        for (size_t i = 0; i < n; i++, rgb += 3, dst += 3) {                                                 \
            dst[0] = red[rgb[0]];                                                                            \
            dst[1] = green[rgb[1]];                                                                          \
            dst[2] = blue[rgb[2]];                                                                           \
        }                                                                                                    \
    }                                                                                                        \
    static void NAME##_planar(const uint8_t *rgb, const TYPE *lut, TYPE *restrict dst, size_t plane,         \
                              size_t n) {                                                                    \
        for (int c = 0; c < 3; c++, rgb++, lut += 256, dst += plane) {                                       \
            _Pragma("GCC unroll 4") for (size_t i = 0; i < n; i++) dst[i] = lut[rgb[3 * i]];                 \
        }                                                                                                    \
    }                                                                                                        \
    static void NAME##_grey(const uint8_t *grey, const TYPE *lut, TYPE *restrict dst, size_t n) {            \
        for (size_t i = 0; i < n; i++) dst[i] = lut[grey[i]];                                                \
    }
LOOK_UP(word, uint32_t)
LOOK_UP(half, uint16_t)
#undef LOOK_UP

/* Planes of floats of the sink, from place `at` on. */
static void ramp_planar(const fl_resize_rows *rows, size_t at, const uint8_t *rgb, size_t n) {
    enum { PIXELS = 256 };
    const size_t plane = fl_sink_plane(rows->sink);
    uint8_t bytes[3][PIXELS];
    for (size_t i = 0; i < n; i += PIXELS) {
        const size_t m = n - i < PIXELS ? n - i : PIXELS;
        rows->kernels->split(rgb + 3 * i, (uint8_t *const[3]){bytes[0], bytes[1], bytes[2]}, m);
        for (int c = 0; c < 3; c++) {
            const size_t place = (size_t)c * plane + at + i;
            if (rows->half)
                fl_resize_half_ramp_plane(rows->half, c, bytes[c], (uint16_t *)rows->sink->data + place, m);
            else fl_resize_ramp_plane(rows->ramp, c, bytes[c], (float *)rows->sink->data + place, m);
        }
    }
}

/* n pixels of one byte, at (x, y) of the stored image. */
static void store_grey(const fl_sink *sink, size_t at, const uint8_t *grey, size_t n) {
    if (sink->dtype == FL_U8) memcpy((uint8_t *)sink->data + at, grey, n);
    else if (sink->dtype == FL_F32) word_grey(grey, sink->lut, (uint32_t *)sink->data + at, n);
    else half_grey(grey, sink->lut, (uint16_t *)sink->data + at, n);
}

void fl_resize_rows_convert(const fl_resize_rows *rows, int channel, const uint8_t *values, void *to,
                            size_t n) {
    const fl_sink *sink = rows->sink;
    if (rows->half) fl_resize_half_ramp_plane(rows->half, channel, values, to, n);
    else if (rows->ramp) fl_resize_ramp_plane(rows->ramp, channel, values, to, n);
    else if (sink->dtype == FL_F32) word_grey(values, (const uint32_t *)sink->lut + 256 * channel, to, n);
    else half_grey(values, (const uint16_t *)sink->lut + 256 * channel, to, n);
}

/* n RGB pixels into the sink's type and layout; `at` is the first pixel's place in a plane. */
static void store_rgb(const fl_resize_rows *rows, size_t at, const uint8_t *rgb, size_t n) {
    const fl_sink *sink = rows->sink;
    const size_t plane = fl_sink_plane(sink);
    if (sink->dtype == FL_U8) {
        uint8_t *data = sink->data;
        if (sink->layout == FL_HWC) memcpy(data + 3 * at, rgb, 3 * n);
        else
            rows->kernels->split(rgb,
                                 (uint8_t *const[3]){data + at, data + plane + at, data + 2 * plane + at}, n);
    } else if (rows->ramp || rows->half) {
        if (sink->layout != FL_HWC) ramp_planar(rows, at, rgb, n);
        else if (rows->half)
            fl_resize_half_ramp_interleaved(rows->half, rgb, (uint16_t *)sink->data + 3 * at, n);
        else fl_resize_ramp_interleaved(rows->ramp, rgb, (float *)sink->data + 3 * at, n);
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

fl_code fl_resize_rows_start(fl_resize_rows *rows, const fl_sink *sink, const fl_box *window,
                             fl_resize_room *room, fl_error *err) {
    const bool grey = sink->channels == 1;
    *rows = (fl_resize_rows){
        .sink = sink, .room = room, .y = window->y, .n = window->width, .count = window->height};
    rows->kernels = fl_cpu_has(FL_CPU_AVX2) ? fl_resize_kernels_avx2() : &fl_resize_kernels_scalar;
    rows->x = sink->hflip ? sink->width - window->x - rows->n : window->x;
    rows->in_place = sink->dtype == FL_U8 && (grey || sink->layout == FL_HWC);
    if (sink->dtype == FL_F32 && !grey) rows->ramp = fl_resize_ramp_of(&room->whole, sink->lut);
    if ((sink->dtype == FL_F16 || sink->dtype == FL_BF16) && !grey)
        rows->half = fl_resize_half_ramp_of(&room->half, sink->lut, sink->dtype);
    fl_code code = sink->layout == FL_PATCHES ? fl_resize_patches_start(rows, err) : FL_OK;
    for (int i = 0; i < FL_RESIZE_LINES && !code && !rows->in_place; i++)
        code = fl_resize_fit(&room->line[i], rows->n, grey ? 1 : 3, err);
    return code;
}

void fl_resize_room_free(fl_resize_room *room) {
    for (int i = 0; i < FL_RESIZE_LINES; i++) fl_buffer_free(&room->line[i]);
    fl_buffer_free(&room->band);
}

uint32_t fl_resize_rows_y(const fl_resize_rows *rows, uint32_t i) {
    return rows->sink->vflip ? rows->sink->height - 1 - rows->y - i : rows->y + i;
}

/* The place of row i's first pixel in a plane of the sink. */
static size_t place_of(const fl_resize_rows *rows, uint32_t i) {
    return fl_resize_rows_y(rows, i) * fl_sink_pitch(rows->sink) + rows->x;
}

uint8_t *fl_resize_rows_at(const fl_resize_rows *rows, uint32_t i, int line) {
    if (!rows->in_place) return rows->room->line[line].bytes;
    return (uint8_t *)rows->sink->data + place_of(rows, i) * (rows->sink->channels == 1 ? 1 : 3);
}

void fl_resize_rows_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row) {
    if (rows->in_place && row == fl_resize_rows_at(rows, i, 0)) return;
    if (rows->sink->layout == FL_PATCHES) fl_resize_patches_store(rows, i, row);
    else if (rows->sink->channels == 1) store_grey(rows->sink, place_of(rows, i), row, rows->n);
    else store_rgb(rows, place_of(rows, i), row, rows->n);
}

enum { FILL_PIXELS = 64, UNIT_MAX = 3 * sizeof(float) };

/* One colour as the sink stores it: FILL_PIXELS pixels, or as many values of each plane. */
typedef struct filling {
    size_t planes, unit; /* bytes of a pixel in a plane */
    uint8_t line[3][FILL_PIXELS * UNIT_MAX];
} filling;

static void make_filling(const fl_sink *sink, const uint8_t rgb[3], filling *f) {
    const size_t size = fl_dtype_size(sink->dtype);
    uint8_t colour[UNIT_MAX];
    for (size_t c = 0; c < 3; c++)
        memcpy(colour + c * size,
               sink->dtype == FL_U8 ? rgb + c : (const uint8_t *)sink->lut + (256 * c + rgb[c]) * size, size);
    f->planes = sink->layout == FL_HWC ? 1 : 3;
    f->unit = 3 * size / f->planes;
    for (size_t p = 0; p < f->planes; p++) {
        memcpy(f->line[p], colour + p * f->unit, f->unit);
        for (size_t have = f->unit; have < FILL_PIXELS * f->unit; have *= 2)
            memcpy(f->line[p] + have, f->line[p], have);
    }
}

static void fill_run(const fl_sink *sink, const filling *f, uint32_t y, uint32_t from, uint32_t to) {
    const size_t plane = f->unit * fl_sink_plane(sink);
    for (uint32_t x = from; x < to; x += FILL_PIXELS) {
        const size_t n = to - x < FILL_PIXELS ? to - x : FILL_PIXELS;
        uint8_t *dst = (uint8_t *)sink->data + f->unit * (y * fl_sink_pitch(sink) + x);
        for (size_t p = 0; p < f->planes; p++, dst += plane) memcpy(dst, f->line[p], n * f->unit);
    }
}

void fl_resize_sink_fill(const fl_sink *sink, const fl_box *keep, const uint8_t rgb[3]) {
    filling f;
    make_filling(sink, rgb, &f);
    const uint32_t left = sink->hflip ? sink->width - keep->x - keep->width : keep->x;
    const uint32_t top = sink->vflip ? sink->height - keep->y - keep->height : keep->y;
    for (uint32_t y = 0; y < sink->height; y++) {
        const bool beside = y >= top && y - top < keep->height;
        fill_run(sink, &f, y, 0, beside ? left : sink->width);
        if (beside) fill_run(sink, &f, y, left + keep->width, sink->width);
    }
}
