/* fl_resize_exact and fl_resize_reduce: the CPU's kernels give plain C's bytes; window, flips, layout and
 * dtype change where and as what a value is stored, never the value; a view that has only what is read is
 * enough; what does not fit is refused. Views and sinks are allocated to their last byte, so that the address
 * sanitizer sees what is read or written beyond. The values themselves are held to Pillow's in
 * tests/native/test_resize_exact.py. */
#include "resize/exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "common/cpu.h"
#include "draws.h"
#include "resize/reduce.h"

enum { ROUNDS = 4000 / THIN };

typedef struct scene {
    fl_view view;
    fl_resize_exact_spec spec;
    fl_sink sink;
    uint8_t *pixels;
    float *lut;
    size_t bytes; /* of the sink */
} scene;

static fl_resize_exact *exact; /* one for all cases: what it keeps must not show */

static void *allocate(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    CHECK(block);
    return block;
}

static void make_view(scene *s, uint32_t width, uint32_t height) {
    const bool grey = below(3) == 0;
    s->view = (fl_view){.width = width, .height = height, .channels = grey, .depth = grey};
    s->view.stride = width * fl_view_pixel(&s->view) + between(0, 1) * between(0, 9);
    const size_t size = s->view.stride * (height - 1) + width * fl_view_pixel(&s->view);
    s->view.pixels = s->pixels = allocate(size);
    const bool extreme = below(3) == 0; /* makes filters overshoot */
    for (size_t i = 0; i < size; i++)
        s->pixels[i] = extreme ? (uint8_t)-(int)(noise() & 1) : (uint8_t)noise();
}

static void make_spec(scene *s, uint32_t out_width, uint32_t out_height) {
    const float w = (float)s->view.width, h = (float)s->view.height;
    s->spec = (fl_resize_exact_spec){
        .image_width = s->view.width, .image_height = s->view.height, .right = w, .bottom = h};
    s->spec.out_width = out_width, s->spec.out_height = out_height;
    if (below(3) == 0) {
        s->spec.left = w * (float)unit(), s->spec.top = h * (float)unit();
        s->spec.right = s->spec.left + (w - s->spec.left) * (float)unit();
        s->spec.bottom = s->spec.top + (h - s->spec.top) * (float)unit();
        s->spec.right = fminf(s->spec.right, w), s->spec.bottom = fminf(s->spec.bottom, h);
    }
    s->spec.window = (fl_box){0, 0, out_width, out_height};
    s->spec.filter = (fl_resize_exact_filter)below(8);
    s->spec.order = (fl_resize_order)below(3);
}

static void make_sink(scene *s, fl_dtype dtype) {
    const size_t element = dtype == FL_U8 ? 1 : sizeof(float);
    s->lut = dtype == FL_U8 ? NULL : allocate(3 * 256 * sizeof(float));
    for (int i = 0; i < 3 * 256 && s->lut; i++) s->lut[i] = (float)(i % 256) / 255.0f + (float)(i / 256);
    s->sink = (fl_sink){.width = s->spec.window.width,
                        .height = s->spec.window.height,
                        .dtype = dtype,
                        .layout = (fl_layout)below(2),
                        .lut = s->lut,
                        .hflip = below(2),
                        .vflip = below(2),
                        .channels = s->view.channels,
                        .depth = s->view.depth};
    s->bytes = (size_t)s->sink.width * s->sink.height * fl_view_pixel(&s->view) * element;
    s->sink.data = allocate(s->bytes);
    memset(s->sink.data, 0xA5, s->bytes);
}

static void free_scene(scene *s) { free(s->pixels), free(s->lut), free(s->sink.data); }

static void use_plain(bool plain) { CHECK(fl_cpu_use(plain ? "plain" : NULL, NULL) == FL_OK); }

static fl_code run(const scene *s) {
    fl_error err;
    return fl_resize_exact_run(exact, &s->view, &s->spec, &s->sink, &err);
}

/* The whole output as bytes, HWC, not mirrored, by plain C. */
static uint8_t *reference(const scene *s) {
    scene whole = *s;
    whole.spec.window = (fl_box){0, 0, s->spec.out_width, s->spec.out_height};
    uint8_t *out = allocate((size_t)s->spec.out_width * s->spec.out_height * fl_view_pixel(&s->view));
    whole.sink = (fl_sink){.data = out,
                           .width = s->spec.out_width,
                           .height = s->spec.out_height,
                           .channels = s->view.channels,
                           .depth = s->view.depth};
    use_plain(true);
    CHECK(run(&whole) == FL_OK);
    use_plain(false);
    return out;
}

static void shrink_window(fl_box *window, uint32_t width, uint32_t height) {
    window->width = between(1, width), window->height = between(1, height);
    window->x = between(0, width - window->width), window->y = between(0, height - window->height);
}

/* Every value of the sink is that of the reference. */
static void compare(const scene *s, const uint8_t *whole) {
    const fl_box *window = &s->spec.window;
    const size_t channels = fl_view_pixel(&s->view), plane = fl_sink_plane(&s->sink);
    for (uint32_t y = 0; y < window->height; y++)
        for (uint32_t x = 0; x < window->width; x++)
            for (size_t c = 0; c < channels; c++) {
                const uint8_t value =
                    whole[((size_t)(window->y + y) * s->spec.out_width + window->x + x) * channels + c];
                const uint32_t to_x = s->sink.hflip ? window->width - 1 - x : x,
                               to_y = s->sink.vflip ? window->height - 1 - y : y;
                const size_t pixel = (size_t)to_y * window->width + to_x;
                const size_t at = s->sink.layout == FL_HWC ? pixel * channels + c : c * plane + pixel;
                if (s->lut) CHECK(((const float *)s->sink.data)[at] == s->lut[256 * c + value]);
                else CHECK(((const uint8_t *)s->sink.data)[at] == value);
            }
}

static void every_way_equals_plain_c(uint32_t most) {
    scene s;
    make_view(&s, between(1, most), between(1, most));
    make_spec(&s, between(1, 70), between(1, 70));
    if (below(2)) shrink_window(&s.spec.window, s.spec.out_width, s.spec.out_height);
    make_sink(&s, below(2) ? FL_U8 : FL_F32);
    uint8_t *whole = reference(&s);
    for (int plain = 0; plain < 2; plain++) {
        use_plain(plain);
        CHECK(run(&s) == FL_OK);
        compare(&s, whole);
    }
    use_plain(false);
    free(whole);
    free_scene(&s);
}

/* A view that has only the pixels which are read, without a byte before or after them, gives the same; one
 * pixel fewer is refused. */
static void a_part_is_enough(void) {
    scene s;
    make_view(&s, between(1, 90), between(1, 90));
    make_spec(&s, between(1, 60), between(1, 60));
    shrink_window(&s.spec.window, s.spec.out_width, s.spec.out_height);
    make_sink(&s, FL_U8);
    uint8_t *whole = reference(&s);
    fl_box reads;
    CHECK(fl_resize_exact_reads(&s.spec, &reads, NULL) == FL_OK);
    CHECK(reads.x + reads.width <= s.view.width && reads.y + reads.height <= s.view.height);
    if (reads.width && reads.height) {
        const size_t pixel = fl_view_pixel(&s.view), row = reads.width * pixel;
        uint8_t *part = allocate(row * reads.height);
        for (uint32_t y = 0; y < reads.height; y++)
            memcpy(part + y * row, s.pixels + (reads.y + y) * s.view.stride + reads.x * pixel, row);
        s.view = (fl_view){part, row, reads.width, reads.height, 0, s.view.channels, s.view.depth};
        s.spec.image_x = -(int64_t)reads.x, s.spec.image_y = -(int64_t)reads.y;
        CHECK(run(&s) == FL_OK);
        compare(&s, whole);
        if (below(2)) s.view.width--;
        else s.view.height--;
        CHECK(run(&s) == FL_EARG);
        free(part);
    }
    free(whole);
    free_scene(&s);
}

/* Means of cells in 64-bit arithmetic, within the one that Pillow's 32 bits may lose. */
static void reductions_are_means(void) {
    scene s;
    make_view(&s, between(1, 90), between(1, 90));
    fl_box box;
    shrink_window(&box, s.view.width, s.view.height);
    const uint32_t across = between(1, 20), down = between(1, 20), columns = (box.width - 1) / across + 1,
                   rows = (box.height - 1) / down + 1;
    const size_t channels = fl_view_pixel(&s.view);
    uint8_t *out = allocate(columns * rows * channels);
    fl_buffer room = {NULL, 0};
    CHECK(fl_resize_reduce(&s.view, &box, across, down, &room, out, NULL) == FL_OK);
    for (size_t i = 0; i < columns * rows * channels; i++) {
        const uint32_t x = (uint32_t)(i / channels % columns) * across,
                       y = (uint32_t)(i / channels / columns) * down;
        uint64_t sum = 0, count = 0;
        for (uint32_t v = y; v < y + down && v < box.height; v++)
            for (uint32_t u = x; u < x + across && u < box.width; u++, count++)
                sum += s.pixels[(box.y + v) * s.view.stride + (box.x + u) * channels + i % channels];
        CHECK(fabs(out[i] - (double)sum / (double)count) < 1.0);
    }
    fl_buffer_free(&room);
    free(out);
    free(s.pixels);
}

static void hostile_specs_are_refused(void) {
    static const float wild[] = {NAN, INFINITY, -INFINITY, -1.0f, 1e30f, 0x1p24f, -0x1p-149f, 90.5f};
    scene s;
    make_view(&s, between(1, 90), between(1, 90));
    make_spec(&s, between(1, 60), between(1, 60));
    make_sink(&s, FL_U8);
    fl_resize_exact_spec *spec = &s.spec;
    switch (below(7)) {
    case 0:
        *(float *[]){&spec->left, &spec->top, &spec->right, &spec->bottom}[below(4)] = wild[below(8)];
        break;
    case 1: spec->out_width = below(2) ? 0 : UINT32_MAX; break;
    case 2: spec->window.x = UINT32_MAX; break;
    case 3: spec->filter = (fl_resize_exact_filter)between(8, 90); break;
    case 4: spec->image_width = below(2) ? 0 : UINT32_MAX; break;
    case 5: spec->image_x = below(2) ? INT64_MIN : INT64_MAX; break;
    default: s.sink.height++;
    }
    CHECK(run(&s) == FL_EARG);
    fl_box reads;
    (void)fl_resize_exact_reads(spec, &reads, NULL);
    free_scene(&s);
}

int main(void) {
    CHECK(fl_resize_exact_create(&exact, NULL) == FL_OK);
    for (int i = 0; i < ROUNDS; i++) {
        check_seed = noise_state;
        every_way_equals_plain_c(i % 50 ? 80 : 1500);
        a_part_is_enough();
        reductions_are_means();
        hostile_specs_are_refused();
    }
    fl_resize_exact_free(exact);
    return 0;
}
