/* fl_colour_*: the CPU's kernels give plain C's bytes, whatever is done together, and leave alone what is not
 * theirs. Images are allocated to their last byte, so that the address sanitizer sees what is read or written
 * beyond. The values themselves are held to Pillow's in tests/native/test_colour.py. */
#include "colour/steps.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "colour/blend.h"
#include "colour/convolve.h"
#include "colour/gaussian.h"
#include "colour/hue.h"
#include "colour/light.h"
#include "colour/lut.h"
#include "colour/warp.h"
#include "common/cpu.h"
#include "draws.h"

enum { ROUNDS = 2000 / THIN, STEPS = 5 };

typedef struct image {
    uint32_t width, height, channels;
    uint8_t *bytes;
} image;

static const char *const paths[] = {"plain", "avx2,fma", ""};

static void on_path(int path) { CHECK(fl_cpu_use(paths[path], NULL) == FL_OK); }

static size_t size_of(const image *i) { return (size_t)i->width * i->height * i->channels; }

static uint8_t *allocate(size_t bytes) {
    uint8_t *block = malloc(bytes);
    CHECK(block);
    return block;
}

static image make_image(uint32_t channels) {
    image made = {between(1, below(10) ? 60 : 400), between(1, 60), channels, NULL};
    made.bytes = allocate(size_of(&made));
    const bool greys = below(4) == 0, extreme = below(4) == 0;
    for (size_t i = 0; i < size_of(&made); i++)
        made.bytes[i] = greys && i % channels ? made.bytes[i - 1]
                        : extreme             ? (uint8_t)-(int)(noise() & 1)
                                              : (uint8_t)noise();
    return made;
}

static uint8_t *copy_of(const image *i) { return memcpy(allocate(size_of(i)), i->bytes, size_of(i)); }

static float some_factor(void) { return below(8) ? (float)(unit() * 4 - 1) : (float)(unit() * 2e9 - 1e9); }

static fl_colour_step some_step(uint32_t channels, uint8_t *tables) {
    fl_colour_step step = {.kind = (fl_colour_kind)below(FL_COLOUR_BLUR + 1), .factor = some_factor()};
    if (channels == 1 && step.kind >= FL_COLOUR_SATURATE && step.kind <= FL_COLOUR_HUE)
        step.kind = FL_COLOUR_BLEND;
    step.level = (uint8_t)noise();
    step.x_radius = below(3) ? (float)(unit() * 9) : (float)below(80), step.y_radius = (float)(unit() * 9);
    step.passes = (int)between(1, 3);
    for (uint32_t i = 0; i < 256 * channels; i++) tables[i] = (uint8_t)noise();
    if (below(2)) memcpy(tables + 256 * (channels - 1), tables, 256);
    step.tables = tables;
    return step;
}

static void steps_equal_plain_c(void) {
    const image i = make_image(below(3) ? 3 : 1);
    uint8_t tables[STEPS][3 * 256];
    fl_colour_step steps[STEPS];
    const size_t count = below(STEPS + 1), size = size_of(&i);
    for (size_t k = 0; k < count; k++) steps[k] = some_step(i.channels, tables[k]);
    fl_buffer room = {NULL, 0};
    uint8_t *made[3], *one_by_one = copy_of(&i), *kept = copy_of(&i);
    for (int path = 0; path < 3; path++) {
        on_path(path);
        made[path] = allocate(size);
        CHECK(fl_colour_run(i.bytes, made[path], i.width, i.height, i.channels, steps, count, &room));
        CHECK(memcmp(made[path], made[0], size) == 0);
    }
    for (size_t k = 0; k < count; k++) {
        memcpy(made[1], one_by_one, size);
        CHECK(fl_colour_run(made[1], one_by_one, i.width, i.height, i.channels, steps + k, 1, &room));
    }
    CHECK(memcmp(one_by_one, made[0], size) == 0);
    CHECK(memcmp(kept, i.bytes, size) == 0);
    for (int path = 0; path < 3; path++) free(made[path]);
    free(one_by_one), free(kept), free(i.bytes);
    fl_buffer_free(&room);
}

static void convolutions_equal_plain_c(void) {
    const image i = make_image(below(3) ? 3 : 1);
    uint32_t width = 2 * below(6) + 1, height = 2 * below(6) + 1;
    if (width / 2 >= i.width) width = 1;
    if (height / 2 >= i.height) height = 1;
    const size_t size = size_of(&i), count = (size_t)width * height;
    float *weights = (float *)(void *)allocate(count * sizeof(float));
    double total = 0;
    for (size_t k = 0; k < count; k++) total += (double)(weights[k] = (float)unit());
    for (size_t k = 0; k < count; k++) weights[k] = (float)((double)weights[k] / (total ? total : 1.0));
    const fl_colour_kernel kernel = {width, height, weights};
    fl_buffer room = {NULL, 0};
    uint8_t *made[3];
    for (int path = 0; path < 3; path++) {
        on_path(path);
        made[path] = allocate(size);
        CHECK(fl_colour_convolve(i.bytes, made[path], i.width, i.height, i.channels, &kernel, &room));
        CHECK(memcmp(made[path], made[0], size) == 0);
    }
    for (int path = 0; path < 3; path++) free(made[path]);
    free(weights), free(i.bytes);
    fl_buffer_free(&room);
}

static void bands_and_counts_equal_plain_c(void) {
    const image i = make_image(3);
    const size_t pixels = (size_t)i.width * i.height;
    uint8_t *found[3], *blended[3], *other = copy_of(&i);
    uint32_t counts[3][3 * 256];
    const float factor = some_factor();
    for (size_t k = 0; k < size_of(&i); k++) other[k] ^= (uint8_t)noise();
    for (int path = 0; path < 3; path++) {
        on_path(path);
        found[path] = allocate(4 * pixels);
        fl_colour_light(i.bytes, pixels, found[path]);
        for (int band = 0; band < 3; band++)
            fl_colour_hsv(i.bytes, pixels, (fl_colour_band)band, found[path] + (size_t)(band + 1) * pixels);
        blended[path] = copy_of(&i);
        fl_colour_blend(blended[path], other, size_of(&i), factor);
        fl_colour_counts(i.bytes, pixels, 3, counts[path]);
        CHECK(memcmp(found[path], found[0], 4 * pixels) == 0);
        CHECK(memcmp(blended[path], blended[0], size_of(&i)) == 0);
        CHECK(memcmp(counts[path], counts[0], sizeof counts[0]) == 0);
    }
    uint64_t all = 0;
    for (int v = 0; v < 3 * 256; v++) all += counts[0][v];
    CHECK(all == 3 * pixels);
    for (int path = 0; path < 3; path++) free(found[path]), free(blended[path]);
    free(other), free(i.bytes);
}

static fl_colour_map some_map(void) {
    static const double odd[] = {0.0, 1.0, -1.0, 1e9, -1e9, INFINITY, NAN, 0.5};
    fl_colour_map map = {.perspective = below(3) == 0};
    for (int k = 0; k < 8; k++) map.c[k] = below(12) ? unit() * 4 - 2 : odd[below(8)];
    map.c[2] *= 30, map.c[5] *= 30, map.c[6] /= below(2) ? 500 : 1, map.c[7] /= below(2) ? 500 : 1;
    if (below(3) == 0) map.c[1] = map.c[3] = 0;
    return map;
}

static void warps_equal_plain_c(void) {
    const image i = make_image(below(3) ? 3 : 1), out = make_image(i.channels);
    const fl_colour_map map = some_map();
    const fl_colour_filter filter = (fl_colour_filter)below(3);
    uint8_t *made[3];
    for (int path = 0; path < 3; path++) {
        on_path(path);
        made[path] = copy_of(&out);
        fl_colour_warp(i.bytes, i.width, i.height, i.channels, &map, filter,
                       (fl_colour_canvas){made[path], out.width, out.height});
        CHECK(memcmp(made[path], made[0], size_of(&out)) == 0);
    }
    for (int path = 0; path < 3; path++) free(made[path]);
    free(i.bytes), free(out.bytes);
}

/* Each row the other way round, and the rows, too. */
static void turn_over(const image *i, uint8_t *bytes) {
    const size_t pixels = (size_t)i->width * i->height, c = i->channels;
    for (size_t k = 0; k < pixels / 2; k++)
        for (size_t n = 0; n < c; n++) {
            const uint8_t kept = bytes[k * c + n];
            bytes[k * c + n] = bytes[(pixels - 1 - k) * c + n];
            bytes[(pixels - 1 - k) * c + n] = kept;
        }
}

static void gaussians_equal_plain_c(void) {
    const image i = make_image(below(3) ? 3 : 1);
    const uint32_t most_x = i.width < 20 ? i.width - 1 : 20, most_y = i.height < 20 ? i.height - 1 : 20;
    const fl_colour_gaussian gaussian = {2 * below(most_x + 1) + 1, 2 * below(most_y + 1) + 1,
                                         below(9) ? unit() * 9 + 0.01 : 1e-9};
    fl_buffer room = {NULL, 0};
    uint8_t *made[4];
    for (int path = 0; path < 4; path++) {
        on_path(path % 3);
        made[path] = copy_of(&i);
        if (path == 3) turn_over(&i, made[path]);
        CHECK(fl_colour_gaussian_run(made[path], i.width, i.height, i.channels, &gaussian, &room));
        if (path == 3) turn_over(&i, made[path]);
        CHECK(memcmp(made[path], made[0], size_of(&i)) == 0);
    }
    if (gaussian.sigma < 1e-3) CHECK(memcmp(made[0], i.bytes, size_of(&i)) == 0);
    for (int path = 0; path < 4; path++) free(made[path]);
    free(i.bytes);
    fl_buffer_free(&room);
}

int main(void) {
    for (int i = 0; i < ROUNDS; i++) {
        check_seed = noise_state;
        steps_equal_plain_c();
        bands_and_counts_equal_plain_c();
        warps_equal_plain_c();
        if (i % 32 == 0) convolutions_equal_plain_c();
        gaussians_equal_plain_c();
    }
    return 0;
}
