/* fl_resize_planes: window, place, flips, layout and dtype change where and as what a value is stored, never
 * the value; constant pictures stay constant; boxes of the output's size are copied; filling touches what
 * lies around the box alone; what does not fit is refused. */
#include "resize/resize_planes.h"

#include <string.h>

#include "check.h"
#include "draws.h"

enum { ROUNDS = 3000 / THIN };

typedef struct scene {
    fl_view view;
    fl_resize_spec spec;
    fl_sink sink;
    uint8_t *pixels, *lut;
    size_t bytes; /* of the sink */
} scene;

static fl_resize_planes *planes; /* one for all cases: what it keeps must not show */

static void *allocate(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    CHECK(block);
    return block;
}

static size_t element(fl_dtype dtype) { return dtype == FL_U8 ? 1 : dtype == FL_F32 ? 4 : 2; }

/* Allocated to its last byte, so that AddressSanitizer sees any read beyond it. */
static void make_view(scene *s, uint32_t width, uint32_t height) {
    fl_view *v = &s->view;
    *v = (fl_view){.width = width,
                   .height = height,
                   .channels = (uint8_t)between(1, 4),
                   .depth = (uint8_t)between(1, 2)};
    v->stride = width * fl_view_pixel(v) + between(0, 1) * between(0, 9);
    const size_t size = v->stride * (height - 1) + width * fl_view_pixel(v);
    s->pixels = allocate(size);
    const bool extreme = below(3) == 0; /* makes bicubic overshoot */
    for (size_t i = 0; i < size; i++)
        s->pixels[i] = extreme ? (uint8_t)-(int)(noise() & 1) : (uint8_t)noise();
    v->pixels = s->pixels;
}

static void make_spec(scene *s, uint32_t out_width, uint32_t out_height) {
    const double w = s->view.width, h = s->view.height;
    s->spec = (fl_resize_spec){.width = w, .height = h, .out_width = out_width, .out_height = out_height};
    if (between(0, 1)) {
        s->spec.width = w * (0.02 + 0.98 * unit()), s->spec.height = h * (0.02 + 0.98 * unit());
        s->spec.x = (w - s->spec.width) * unit(), s->spec.y = (h - s->spec.height) * unit();
    }
    s->spec.window = (fl_box){0, 0, out_width, out_height};
    s->spec.filter = between(0, 1) ? FL_RESIZE_BICUBIC : FL_RESIZE_BILINEAR;
    s->spec.antialias = between(0, 2) != 0;
}

static void make_sink(scene *s, fl_dtype dtype, uint32_t width, uint32_t height) {
    const fl_view *v = &s->view;
    const bool floats = dtype != FL_U8 && dtype != FL_U16;
    const size_t table = v->channels * (v->depth == 1 ? 256u : 65536u) * element(dtype);
    s->lut = floats ? allocate(table) : NULL;
    for (size_t i = 0; i < table && floats; i++) s->lut[i] = (uint8_t)noise();
    s->sink = (fl_sink){.width = width,
                        .height = height,
                        .dtype = dtype,
                        .layout = (fl_layout)between(0, 1),
                        .lut = s->lut,
                        .hflip = between(0, 1),
                        .vflip = between(0, 1),
                        .channels = v->channels,
                        .depth = v->depth};
    s->bytes = (size_t)width * height * v->channels * element(dtype);
    s->sink.data = allocate(s->bytes);
    memset(s->sink.data, 0xA5, s->bytes);
}

static void free_scene(scene *s) { free(s->pixels), free(s->lut), free(s->sink.data); }

static fl_dtype own_type(const fl_view *v) { return v->depth == 1 ? FL_U8 : FL_U16; }

static fl_dtype any_type(const fl_view *v) {
    static const fl_dtype floats[3] = {FL_F32, FL_F16, FL_BF16};
    const uint32_t which = below(4);
    return which < 3 ? floats[which] : own_type(v);
}

/* Bytes of channel c of the pixel that is stored for (x, y) of the unmirrored sink. */
static uint8_t *stored(const scene *s, uint32_t x, uint32_t y, uint32_t c) {
    const fl_sink *k = &s->sink;
    const size_t at =
        (size_t)(k->vflip ? k->height - 1 - y : y) * k->width + (k->hflip ? k->width - 1 - x : x);
    const size_t plane = (size_t)k->width * k->height,
                 number = k->layout == FL_HWC ? k->channels * at + c : c * plane + at;
    return (uint8_t *)k->data + number * element(k->dtype);
}

/* Whether that is what a value becomes. */
static bool shows(const scene *s, const uint8_t *at, uint32_t c, uint16_t value) {
    const size_t levels = s->view.depth == 1 ? 256 : 65536, size = element(s->sink.dtype);
    const uint8_t byte = (uint8_t)value;
    const void *want = s->lut               ? s->lut + (c * levels + value) * size
                       : s->view.depth == 1 ? (const void *)&byte
                                            : (const void *)&value;
    return !memcmp(at, want, size);
}

static void run(const scene *s) {
    fl_error err;
    CHECK(fl_resize_planes_run(planes, &s->view, &s->spec, &s->sink, &err) == FL_OK);
}

static void check_every_way(void) {
    scene s, whole;
    make_view(&s, between(1, 50), between(1, 50));
    make_spec(&s, between(1, 50), between(1, 50));
    whole = s;
    make_sink(&whole, own_type(&s.view), s.spec.out_width, s.spec.out_height);
    whole.sink.hflip = whole.sink.vflip = false;
    run(&whole);
    fl_box *w = &s.spec.window;
    w->x = below(w->width), w->y = below(w->height);
    w->width = between(1, s.spec.out_width - w->x), w->height = between(1, s.spec.out_height - w->y);
    s.spec.at_x = below(4), s.spec.at_y = below(4);
    make_sink(&s, any_type(&s.view), s.spec.at_x + w->width + below(4), s.spec.at_y + w->height + below(4));
    run(&s);
    size_t left = 0, written = 0;
    for (size_t i = 0; i < s.bytes; i++) left += ((uint8_t *)s.sink.data)[i] == 0xA5;
    for (uint32_t y = 0; y < w->height; y++)
        for (uint32_t x = 0; x < w->width; x++)
            for (uint32_t c = 0; c < s.view.channels; c++) {
                const uint8_t *value = stored(&whole, w->x + x, w->y + y, c),
                              *got = stored(&s, s.spec.at_x + x, s.spec.at_y + y, c);
                CHECK(shows(&s, got, c, s.view.depth == 1 ? value[0] : (uint16_t)(value[0] | value[1] << 8)));
                for (size_t i = 0; i < element(s.sink.dtype); i++) written += got[i] != 0xA5;
            }
    CHECK(left + written == s.bytes); /* nothing outside of the window was touched */
    free(whole.sink.data), free(whole.lut), free_scene(&s);
}

static void check_constant(void) {
    scene s;
    make_view(&s, between(1, below(9) ? 60 : 1500), between(1, 60));
    make_spec(&s, between(1, 40), between(1, 40));
    make_sink(&s, own_type(&s.view), s.spec.out_width, s.spec.out_height);
    const size_t pixel = fl_view_pixel(&s.view);
    uint8_t colour[8];
    for (size_t i = 0; i < sizeof colour; i++) colour[i] = below(3) ? (uint8_t)noise() : 255;
    for (uint32_t y = 0; y < s.view.height; y++)
        for (uint32_t x = 0; x < s.view.width; x++)
            memcpy(s.pixels + y * s.view.stride + x * pixel, colour, pixel);
    run(&s);
    for (uint32_t y = 0; y < s.sink.height; y++)
        for (uint32_t x = 0; x < s.sink.width; x++)
            for (uint32_t c = 0; c < s.view.channels; c++)
                CHECK(!memcmp(stored(&s, x, y, c), colour + c * s.view.depth, s.view.depth));
    free_scene(&s);
}

static void check_copy(void) {
    scene s;
    make_view(&s, between(1, 50), between(1, 50));
    const uint32_t width = between(1, s.view.width), height = between(1, s.view.height);
    make_spec(&s, width, height);
    const uint32_t x0 = between(0, s.view.width - width), y0 = between(0, s.view.height - height);
    s.spec.x = x0, s.spec.y = y0, s.spec.width = width, s.spec.height = height;
    make_sink(&s, own_type(&s.view), width, height);
    run(&s);
    const size_t depth = s.view.depth;
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < s.view.channels; c++) {
                const uint8_t *from =
                    s.pixels + (y0 + y) * s.view.stride + (x0 + x) * fl_view_pixel(&s.view) + c * depth;
                CHECK(!memcmp(stored(&s, x, y, c), from, depth));
            }
    free_scene(&s);
}

static void check_fill(void) {
    scene s;
    make_view(&s, 1, 1);
    make_sink(&s, any_type(&s.view), between(1, 150), between(1, 5));
    uint16_t values[4];
    for (int c = 0; c < 4; c++) values[c] = (uint16_t)(noise() & (s.view.depth == 1 ? 0xFF : 0xFFFF));
    fl_box keep = {between(0, s.sink.width), between(0, s.sink.height), 0, 0};
    keep.width = between(0, s.sink.width - keep.x), keep.height = between(0, s.sink.height - keep.y);
    fl_resize_planes_fill(&s.sink, &keep, values);
    for (uint32_t y = 0; y < s.sink.height; y++)
        for (uint32_t x = 0; x < s.sink.width; x++)
            for (uint32_t c = 0; c < s.view.channels; c++) {
                const uint8_t *at = stored(&s, x, y, c), untouched[4] = {0xA5, 0xA5, 0xA5, 0xA5};
                const bool kept = x - keep.x < keep.width && y - keep.y < keep.height;
                CHECK(kept ? !memcmp(at, untouched, element(s.sink.dtype)) : shows(&s, at, c, values[c]));
            }
    free_scene(&s);
}

/* One thing wrong with a call that would be done: FL_EARG with a text, and nothing is written. */
static void check_refused(void) {
    for (int wrong = 0; wrong < 9; wrong++) {
        scene s;
        fl_error err = {FL_OK, 0, ""};
        make_view(&s, 8, 8);
        make_spec(&s, 5, 5);
        make_sink(&s, own_type(&s.view), 5, 5);
        switch (wrong) {
        case 0: s.sink.channels = (uint8_t)(s.view.channels % 4 + 1); break;
        case 1: s.sink.depth = (uint8_t)(3 - s.view.depth); break;
        case 2: s.sink.dtype = own_type(&s.view) == FL_U8 ? FL_U16 : FL_U8; break;
        case 3: s.view.channels = s.sink.channels = 5; break;
        case 4: s.view.channels = s.sink.channels = s.view.depth = s.sink.depth = 0; break;
        case 5: s.sink.dtype = FL_F32; break; /* without a table */
        case 6: s.spec.at_x = 1; break;
        case 7: s.spec.width = 9; break;
        default: s.view.stride = s.view.width * fl_view_pixel(&s.view) - 1;
        }
        CHECK(fl_resize_planes_run(planes, &s.view, &s.spec, &s.sink, &err) == FL_EARG && err.text[0]);
        for (size_t i = 0; i < s.bytes; i++) CHECK(((uint8_t *)s.sink.data)[i] == 0xA5);
        free_scene(&s);
    }
}

int main(void) {
    fl_error err;
    CHECK(fl_resize_planes_create(&planes, &err) == FL_OK);
    for (check_seed = 1; check_seed <= ROUNDS; check_seed++) {
        noise_state = check_seed * 0x9E3779B97F4A7C15u;
        check_every_way(), check_constant(), check_copy(), check_fill();
    }
    check_refused();
    fl_resize_planes_free(planes);
    puts("resize_planes: ok");
    return 0;
}
