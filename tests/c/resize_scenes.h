/* Random resizes, and properties that hold for every box, window, filter, flip, layout and dtype; for
 * test_resize.c and a fuzz target. */
#ifndef RESIZE_SCENES_H
#define RESIZE_SCENES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draws.h"
#include "common/cpu.h"
#include "resize/halve.h"
#include "resize/resize.h"
#include "resize/sink.h"

static uint64_t check_seed;

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: seed %llu: %s: ", __FILE__, __LINE__, (unsigned long long)check_seed,    \
                    #condition);                                                                             \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static void *allocate(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    CHECK(block != NULL, "%zu bytes", bytes);
    return block;
}

typedef struct scene {
    fl_view view;
    fl_resize_spec spec;
    fl_sink sink;
    uint8_t *pixels, *lut;
    size_t bytes; /* of the sink */
} scene;

static size_t element(fl_dtype dtype) { return dtype == FL_F32 ? 4 : dtype == FL_U8 ? 1 : 2; }

/* A view that is allocated to its last readable byte, so that AddressSanitizer sees any read beyond it. */
static void make_view(scene *s, uint32_t width, uint32_t height) {
    const size_t stride = (size_t)width * 3 + (between(0, 2) == 0 ? between(1, 40) : 0);
    const size_t tail = between(0, 1) ? 64 : between(0, 20),
                 size = stride * (height - 1) + (size_t)width * 3 + tail;
    s->pixels = allocate(size);
    for (size_t i = 0; i < size; i++) s->pixels[i] = (uint8_t)noise();
    s->view =
        (fl_view){.pixels = s->pixels, .stride = stride, .width = width, .height = height, .tail = tail};
}

static void make_spec(scene *s, uint32_t out_width, uint32_t out_height) {
    fl_resize_spec *spec = &s->spec;
    const double w = s->view.width, h = s->view.height;
    memset(spec, 0, sizeof *spec);
    switch (between(0, 2)) {
    case 0:
        spec->width = w;
        spec->height = h;
        break;
    case 1: /* whole pixels */
        spec->width = between(1, s->view.width);
        spec->height = between(1, s->view.height);
        spec->x = between(0, s->view.width - (uint32_t)spec->width);
        spec->y = between(0, s->view.height - (uint32_t)spec->height);
        break;
    default:
        spec->width = w * (0.02 + 0.98 * unit());
        spec->height = h * (0.02 + 0.98 * unit());
        spec->x = (w - spec->width) * unit();
        spec->y = (h - spec->height) * unit();
    }
    spec->out_width = out_width;
    spec->out_height = out_height;
    spec->window = (fl_box){0, 0, out_width, out_height};
    spec->filter = between(0, 1) ? FL_RESIZE_BICUBIC : FL_RESIZE_BILINEAR;
    spec->antialias = between(0, 2) != 0;
}

/* A table as ToFloat and Normalize make it, step by step in float32: values that may be calculated instead of
 * looked up. */
static void make_ramp(float *table) {
    for (int c = 0; c < 3; c++) {
        const float mean = (float)unit(), std = (float)(0.05 + unit());
        for (int i = 0; i < 256; i++) *table++ = ((float)i / 255.0f - mean) / std;
    }
}

static void make_sink(scene *s, fl_dtype dtype, fl_layout layout, uint32_t width, uint32_t height) {
    s->lut = dtype == FL_U8 ? NULL : allocate(3 * 256 * element(dtype));
    for (size_t i = 0; s->lut != NULL && i < 3 * 256 * element(dtype); i++) s->lut[i] = (uint8_t)noise();
    if (dtype == FL_F32 && between(0, 1)) make_ramp((float *)(void *)s->lut);
    s->sink = (fl_sink){.width = width, .height = height, .dtype = dtype, .layout = layout, .lut = s->lut};
    s->bytes = fl_sink_plane(&s->sink) * 3 * element(dtype);
    s->sink.data = allocate(s->bytes);
    memset(s->sink.data, 0xA5, s->bytes);
}

/* Lays the sink into a larger frame, now and then. */
static void frame_sink(scene *s) {
    if (between(0, 1)) return;
    free(s->sink.data);
    s->sink.pitch = s->sink.width + between(0, 9);
    s->sink.plane = (size_t)s->sink.pitch * (s->sink.height + between(0, 3));
    s->bytes = s->sink.plane * 3 * element(s->sink.dtype);
    s->sink.data = allocate(s->bytes);
    memset(s->sink.data, 0xA5, s->bytes);
}

/* Makes the sink one of patches, as large as it was at least. */
static void patch_sink(scene *s) {
    const fl_patches patches = {between(1, 9), between(1, 3), between(1, 3)};
    const uint32_t by = patches.side * patches.merge;
    free(s->sink.data);
    s->sink.layout = FL_PATCHES, s->sink.patches = patches;
    s->sink.width = (s->sink.width + by - 1) / by * by, s->sink.height = (s->sink.height + by - 1) / by * by;
    s->bytes = (size_t)s->sink.width * s->sink.height * 3 * patches.frames * element(s->sink.dtype);
    s->sink.data = allocate(s->bytes);
    memset(s->sink.data, 0xA5, s->bytes);
}

static void free_scene(scene *s) {
    free(s->pixels);
    free(s->lut);
    free(s->sink.data);
}

/* The byte offset in the sink of channel c of the pixel stored at (x, y). */
static size_t offset(const fl_sink *sink, uint32_t x, uint32_t y, uint32_t c) {
    if (sink->layout == FL_PATCHES) {
        const uint32_t side = sink->patches.side, merge = sink->patches.merge, by = side * merge;
        size_t group = (size_t)(y / by) * (sink->width / by) + x / by;
        const size_t patch = (group * merge + y % by / side) * merge + x % by / side;
        return element(sink->dtype) *
               (((patch * 3 + c) * sink->patches.frames * side + y % side) * side + x % side);
    }
    const size_t pixel = y * fl_sink_pitch(sink) + x, plane = fl_sink_plane(sink);
    return element(sink->dtype) * (sink->layout == FL_HWC ? 3 * pixel + c : c * plane + pixel);
}

static fl_resizer *resizer; /* one for all cases: what it keeps between images must not show */

/* From here on only plain C, or again all that the CPU has. */
static void use_plain(bool plain) { CHECK(fl_cpu_use(plain ? "plain" : NULL, NULL) == FL_OK, "fl_cpu_use"); }

static void resize(const scene *s) {
    fl_error err;
    const fl_code code = fl_resize(resizer, &s->view, &s->spec, &s->sink, &err);
    CHECK(code == FL_OK, "%s", err.text);
}

/* The whole output as bytes, HWC, not mirrored, from the scalar path of a fresh resizer: what every other way
 * is held to. */
static uint8_t *reference(const scene *s) {
    fl_resize_spec spec = s->spec;
    spec.window = (fl_box){0, 0, spec.out_width, spec.out_height};
    spec.at_x = spec.at_y = 0;
    uint8_t *out = allocate((size_t)spec.out_width * spec.out_height * 3);
    const fl_sink sink = {
        .data = out, .width = spec.out_width, .height = spec.out_height, .dtype = FL_U8, .layout = FL_HWC};
    fl_resizer *fresh;
    fl_error err;
    CHECK(fl_resizer_create(&fresh, &err) == FL_OK, "%s", err.text);
    use_plain(true);
    const fl_code code = fl_resize(fresh, &s->view, &spec, &sink, &err);
    CHECK(code == FL_OK, "%s", err.text);
    use_plain(false);
    fl_resizer_free(fresh);
    return out;
}

/* Window, place, flips, layout, dtype and dispatch change where and as what a pixel is stored, never its
 * value, and touch nothing outside the window. */
static void test_every_way_equals_the_reference(void) {
    scene s;
    make_view(&s, between(1, 70), between(1, 70));
    make_spec(&s, between(1, 70), between(1, 70));
    const fl_resize_spec whole = s.spec;
    fl_box *window = &s.spec.window;
    if (between(0, 3) != 0) {
        window->width = between(1, whole.out_width);
        window->height = between(1, whole.out_height);
        window->x = between(0, whole.out_width - window->width);
        window->y = between(0, whole.out_height - window->height);
    }
    s.spec.at_x = between(0, 5);
    s.spec.at_y = between(0, 5);
    make_sink(&s, (fl_dtype)between(0, 3), (fl_layout)between(0, 1),
              s.spec.at_x + window->width + between(0, 5), s.spec.at_y + window->height + between(0, 5));
    frame_sink(&s);
    if (!s.sink.pitch && between(0, 1)) patch_sink(&s);
    s.sink.hflip = between(0, 1);
    s.sink.vflip = between(0, 1);
    uint8_t *expected = reference(&s);
    uint8_t *want = allocate(s.bytes), *best = allocate(s.bytes);
    memset(want, 0xA5, s.bytes);
    for (uint32_t y = 0; y < window->height; y++)
        for (uint32_t x = 0; x < window->width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                const uint8_t value =
                    expected[((size_t)(window->y + y) * whole.out_width + window->x + x) * 3 + c];
                const uint32_t to_x = s.spec.at_x + x, to_y = s.spec.at_y + y;
                const size_t at = offset(&s.sink, s.sink.hflip ? s.sink.width - 1 - to_x : to_x,
                                         s.sink.vflip ? s.sink.height - 1 - to_y : to_y, c);
                const size_t size = element(s.sink.dtype);
                const uint32_t frames = s.sink.layout == FL_PATCHES ? s.sink.patches.frames : 1;
                for (uint32_t f = 0; f < frames; f++)
                    memcpy(want + at + f * s.sink.patches.side * s.sink.patches.side * size,
                           s.lut == NULL ? &value : s.lut + (c * 256 + value) * size, size);
            }
    resize(&s);
    memcpy(best, s.sink.data, s.bytes);
    memset(s.sink.data, 0xA5, s.bytes);
    use_plain(true);
    resize(&s);
    use_plain(false);
    CHECK(memcmp(s.sink.data, want, s.bytes) == 0, "the scalar path");
    CHECK(memcmp(best, want, s.bytes) == 0, "the CPU's kernels do not give the scalar path's bytes");
    free(expected);
    free(want);
    free(best);
    free_scene(&s);
}

static void test_a_constant_image_stays_constant(void) {
    scene s;
    const bool long_side = between(0, 9) == 0; /* filters of hundreds of taps */
    make_view(&s, long_side ? between(500, 2000) : between(1, 200), between(1, 200));
    make_spec(&s, between(1, 40), between(1, 40));
    make_sink(&s, FL_U8, FL_HWC, s.spec.out_width, s.spec.out_height);
    uint8_t rgb[3];
    for (int c = 0; c < 3; c++) rgb[c] = between(0, 3) == 0 ? 255 : (uint8_t)noise();
    for (uint32_t y = 0; y < s.view.height; y++)
        for (uint32_t x = 0; x < s.view.width; x++)
            memcpy(s.pixels + y * s.view.stride + 3 * (size_t)x, rgb, 3);
    resize(&s);
    const uint8_t *out = s.sink.data;
    for (size_t i = 0; i < s.bytes; i++)
        CHECK(out[i] == rgb[i % 3], "byte %zu is %d, not %d", i, out[i], rgb[i % 3]);
    free_scene(&s);
}

static void test_a_box_of_the_output_size_is_copied(void) {
    scene s;
    make_view(&s, between(1, 70), between(1, 70));
    const uint32_t width = between(1, s.view.width), height = between(1, s.view.height);
    make_spec(&s, width, height);
    const uint32_t x = between(0, s.view.width - width), y = between(0, s.view.height - height);
    s.spec.x = x;
    s.spec.y = y;
    s.spec.width = width;
    s.spec.height = height;
    make_sink(&s, FL_U8, FL_HWC, width, height);
    s.sink.hflip = between(0, 1);
    resize(&s);
    for (uint32_t j = 0; j < height; j++)
        for (uint32_t i = 0; i < width; i++) {
            const uint8_t *from = s.pixels + (y + j) * s.view.stride + 3 * (size_t)(x + i);
            const uint8_t *to =
                (uint8_t *)s.sink.data + offset(&s.sink, s.sink.hflip ? width - 1 - i : i, j, 0);
            CHECK(memcmp(from, to, 3) == 0, "pixel (%u, %u)", i, j);
        }
    free_scene(&s);
}

/* A view that has only the pixels which a window's taps need gives that window as the whole view does. */
static void test_a_part_of_the_view_is_enough_for_a_window(void) {
    scene s;
    make_view(&s, between(1, 90), between(1, 90));
    make_spec(&s, between(1, 60), between(1, 60));
    fl_box *window = &s.spec.window;
    window->width = between(1, s.spec.out_width);
    window->height = between(1, s.spec.out_height);
    window->x = between(0, s.spec.out_width - window->width);
    window->y = between(0, s.spec.out_height - window->height);
    make_sink(&s, FL_U8, FL_HWC, window->width, window->height);
    resize(&s);
    uint8_t *want = allocate(s.bytes);
    memcpy(want, s.sink.data, s.bytes);
    memset(s.sink.data, 0xA5, s.bytes);

    const double start[2] = {s.spec.x, s.spec.y}, size[2] = {s.view.width, s.view.height};
    const double begin[2] = {window->x, window->y}, count[2] = {window->width, window->height};
    const double scale[2] = {s.spec.width / s.spec.out_width, s.spec.height / s.spec.out_height};
    double low[2], high[2];
    for (int a = 0; a < 2; a++) {
        const double reach = 2.0 * (scale[a] > 1.0 ? scale[a] : 1.0) + 1.0;
        low[a] = fmax(0.0, floor(start[a] + begin[a] * scale[a] - reach));
        high[a] = fmin(size[a], ceil(start[a] + (begin[a] + count[a]) * scale[a] + reach));
    }
    s.view.pixels += (size_t)low[1] * s.view.stride + (size_t)low[0] * 3;
    s.view.tail = 0;
    s.view.width = (uint32_t)(high[0] - low[0]);
    s.view.height = (uint32_t)(high[1] - low[1]);
    s.spec.x -= low[0];
    s.spec.y -= low[1];
    resize(&s);
    CHECK(memcmp(want, s.sink.data, s.bytes) == 0, "the window of a part");
    free(want);
    free_scene(&s);
}

/* The exact value, by the filters' definition, in one go and without rounding in between. Antialiased bicubic
 * is left out: it clips between the passes, which the comparison with Pillow holds it to. */
static double exact(const scene *s, uint32_t out_x, uint32_t out_y, uint32_t c) {
    const fl_resize_spec *spec = &s->spec;
    double *weights[2];
    const uint32_t size[2] = {s->view.width, s->view.height}, out[2] = {out_x, out_y};
    const double start[2] = {spec->x, spec->y},
                 scale[2] = {spec->width / spec->out_width, spec->height / spec->out_height};
    for (int a = 0; a < 2; a++) {
        weights[a] = allocate(size[a] * sizeof(double));
        for (uint32_t k = 0; k < size[a]; k++) weights[a][k] = 0.0;
        const double center = start[a] + (out[a] + 0.5) * scale[a],
                     stretch = spec->antialias && scale[a] > 1.0 ? scale[a] : 1.0;
        double sum = 0.0;
        for (int64_t k = -4; k < (int64_t)size[a] + 4; k++) {
            const double x = fabs((double)k + 0.5 - center) / stretch, q = -0.75;
            double w = x < 1.0 ? 1.0 - x : 0.0;
            if (spec->filter == FL_RESIZE_BICUBIC)
                w = x < 1.0   ? (q + 2) * x * x * x - (q + 3) * x * x + 1
                    : x < 2.0 ? q * x * x * x - 5 * q * x * x + 8 * q * x - 4 * q
                              : 0.0;
            const bool in = k >= 0 && k < (int64_t)size[a];
            if (!in && spec->antialias) continue;
            weights[a][in ? k : k < 0 ? 0 : size[a] - 1] += w;
            sum += w;
        }
        for (uint32_t k = 0; k < size[a]; k++) weights[a][k] /= sum;
    }
    double value = 0.0;
    for (uint32_t j = 0; j < size[1]; j++)
        for (uint32_t i = 0; weights[1][j] != 0.0 && i < size[0]; i++)
            value += weights[1][j] * weights[0][i] * s->pixels[j * s->view.stride + 3 * (size_t)i + c];
    free(weights[0]);
    free(weights[1]);
    return value < 0.0 ? 0.0 : value > 255.0 ? 255.0 : value;
}

static void test_within_one_of_the_definition(void) {
    scene s;
    make_view(&s, between(1, 70), between(1, 70));
    make_spec(&s, between(1, 70), between(1, 70));
    if (s.spec.filter == FL_RESIZE_BICUBIC) s.spec.antialias = false;
    make_sink(&s, FL_U8, FL_HWC, s.spec.out_width, s.spec.out_height);
    resize(&s);
    for (int i = 0; i < 20; i++) {
        const uint32_t x = between(0, s.spec.out_width - 1), y = between(0, s.spec.out_height - 1),
                       c = between(0, 2);
        const double wanted = exact(&s, x, y, c);
        const int got = ((uint8_t *)s.sink.data)[offset(&s.sink, x, y, c)];
        CHECK(fabs(got - wanted) <= 0.8, "(%u, %u) is %d, not %g", x, y, got,
              wanted); /* see resize/parts.h: one rounding */
    }
    free_scene(&s);
}

/* Everywhere but in the box that it leaves alone, where that is after the flips. */
static void test_fill_is_the_colour_around_the_box(void) {
    scene s;
    make_view(&s, 1, 1);
    make_sink(&s, (fl_dtype)between(0, 3), (fl_layout)between(0, 1), between(1, 150), between(1, 5));
    frame_sink(&s);
    const uint8_t rgb[3] = {(uint8_t)noise(), (uint8_t)noise(), (uint8_t)noise()};
    s.sink.hflip = between(0, 1), s.sink.vflip = between(0, 1);
    fl_box keep = {between(0, s.sink.width), between(0, s.sink.height), 0, 0};
    keep.width = between(0, s.sink.width - keep.x), keep.height = between(0, s.sink.height - keep.y);
    const size_t size = element(s.sink.dtype);
    uint8_t before[8];
    memset(before, 0xA5, sizeof before);
    fl_resize_sink_fill(&s.sink, &keep, rgb);
    size_t left = 0, filled = 0;
    for (size_t i = 0; i < s.bytes; i++) left += ((uint8_t *)s.sink.data)[i] == 0xA5;
    for (uint32_t y = 0; y < s.sink.height; y++)
        for (uint32_t x = 0; x < s.sink.width; x++) {
            const bool kept = x - keep.x < keep.width && y - keep.y < keep.height;
            const uint32_t at_x = s.sink.hflip ? s.sink.width - 1 - x : x,
                           at_y = s.sink.vflip ? s.sink.height - 1 - y : y;
            for (uint32_t c = 0; c < 3; c++) {
                const void *want = kept            ? (const void *)before
                                   : s.lut == NULL ? &rgb[c]
                                                   : s.lut + (c * 256 + rgb[c]) * size;
                const uint8_t *got = (uint8_t *)s.sink.data + offset(&s.sink, at_x, at_y, c);
                CHECK(memcmp(got, want, size) == 0, "(%u, %u)", x, y);
                for (size_t i = 0; i < size; i++) filled += got[i] != 0xA5;
            }
        }
    CHECK(left + filled == s.bytes, "a byte beyond the sink was written");
    free_scene(&s);
}

/* A half has the means of 2 x 2 pixels, or of those that there are, by the CPU's kernels and in plain C; the
 * view is allocated to its last byte. */
static void test_a_half_is_means(void) {
    scene s;
    make_view(&s, between(1, 70), between(1, 9));
    fl_buffer room[2] = {{NULL, 0}, {NULL, 0}};
    for (int plain = 0; plain < 2; plain++) {
        fl_view half;
        fl_error err;
        use_plain(plain);
        CHECK(fl_resize_halve(&s.view, &room[plain], &half, &err) == FL_OK, "%s", err.text);
        CHECK(half.width == (s.view.width + 1) / 2 && half.height == (s.view.height + 1) / 2, "%u x %u",
              half.width, half.height);
        for (uint32_t y = 0; y < half.height; y++)
            for (uint32_t x = 0; x < half.width; x++)
                for (uint32_t c = 0; c < 3; c++) {
                    uint32_t sum = 0, count = 0;
                    for (uint32_t j = 2 * y; j < 2 * y + 2 && j < s.view.height; j++)
                        for (uint32_t i = 2 * x; i < 2 * x + 2 && i < s.view.width; i++, count++)
                            sum += s.pixels[j * s.view.stride + 3 * (size_t)i + c];
                    const uint8_t got = half.pixels[y * half.stride + 3 * (size_t)x + c];
                    CHECK(got == (sum + count / 2) / count, "(%u, %u) is %d, not %u / %u", x, y, got, sum,
                          count);
                }
    }
    use_plain(false);
    for (int i = 0; i < 2; i++) fl_buffer_free(&room[i]);
    free(s.pixels);
}

typedef void (*resize_property)(void);
static const resize_property resize_properties[] = {
    test_every_way_equals_the_reference,
    test_a_constant_image_stays_constant,
    test_a_box_of_the_output_size_is_copied,
    test_a_part_of_the_view_is_enough_for_a_window,
    test_within_one_of_the_definition,
    test_fill_is_the_colour_around_the_box,
    test_a_half_is_means,
};
enum { RESIZE_PROPERTIES = sizeof resize_properties / sizeof *resize_properties };

#endif
