/* What packing does to a JPEG: scan, strip, transcode, turn, check.
 *   1. What fl_jpeg_strip and fl_jpeg_transform give, fl_libjpeg decodes to the original's pixels, wherever
 *      it decodes the original.
 *   2. Transcoded files are proved sound, and stripping or transcoding them again changes no pixel.
 *   3. A turn and the turn back give the coefficients of the transcoded file.
 *   4. What fl_jpeg_check finds no fault with decodes. Every failure has its code.
 *   5. Of a file that is upright for certain, the markers tell no other orientation. */
#include "jpeg/entropy.h"
#include "jpeg/exif.h"
#include "jpeg/libjpeg.h"
#include "jpeg/markers.h"
#include "jpeg/transcode.h"
#include "jpeg_mutator.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#include "jpeg_maker.h"

enum { PIXELS_MOST = 1 << 17, PACK_CODES = FUZZ_JPEG_CODES };

static fl_libjpeg *decoders[2];
static fl_jpeg_entropy *entropy;

static fl_code decode(fl_libjpeg *with, const uint8_t *bytes, size_t size, fl_view *view) {
    fl_libjpeg_info info;
    fl_error err;
    fl_code code = fl_libjpeg_open(with, bytes, size, PIXELS_MOST, &info, &err);
    if (!code) code = fl_libjpeg_decode(with, &(fl_box){0, 0, info.width, info.height}, 8, view, &err);
    fuzz_known(code, &err, PACK_CODES);
    return code;
}

/* 1. `original`: its view, or NULL where it does not decode. */
static void check_same(const uint8_t *stored, size_t size, const fl_view *original, const char *what) {
    fl_view now;
    if (!original) return;
    uint8_t *copy = fuzz_copy(stored, size);
    const fl_code code = decode(decoders[1], copy, size, &now);
    if (code) fprintf(stderr, "%s: code %d\n", what, (int)code);
    CHECK(code == FL_OK && now.width == original->width && now.height == original->height);
    for (uint32_t y = 0; y < now.height; y++)
        CHECK(memcmp(now.pixels + y * now.stride, original->pixels + y * original->stride,
                     (size_t)now.width * 3) == 0);
    fuzz_count(what);
    free(copy);
}

static void check_strip(const uint8_t *data, size_t size, const fl_view *original) {
    fl_jpeg_layout layout;
    fl_error err;
    size_t written = 0, again = 0;
    const fl_code code = fl_jpeg_markers_read(data, size, &layout, &err);
    fuzz_known(code, &err, PACK_CODES);
    uint8_t *out = fuzz_allocate(size), *twice = fuzz_allocate(size);
    const fl_code strip = fl_jpeg_strip(data, size, out, size, &written, &err);
    fuzz_known(strip, &err, PACK_CODES);
    CHECK(strip == FL_OK ? code == FL_OK && written <= size && !layout.damaged
                         : code == strip || layout.damaged);
    CHECK(code != FL_OK || layout.end <= size);
    if (fl_jpeg_exif_upright(data, size) && code == FL_OK) {
        CHECK(layout.orientation == 1);
        fuzz_count("upright files and their markers");
    }
    if (strip == FL_OK) {
        CHECK(fl_jpeg_strip(out, written, twice, size, &again, &err) == FL_OK && again == written &&
              memcmp(out, twice, written) == 0);
        if (layout.eoi && !layout.stray)
            check_same(out, written, original, "stripped files and their originals");
    }
    free(out), free(twice);
}

/* 3. Where the sides are whole iMCUs, which every turn needs. */
static void check_turns(const uint8_t *data, size_t size, const uint8_t *baseline, size_t baseline_size) {
    static const int back[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
    const int orientation = 2 + (int)(noise() % 7);
    uint8_t *turned = NULL, *returned = NULL;
    size_t turned_size, returned_size;
    fl_error err;
    fl_code code = fl_jpeg_transform(data, size, orientation, PIXELS_MOST, &turned, &turned_size, &err);
    fuzz_known(code, &err, PACK_CODES);
    if (code == FL_OK) {
        code = fl_jpeg_transform(turned, turned_size, back[orientation], PIXELS_MOST, &returned,
                                 &returned_size, &err);
        fuzz_known(code, &err, PACK_CODES);
    }
    if (returned) {
        const file first = {(unsigned char *)(uintptr_t)baseline, baseline_size},
                   last = {returned, returned_size};
        CHECK(coefficient_hash(first) == coefficient_hash(last));
        fuzz_count("turns there and back");
    }
    free(turned), free(returned);
}

static void check_transcode(const uint8_t *data, size_t size, const fl_view *original) {
    uint8_t *out = NULL;
    size_t written = 0;
    fl_error err;
    const fl_code code = fl_jpeg_transform(data, size, 1, PIXELS_MOST, &out, &written, &err);
    fuzz_known(code, &err, PACK_CODES);
    CHECK((code == FL_OK) == (out != NULL));
    if (out) {
        check_same(out, written, original, "transcoded files and their originals");
        check_turns(data, size, out, written);
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    if (!entropy)
        CHECK(fl_libjpeg_create(&decoders[0], &err) == FL_OK &&
              fl_libjpeg_create(&decoders[1], &err) == FL_OK &&
              fl_jpeg_entropy_create(&entropy, &err) == FL_OK);
    fuzz_draws_from_hash(data, size);
    fl_view view;
    fl_jpeg_checked checked;
    const fl_code decoded = decode(decoders[0], data, size, &view);
    const fl_view *original = decoded ? NULL : &view;
    const fl_code check = fl_jpeg_check(data, size, PIXELS_MOST, &checked, &err);
    fuzz_known(check, &err, PACK_CODES);
    if (check == FL_OK && !checked.warnings) CHECK(decoded == FL_OK);
    fuzz_count("inputs");
    check_strip(data, size, original);
    check_transcode(data, size, original);
    return 0;
}
