/* Images made smaller: which, to what size, and that the JPEG is one of just these pixels. */
#include "engine/shrink.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "jpeg/libjpeg.h"

/* A soft picture, of which a JPEG of quality 95 loses little. */
static uint8_t *picture(uint32_t width, uint32_t height) {
    uint8_t *pixels = malloc((size_t)width * height * 3);
    CHECK(pixels != NULL);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *at = pixels + 3 * ((size_t)y * width + x);
            at[0] = (uint8_t)(255 * (uint64_t)x / width), at[1] = (uint8_t)(255 * (uint64_t)y / height),
            at[2] = 90;
        }
    return pixels;
}

static void is_made(fl_shrinker *shrinker, uint32_t width, uint32_t height, uint32_t side, uint32_t out_width,
                    uint32_t out_height) {
    fl_error err;
    fl_span jpeg;
    fl_libjpeg *decoder;
    fl_libjpeg_info info;
    fl_view made;
    uint8_t *pixels = picture(width, height), *wanted = picture(out_width, out_height);
    const fl_view image = {.pixels = pixels, .stride = 3 * (size_t)width, .width = width, .height = height};
    CHECK(fl_shrink_applies(width, height, side));
    CHECK(fl_shrink(shrinker, &image, side, &jpeg, &err) == FL_OK);
    CHECK(fl_libjpeg_create(&decoder, &err) == FL_OK);
    CHECK(fl_libjpeg_open(decoder, jpeg.bytes, jpeg.size, UINT64_MAX, &info, &err) == FL_OK);
    CHECK(info.width == out_width && info.height == out_height && info.components == 3 && !info.progressive);
    const fl_box whole = {0, 0, out_width, out_height};
    CHECK(fl_libjpeg_decode(decoder, &whole, 8, &made, &err) == FL_OK);
    CHECK(fl_libjpeg_warnings(decoder, NULL) == 0);
    for (uint32_t y = 0; y < out_height; y++)
        for (uint32_t i = 0; i < 3 * out_width; i++) {
            const int apart = made.pixels[y * made.stride + i] - wanted[3 * (size_t)out_width * y + i];
            /* a pixel in the middle of its box, and what the JPEG loses */
            CHECK(abs(apart) <= 6 + 128 / (int)side);
        }
    fl_libjpeg_free(decoder);
    free(pixels);
    free(wanted);
}

static void what_is_made_smaller(void) {
    CHECK(!fl_shrink_applies(640, 480, 0));
    CHECK(!fl_shrink_applies(640, 480, 480) && fl_shrink_applies(640, 480, 479));
    CHECK(!fl_shrink_applies(1, 1 << 24, 1)); /* its shorter side is no longer */
    CHECK(!fl_shrink_applies(2, 1 << 24, 1)); /* longer than a JPEG's */
    CHECK(fl_shrink_applies(2, 131000, 1) && !fl_shrink_applies(2, 131002, 1));
    CHECK(!fl_shrink_applies(0, 0, 1));
}

int main(void) {
    fl_shrinker *shrinker;
    fl_error err;
    what_is_made_smaller();
    CHECK(fl_shrinker_create(&shrinker, &err) == FL_OK);
    is_made(shrinker, 640, 480, 100, 133, 100);
    is_made(shrinker, 480, 640, 100, 100, 133);
    is_made(shrinker, 257, 256, 255, 255, 255);
    is_made(shrinker, 64, 64, 1, 1, 1);
    is_made(shrinker, 2000, 33, 32, 1939, 32);
    fl_shrinker_free(shrinker);
    fl_shrinker_free(NULL);
    CHECK(fl_libjpeg_live() == 0);
    return 0;
}
