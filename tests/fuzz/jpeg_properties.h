/* What must hold of any bytes that claim to be a JPEG:
 *   1. where libjpeg-turbo decodes without a warning, fl_jpeg_decoder gives its pixels: full, boxes, scales,
 *      with the index and without;
 *   2. where fl_jpeg_baseline delivers and fl_libjpeg does, the bytes are the same, whatever libjpeg has to
 *      say of the file;
 *   3. the plain C kernels and the CPU's own deliver alike, and the same bytes;
 *   4. what fl_jpeg_entropy_sound proves, libjpeg decodes without a warning;
 *   5. every failure has its code.
 * Of FUZZ_OWN_CODE only 3 and 5 are left. */
#ifndef JPEG_PROPERTIES_H
#define JPEG_PROPERTIES_H

#include "own_decoder.h"
#ifndef FUZZ_OWN_CODE
#include "jpeg/decoder.h"
#include "jpeg/libjpeg.h"
#include "jpeg/transcode.h"
#include "libjpeg_truth.h"
#else
enum { FUZZ_PIXELS_MOST = 1 << 17 };
#endif

#ifndef FUZZ_OWN_CODE
static fl_jpeg_decoder *decoder;
static fl_libjpeg *jpeg;
#endif

static void create_decoders(void) {
    if (baseline) return;
    create_own_decoder();
#ifndef FUZZ_OWN_CODE
    fl_error err;
    CHECK(fl_jpeg_decoder_create(&decoder, &err) == FL_OK && fl_libjpeg_create(&jpeg, &err) == FL_OK);
#endif
}

static fl_box random_box(uint32_t width, uint32_t height) {
    fl_box b = {below(width), below(height), 0, 0};
    if (below(4) == 0) return (fl_box){0, 0, width, height};
    if (below(3) == 0) b.x = b.x / 8 * 8, b.y = b.y / 8 * 8;
    b.width = 1 + below(width - b.x), b.height = 1 + below(height - b.y);
    if (below(4) == 0) b.width = width - b.x;
    if (below(4) == 0) b.height = height - b.y;
    return b;
}

static bool equal_views(const fl_view *a, const fl_view *b) {
    if (a->width != b->width || a->height != b->height) return false;
    for (uint32_t y = 0; y < a->height; y++)
        if (memcmp(a->pixels + y * a->stride, b->pixels + y * b->stride, (size_t)a->width * 3)) return false;
    return true;
}

/* A copy of a view that outlives the decoder's next call; pixels are the caller's to free. */
static fl_view keep_view(const fl_view *v) {
    uint8_t *pixels = fuzz_allocate((size_t)v->width * v->height * 3);
    for (uint32_t y = 0; y < v->height; y++) {
        FUZZ_INITIALIZED(v->pixels + y * v->stride, (size_t)v->width * 3);
        memcpy(pixels + (size_t)y * v->width * 3, v->pixels + y * v->stride, (size_t)v->width * 3);
    }
    volatile uint8_t seen = 0;
    const uint8_t *end = v->pixels + (size_t)(v->height - 1) * v->stride + (size_t)v->width * 3;
    for (size_t i = 0; i < 64 && i < v->tail; i++) seen ^= end[i];
    return (fl_view){
        .pixels = pixels, .stride = (size_t)v->width * 3, .width = v->width, .height = v->height};
}

/* 3: returns whether fl_jpeg_baseline delivers this box, and its view, to be freed. */
static bool check_kernels(const fl_box *box, int eighths, const uint8_t *index, size_t index_size,
                          fl_view *kept) {
    fl_view v;
    use_plain(false);
    const bool fast = fl_jpeg_baseline_decode(baseline, box, eighths, index, index_size, &v);
    if (fast) *kept = keep_view(&v);
    use_plain(true);
    CHECK(fl_jpeg_baseline_decode(baseline, box, eighths, index, index_size, &v) == fast);
    if (fast) {
        CHECK(equal_views(kept, &v));
        fuzz_count("boxes by two kernel sets");
    }
    return fast;
}

/* An index made of the file in a block of its own size; NULL: none. Whether the file was proved sound goes to
 * *sound. */
static uint8_t *make_index(const uint8_t *bytes, size_t size, size_t *index_size, bool *sound) {
    const uint8_t *index = NULL;
    *sound = fl_jpeg_entropy_sound(entropy, bytes, size);
    CHECK(fl_jpeg_entropy_index(entropy, bytes, size, 1 + below(8), below(2) ? SIZE_MAX : 100 + below(2000),
                                &index, index_size) == *sound);
    CHECK(*sound || *index_size == 0);
    return *index_size ? fuzz_copy(index, *index_size) : NULL;
}

/* Even of an image of thousands of millions of pixels a small box costs little. */
static void check_baseline(const uint8_t *bytes, size_t size, const uint8_t *index, size_t index_size) {
    uint32_t width, height;
    if (!fl_jpeg_baseline_open(baseline, bytes, size, &width, &height)) return;
    CHECK(width && height);
    for (int i = 0; i < 3; i++) {
        fl_box box = random_box(width, height);
        const bool indexed = below(2);
        if ((uint64_t)box.width * box.height > FUZZ_PIXELS_MOST)
            box.width %= 300, box.height %= 300, box.width++, box.height++;
        if (box.x + box.width > width || box.y + box.height > height) continue;
        fl_view ours;
        if (!check_kernels(&box, 1 << below(4), index, indexed ? index_size : 0, &ours)) continue;
        free((void *)(uintptr_t)ours.pixels);
    }
}

#ifndef FUZZ_OWN_CODE
static fl_view crop_truth(const truth *t, const fl_box *b, uint32_t e) {
    const uint32_t x0 = b->x * e / 8, y0 = b->y * e / 8, x1 = ((b->x + b->width) * e + 7) / 8,
                   y1 = ((b->y + b->height) * e + 7) / 8;
    return (fl_view){.pixels = t->pixels + ((size_t)y0 * t->width + x0) * 3,
                     .stride = (size_t)t->width * 3,
                     .width = (x1 < t->width ? x1 : t->width) - x0,
                     .height = (y1 < t->height ? y1 : t->height) - y0};
}

static void print_difference(const fl_box *box, int eighths, const char *text, const fl_view *ours,
                             const fl_view *expected) {
    fprintf(stderr, "box %u,%u %ux%u at %d/8: %s\n", box->x, box->y, box->width, box->height, eighths, text);
    for (uint32_t y = 0, shown = 0; ours && y < expected->height && y < ours->height; y++)
        for (uint32_t x = 0; x < expected->width && x < ours->width && shown < 8; x++) {
            const uint8_t *a = ours->pixels + y * ours->stride + 3 * (size_t)x,
                          *b = expected->pixels + y * expected->stride + 3 * (size_t)x;
            if (memcmp(a, b, 3) == 0) continue;
            fprintf(stderr, "pixel %u,%u of %ux%u: %d,%d,%d, not %d,%d,%d\n", x, y, expected->width,
                    expected->height, a[0], a[1], a[2], b[0], b[1], b[2]);
            shown++;
        }
}

/* 1 and 2 for one box. `clean`: libjpeg-turbo's full decode at this scale, without a warning, or NULL. */
static void check_box(const uint8_t *bytes, size_t size, const fl_box *box, int eighths, const uint8_t *index,
                      size_t index_size, const truth *clean) {
    fl_error err;
    fl_libjpeg_info info;
    fl_view theirs, ours, kept;
    uint32_t width, height;
    fl_code code = fl_libjpeg_open(jpeg, bytes, size, FUZZ_PIXELS_MOST, &info, &err);
    if (!code) code = fl_libjpeg_decode(jpeg, box, eighths, &theirs, &err);
    fuzz_known(code, &err, FUZZ_JPEG_CODES);
    if (code == FL_OK) kept = keep_view(&theirs);
    if (fl_jpeg_baseline_open(baseline, bytes, size, &width, &height) &&
        check_kernels(box, eighths, index, index_size, &ours)) {
        CHECK(code == FL_OK || code == FL_ETRUNCATED); /* it looks at no more than the box needs */
        if (code == FL_OK && SAME_RUBBISH) CHECK(equal_views(&ours, &kept));
        free((void *)(uintptr_t)ours.pixels);
    }
    fl_code own = fl_jpeg_decoder_open(decoder, bytes, size, FUZZ_PIXELS_MOST, &width, &height, &err);
    fl_jpeg_decoder_index(decoder, index, index_size);
    if (!own) own = fl_jpeg_decoder_decode(decoder, box, eighths, &ours, &err);
    fuzz_known(own, &err, FUZZ_JPEG_CODES);
    CHECK(own == code || (own == FL_OK && code == FL_ETRUNCATED));
    if (own == FL_OK && code == FL_OK) {
        CHECK(SAME_RUBBISH || clean ? equal_views(&ours, &kept) : true);
        fuzz_count("boxes by fl_jpeg_decoder and fl_libjpeg");
    }
    if (clean) {
        const fl_view expected = crop_truth(clean, box, (uint32_t)eighths);
        if (own || !equal_views(&ours, &expected))
            print_difference(box, eighths, own ? err.text : "other pixels", own ? NULL : &ours, &expected);
        CHECK(own == FL_OK && equal_views(&ours, &expected));
        fuzz_count("boxes by fl_jpeg_decoder and libjpeg's full decode");
    }
    if (code == FL_OK) free((void *)(uintptr_t)kept.pixels);
}

/* 1, 2 and 4. */
static void check_against_libjpeg(const uint8_t *bytes, size_t size, const uint8_t *index, size_t index_size,
                                  bool sound) {
    fl_error err;
    fl_libjpeg_info info;
    const fl_code code = fl_libjpeg_open(jpeg, bytes, size, FUZZ_PIXELS_MOST, &info, &err);
    fuzz_known(code, &err, FUZZ_JPEG_CODES);
    for (int round = 0; round < 2; round++) {
        const int eighths = round ? 1 << below(4) : 8;
        truth t = decode_truth(bytes, size, eighths);
        const bool clean = t.decodes && t.warnings == 0;
        if (round == 0) {
            fl_jpeg_checked checked;
            const fl_code check = fl_jpeg_check(bytes, size, FUZZ_PIXELS_MOST, &checked, &err);
            fuzz_known(check, &err, FUZZ_JPEG_CODES);
            if (clean) CHECK(check == FL_OK && checked.warnings == 0);
            if (sound && !t.limited && !clean) fprintf(stderr, "proved sound; libjpeg: %s\n", t.text);
            if (sound && !t.limited) {
                CHECK(clean);
                fuzz_count("proofs and libjpeg's silence");
            }
        }
        if (clean) CHECK(code == FL_OK);
        for (int i = 0; i < 3 && code == FL_OK; i++) {
            const fl_box box =
                i ? random_box(info.width, info.height) : (fl_box){0, 0, info.width, info.height};
            check_box(bytes, size, &box, eighths, index, i == 1 ? 0 : index_size, clean ? &t : NULL);
        }
        free(t.pixels);
    }
}
#endif

static void check_jpeg(const uint8_t *bytes, size_t size) {
    create_decoders();
    size_t index_size;
    bool sound;
    uint8_t *index = make_index(bytes, size, &index_size, &sound);
    fuzz_count("inputs");
    check_baseline(bytes, size, index, index_size);
#ifndef FUZZ_OWN_CODE
    check_against_libjpeg(bytes, size, index, index_size, sound);
#endif
    free(index);
}

#endif
