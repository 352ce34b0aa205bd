#include "resize/sink.h"

#include <string.h>

#include "common/cpu.h"
#include "resize/axis.h"
#include "resize/kernels_avx2.h"
#include "resize/kernels_scalar.h"

/* Table look-ups for one element type: n RGB pixels, interleaved or into planes `plane` elements apart. */
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
        for (int c = 0; c < 3; c++, rgb++, lut += 256, dst += plane)                                         \
            for (size_t i = 0; i < n; i++) dst[i] = lut[rgb[3 * i]];                                         \
    }                                                                                                        \
    static void NAME##_grey(const uint8_t *grey, const TYPE *lut, TYPE *restrict dst, size_t n) {            \
        for (size_t i = 0; i < n; i++) dst[i] = lut[grey[i]];                                                \
    }
LOOK_UP(word, uint32_t)
LOOK_UP(half, uint16_t)
#undef LOOK_UP

static size_t element_size(fl_dtype dtype) { return dtype == FL_F32 ? 4 : dtype == FL_U8 ? 1 : 2; }

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

/* The first value of column x and line y of an image in patches, of channel 0 and frame 0. */
static size_t patch_place(const fl_sink *sink, size_t x, size_t y) {
    const fl_patches *p = &sink->patches;
    const size_t side = p->side, merge = p->merge, column = x / side, line = y / side;
    const size_t group = line / merge * (sink->width / (side * merge)) + column / merge;
    const size_t patch = (group * merge + line % merge) * merge + column % merge;
    return patch * 3 * p->frames * side * side + y % side * side + x % side;
}

/* n values of one channel in the sink's type, where that is none of bytes. */
static void convert_channel(const fl_resize_rows *rows, int channel, const uint8_t *values, void *to,
                            size_t n) {
    const fl_sink *sink = rows->sink;
    if (rows->half) fl_resize_half_ramp_plane(rows->half, channel, values, to, n);
    else if (rows->ramp) fl_resize_ramp_plane(rows->ramp, channel, values, to, n);
    else if (sink->dtype == FL_F32) word_grey(values, (const uint32_t *)sink->lut + 256 * channel, to, n);
    else half_grey(values, (const uint16_t *)sink->lut + 256 * channel, to, n);
}

/* Copies few bytes: a call of memcpy takes longer than that. */
static inline void copy_run(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    enum { STEP = 16 };
    if (size < STEP) {
        memcpy(to, from, size);
        return;
    }
    for (size_t i = 0; i + STEP < size; i += STEP) memcpy(to + i, from + i, STEP);
    memcpy(to + size - STEP, from + size - STEP, STEP);
}

/* Where the next pixel of a line goes in an image in patches: its first value, the pixels of its patch before it, and
 * the patches of its group before that. */
typedef struct patch_cursor {
    size_t place, within, column;
} patch_cursor;

/* The values of m pixels of a line, of each channel, to a cursor, which moves on. */
static void scatter(const fl_sink *sink, const uint8_t *const channels[3], size_t m, patch_cursor *at) {
    const fl_patches *p = &sink->patches;
    const size_t side = p->side, size = element_size(sink->dtype), square = side * side * size;
    const size_t patch = 3 * p->frames * side * side;
    for (size_t from = 0, run; from < m; from += run) {
        run = side - at->within < m - from ? side - at->within : m - from;
        uint8_t *to = (uint8_t *)sink->data + at->place * size;
        for (int c = 0; c < 3; c++)
            for (uint32_t f = 0; f < p->frames; f++, to += square)
                copy_run(to, channels[c] + from * size, run * size);
        at->within += run, at->place += run;
        if (at->within < side) continue;
        at->place += patch - side, at->within = 0;
        if (++at->column < p->merge) continue;
        at->place += patch * p->merge * (p->merge - 1), at->column = 0;
    }
}

/* n RGB pixels of a line into patches; `at` is the first pixel's place in an image of lines. */
static void store_patches(const fl_resize_rows *rows, size_t at, const uint8_t *rgb, size_t n) {
    enum { PIXELS = 1024 };
    const fl_sink *sink = rows->sink;
    const size_t x = at % sink->width, side = sink->patches.side;
    patch_cursor cursor = {patch_place(sink, x, at / sink->width), x % side, x / side % sink->patches.merge};
    uint8_t bytes[3][PIXELS];
    float values[3][PIXELS]; /* or values of two bytes */
    const bool plain = sink->dtype == FL_U8;
    const uint8_t *channels[3];
    for (int c = 0; c < 3; c++) channels[c] = plain ? bytes[c] : (const uint8_t *)values[c];
    for (size_t i = 0; i < n; i += PIXELS) {
        const size_t m = n - i < PIXELS ? n - i : PIXELS;
        rows->kernels->split(rgb + 3 * i, (uint8_t *const[3]){bytes[0], bytes[1], bytes[2]}, m);
        for (int c = 0; c < 3 && !plain; c++) convert_channel(rows, c, bytes[c], values[c], m);
        scatter(sink, channels, m, &cursor);
    }
}

/* n RGB pixels into the sink's type and layout; `at` is the first pixel's place in a plane. */
static void store_rgb(const fl_resize_rows *rows, size_t at, const uint8_t *rgb, size_t n) {
    const fl_sink *sink = rows->sink;
    const size_t plane = fl_sink_plane(sink);
    if (sink->layout == FL_PATCHES) {
        store_patches(rows, at, rgb, n);
    } else if (sink->dtype == FL_U8) {
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

fl_code fl_resize_rows_start(fl_resize_rows *rows, const fl_sink *sink, uint32_t at_x, uint32_t at_y,
                             uint32_t n, fl_resize_ramps *ramps, fl_buffer line[FL_RESIZE_LINES],
                             fl_error *err) {
    const bool grey = sink->channels == 1;
    *rows = (fl_resize_rows){.sink = sink, .line = line, .y = at_y, .n = n};
    rows->kernels = fl_cpu_has(FL_CPU_AVX2) ? fl_resize_kernels_avx2() : &fl_resize_kernels_scalar;
    rows->x = sink->hflip ? sink->width - at_x - n : at_x;
    rows->in_place = sink->dtype == FL_U8 && (grey || sink->layout == FL_HWC);
    if (sink->dtype == FL_F32 && !grey) rows->ramp = fl_resize_ramp_of(&ramps->whole, sink->lut);
    if ((sink->dtype == FL_F16 || sink->dtype == FL_BF16) && !grey)
        rows->half = fl_resize_half_ramp_of(&ramps->half, sink->lut, sink->dtype);
    fl_code code = FL_OK;
    for (int i = 0; i < FL_RESIZE_LINES && !code && !rows->in_place; i++)
        code = fl_resize_fit(&line[i], n, grey ? 1 : 3, err);
    return code;
}

/* The place of row i's first pixel in a plane of the sink. */
static size_t place_of(const fl_resize_rows *rows, uint32_t i) {
    const uint32_t y = rows->sink->vflip ? rows->sink->height - 1 - rows->y - i : rows->y + i;
    return y * fl_sink_pitch(rows->sink) + rows->x;
}

uint8_t *fl_resize_rows_at(const fl_resize_rows *rows, uint32_t i, int line) {
    if (!rows->in_place) return rows->line[line].bytes;
    return (uint8_t *)rows->sink->data + place_of(rows, i) * (rows->sink->channels == 1 ? 1 : 3);
}

void fl_resize_rows_store(const fl_resize_rows *rows, uint32_t i, const uint8_t *row) {
    if (rows->in_place && row == fl_resize_rows_at(rows, i, 0)) return;
    if (rows->sink->channels == 1) store_grey(rows->sink, place_of(rows, i), row, rows->n);
    else store_rgb(rows, place_of(rows, i), row, rows->n);
}

enum { FILL_PIXELS = 64, UNIT_MAX = 3 * sizeof(float) };

/* One colour as the sink stores it: FILL_PIXELS pixels, or as many values of each plane. */
typedef struct filling {
    size_t planes, unit; /* bytes of a pixel in a plane */
    uint8_t line[3][FILL_PIXELS * UNIT_MAX];
} filling;

static void make_filling(const fl_sink *sink, const uint8_t rgb[3], filling *f) {
    const size_t size = element_size(sink->dtype);
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
