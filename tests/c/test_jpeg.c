/* fl_libjpeg and fl_transcode against libjpeg's plain full decode, on JPEGs made here; then the same files
 * cut, flipped and made to lie. The address and undefined-behaviour sanitizers are what turns "never crashes"
 * into a check. */
#include "jpeg/libjpeg.h"
#include "jpeg/markers.h"
#include "jpeg/transcode.h"
#include "check.h"
#include "jpeg_maker.h"

enum { LIMIT = 1 << 28 };

static fl_libjpeg *jpeg;
static fl_error err;

static fl_code open_and_decode(file f, const fl_box *box, int eighths, fl_view *view) {
    fl_libjpeg_info info;
    fl_code code = fl_libjpeg_open(jpeg, f.bytes, f.size, LIMIT, &info, &err);
    fl_box all = {0, 0, info.width, info.height};
    return code != FL_OK ? code : fl_libjpeg_decode(jpeg, box ? box : &all, eighths, view, &err);
}

static uint32_t product(uint32_t a, uint32_t b) { /* a * b / 255, rounded, without Pillow's shifts */
    return (2 * a * b + 255) / 510;
}

/* The view is the full decode's part: every byte of it, and `tail` bytes behind it can be read. */
static void same_part(const fl_view *v, const unsigned char *full, int full_width, int components,
                      uint32_t x0, uint32_t y0) {
    for (uint32_t y = 0; y < v->height; y++) {
        const unsigned char *p =
            full + ((size_t)(y0 + y) * (size_t)full_width + x0) * (size_t)(components == 4 ? 4 : 3);
        const uint8_t *row = v->pixels + y * v->stride;
        if (components != 4) CHECK(memcmp(row, p, (size_t)v->width * 3) == 0);
        for (uint32_t x = 0; components == 4 && x < v->width; x++, p += 4)
            for (uint32_t k = 0; k < 3; k++) CHECK(row[x * 3 + k] == p[3] - product(255u - p[k], p[3]));
    }
    const uint8_t *end = v->pixels + (v->height - 1) * v->stride + v->width * 3;
    CHECK(v->tail >= 64);
    static uint8_t near[4096];
    volatile uint8_t seen = 0;
    memcpy(near, end, v->tail < sizeof near ? v->tail : sizeof near); /* the sanitizer looks at all of them */
    for (size_t i = sizeof near; i < v->tail; i += 61) seen ^= end[i]; /* far from the view, a part of them */
    seen ^= end[v->tail - 1];
    (void)seen;
}

static void boxes_equal_crops(const recipe *r, int boxes) {
    file f = make(r);
    for (int eighths = 1; eighths <= 8; eighths *= 2) {
        int w, h;
        unsigned char *full = decode_all(f, eighths, &w, &h);
        for (int i = 0; i < boxes; i++) {
            fl_box b = {below((uint32_t)r->width), below((uint32_t)r->height), 0, 0};
            if (i % 3 == 0) b.x = b.x / 8 * 8, b.y = b.y / 8 * 8; /* on a block's edge */
            b.width = 1 + below((uint32_t)r->width - b.x), b.height = 1 + below((uint32_t)r->height - b.y);
            if (i % 4 == 0) b.width = (uint32_t)r->width - b.x;
            if (i % 5 == 0) b.height = (uint32_t)r->height - b.y;
            if (i == 0) b = (fl_box){0, 0, (uint32_t)r->width, (uint32_t)r->height};
            fl_view v;
            CHECK(open_and_decode(f, &b, eighths, &v) == FL_OK);
            uint32_t e = (uint32_t)eighths, x1 = ((b.x + b.width) * e + 7) / 8,
                     y1 = ((b.y + b.height) * e + 7) / 8;
            CHECK(v.width == (x1 < (uint32_t)w ? x1 : (uint32_t)w) - b.x * e / 8);
            CHECK(v.height == (y1 < (uint32_t)h ? y1 : (uint32_t)h) - b.y * e / 8);
            CHECK(fl_libjpeg_warnings(jpeg, NULL) == 0);
            same_part(&v, full, w, r->components, b.x * e / 8, b.y * e / 8);
        }
        free(full);
    }
    free(f.bytes);
}

static void regions(void) {
    static const int sampling[8][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {1, 4}, {2, 4}, {4, 2}};
    for (int size = 1; size <= 100; size++)
        for (int s = 0; s < 8; s++) {
            if (THIN > 1 && below(THIN)) continue;
            recipe r = {.width = size,
                        .height = 1 + (int)below(100),
                        .quality = 20 + (int)below(80),
                        .components = 3};
            r.h = sampling[s][0], r.v = sampling[s][1];
            r.progressive = size % 3 == 0, r.arithmetic = size % 5 == 0, r.restart = size % 7 == 0 ? 3 : 0;
            boxes_equal_crops(&r, 8);
            recipe turned = r;
            turned.width = r.height, turned.height = r.width;
            boxes_equal_crops(&turned, 8);
        }
    for (int components = 1; components <= 4; components += 3)
        for (int size = 1; size <= 70; size += 3) {
            recipe r = {
                .width = size, .height = 71 - size, .quality = 80, .components = components, .h = 1, .v = 1};
            boxes_equal_crops(&r, 6);
            r.h = r.v = 2; /* grey with factors 2x2 is still one block an MCU */
            boxes_equal_crops(&r, 6);
        }
}

static void arguments(void) {
    recipe r = {.width = 30, .height = 20, .quality = 80, .components = 3, .h = 2, .v = 2};
    file f = make(&r);
    fl_view v;
    fl_libjpeg_info info;
    CHECK(open_and_decode(f, &(fl_box){0, 0, 31, 20}, 8, &v) == FL_EARG);
    CHECK(open_and_decode(f, &(fl_box){30, 0, UINT32_MAX, 1}, 8, &v) == FL_EARG);
    CHECK(open_and_decode(f, &(fl_box){0, 0, 0, 1}, 8, &v) == FL_EARG);
    CHECK(open_and_decode(f, NULL, 3, &v) == FL_EARG);
    CHECK(open_and_decode(f, NULL, 8, &v) == FL_OK);
    CHECK(fl_libjpeg_decode(jpeg, &(fl_box){0, 0, 1, 1}, 8, &v, &err) == FL_EARG); /* one decode per open */
    CHECK(fl_libjpeg_open(jpeg, f.bytes, f.size, 599, &info, &err) == FL_ELIMIT);
    CHECK(strstr(err.text, "30 x 20") != NULL);
    CHECK(fl_libjpeg_open(jpeg, f.bytes, f.size, 600, &info, &err) == FL_OK);
    CHECK(fl_jpeg_scale(223, 224, 224, 224) == 8 && fl_jpeg_scale(448, 450, 224, 224) == 4 &&
          fl_jpeg_scale(447, 4000, 224, 224) == 8);
    CHECK(fl_jpeg_scale(1792, 1792, 224, 224) == 1 && fl_jpeg_scale(1791, 1792, 224, 224) == 2);
    free(f.bytes);
}

/* A file without tables fails, though the file before it had some. */
static void tables_do_not_leak(void) {
    recipe r = {.width = 40, .height = 40, .quality = 60, .components = 3, .h = 2, .v = 2};
    recipe bare = r;
    bare.bare = true;
    file good = make(&r), without = make(&bare);
    fl_view v;
    for (int i = 0; i < 50; i++) {
        CHECK(open_and_decode(good, NULL, 8, &v) == FL_OK);
        CHECK(open_and_decode(without, NULL, 8, &v) == FL_EJPEG);
    }
    free(good.bytes), free(without.bytes);
}

/* The place of the first SOS: segments follow each other from SOI on, each of the length that it says. */
static size_t first_scan(file f) {
    size_t at = 2;
    while (f.bytes[at + 1] != 0xDA) at += 2 + ((size_t)f.bytes[at + 2] << 8 | f.bytes[at + 3]);
    return at;
}

static void truncation(void) {
    recipe r = {.width = 64, .height = 96, .quality = 90, .components = 3, .h = 2, .v = 2};
    for (int kind = 0; kind < 4; kind++) {
        r.progressive = kind == 1, r.arithmetic = kind == 2, r.restart = kind == 3 ? 2 : 0;
        file f = make(&r);
        size_t step = 1 + f.size / 400;
        for (size_t size = 0; size < f.size - 2; size += step) {
            unsigned char *part =
                malloc(size ? size : 1); /* of its exact size: the sanitizer sees a read past it */
            memcpy(part, f.bytes, size);
            fl_view v;
            fl_code code = open_and_decode((file){part, size}, NULL, 8, &v);
            CHECK(code == FL_ETRUNCATED || (size + 8 > f.size && code == FL_OK));
            free(part);
        }
        file headless = {f.bytes, f.size - 2}; /* all data, no end marker */
        fl_view v;
        const char *first;
        fl_code code = open_and_decode(headless, NULL, 8, &v);
        if (kind == 0 || kind == 3) {
            CHECK(code == FL_OK && fl_libjpeg_warnings(jpeg, &first) == 1 && strstr(first, "Premature end"));
            file half = {f.bytes, f.size / 2};
            CHECK(open_and_decode(half, &(fl_box){0, 0, 64, 16}, 8, &v) ==
                  FL_OK); /* the box's rows are all there */
            CHECK(open_and_decode(half, &(fl_box){0, 80, 8, 8}, 8, &v) == FL_ETRUNCATED);
        } else {
            CHECK(code == FL_ETRUNCATED);
        }
        CHECK(open_and_decode(f, NULL, 8, &v) == FL_OK); /* the handle has survived */
        free(f.bytes);
    }
}

/* A huge image's 72 MB of scratch are not kept once boxes are small again, and the small box is right. */
static void scratch_shrinks(void) {
    recipe big = {.width = 6000, .height = 4000, .quality = 10, .components = 1, .h = 1, .v = 1};
    recipe small = {.width = 50, .height = 50, .quality = 90, .components = 3, .h = 2, .v = 2};
    file f = make(&big);
    fl_view v;
    CHECK(open_and_decode(f, NULL, 8, &v) == FL_OK && v.tail >= 64);
    free(f.bytes);
    boxes_equal_crops(&small, 4);
    f = make(&small);
    CHECK(open_and_decode(f, NULL, 8, &v) == FL_OK && v.tail < 4096);
    free(f.bytes);
}

static bool known(fl_code code) {
    return code == FL_OK || code == FL_EJPEG || code == FL_ETRUNCATED || code == FL_ELIMIT ||
           code == FL_EUNSUPPORTED;
}

static void everything(file f) {
    fl_libjpeg_info info;
    fl_view v;
    fl_jpeg_checked checked;
    size_t written;
    fl_code code = fl_libjpeg_open(jpeg, f.bytes, f.size, 1 << 18, &info, &err);
    CHECK(known(code));
    if (code == FL_OK) {
        fl_box b = {below(info.width), below(info.height), 0, 0};
        b.width = 1 + below(info.width - b.x), b.height = 1 + below(info.height - b.y);
        CHECK(known(fl_libjpeg_decode(jpeg, &b, 1 << below(4), &v, &err)));
    }
    fl_jpeg_layout layout;
    code = fl_jpeg_markers_read(f.bytes, f.size, &layout, &err);
    CHECK(known(code));
    if (code == FL_OK) { CHECK(layout.end <= f.size && layout.orientation >= 1 && layout.orientation <= 8); }
    uint8_t *out = malloc(f.size + 1);
    code = fl_jpeg_strip(f.bytes, f.size, out, f.size, &written, &err);
    CHECK(known(code) && (code != FL_OK || written <= f.size));
    free(out);
    CHECK(known(fl_jpeg_check(f.bytes, f.size, 1 << 18, &checked, &err)));
    code = fl_jpeg_transform(f.bytes, f.size, 1 + (int)below(8), 1 << 18, &out, &written, &err);
    CHECK(known(code) && (code == FL_OK) == (out != NULL));
    free(out);
}

static void flipped(void) {
    for (int i = 0; i < 1500; i++) {
        recipe r = {.width = 8 + (int)below(80),
                    .height = 8 + (int)below(80),
                    .quality = 50,
                    .components = i % 9 ? 3 : 4};
        r.h = 1 + i % 2, r.v = 1 + i / 2 % 2, r.progressive = i % 3 == 0, r.arithmetic = i % 4 == 0,
        r.restart = i % 5 ? 0 : 1, r.metadata = true;
        file f = make(&r);
        uint32_t range = i % 2          ? (uint32_t)f.size
                         : 700 < f.size ? 700
                                        : (uint32_t)f.size; /* headers, mostly */
        for (int k = 0; k < 1 + i % 4; k++) f.bytes[below(range)] = (unsigned char)noise();
        if (i % 6 == 0) f.size = below((uint32_t)f.size);
        unsigned char *exact = malloc(f.size ? f.size : 1);
        memcpy(exact, f.bytes, f.size);
        everything((file){exact, f.size});
        free(exact), free(f.bytes);
    }
}

static void hostile_headers(void) {
    recipe r = {.width = 32, .height = 32, .quality = 50, .components = 3, .h = 2, .v = 2};
    fl_libjpeg_info info;
    fl_view v;
    file f = make(&r);
    for (size_t i = 0; i + 9 < f.size; i++)
        if (f.bytes[i] == 0xFF && f.bytes[i + 1] == 0xC0) {
            memcpy(f.bytes + i + 5, "\xFF\xDC\xFF\xDC", 4); /* 65,500 x 65,500 */
            CHECK(fl_libjpeg_open(jpeg, f.bytes, f.size, LIMIT, &info, &err) == FL_ELIMIT);
            f.bytes[i + 4] = 12;
            CHECK(fl_libjpeg_open(jpeg, f.bytes, f.size, UINT64_MAX, &info, &err) == FL_EUNSUPPORTED);
            f.bytes[i + 4] = 8, f.bytes[i + 1] = 0xC3;
            CHECK(fl_libjpeg_open(jpeg, f.bytes, f.size, UINT64_MAX, &info, &err) == FL_EUNSUPPORTED);
            break;
        }
    free(f.bytes);

    r.progressive = true;
    f = make(&r);
    size_t from = f.size - 2; /* the last scan, over and over */
    while (!(f.bytes[from] == 0xFF && f.bytes[from + 1] == 0xDA)) from--;
    size_t length = f.size - 2 - from;
    file bomb = {malloc(f.size + 200 * length), f.size - 2};
    memcpy(bomb.bytes, f.bytes, f.size - 2);
    for (int i = 0; i < 200; i++) memcpy(bomb.bytes + bomb.size, f.bytes + from, length), bomb.size += length;
    memcpy(bomb.bytes + bomb.size, "\xFF\xD9", 2), bomb.size += 2;
    CHECK(open_and_decode(bomb, NULL, 8, &v) == FL_EJPEG && strstr(err.text, "scans"));
    free(bomb.bytes), free(f.bytes);
}

static void transcoding(void) {
    for (int i = 0; i < 160; i++) {
        recipe r = {.width = 1 + (int)below(90),
                    .height = 1 + (int)below(90),
                    .quality = 30 + (int)below(70),
                    .components = i % 8 == 7   ? 1
                                  : i % 8 == 6 ? 4
                                               : 3};
        r.h = 1 + i % 2, r.v = 1 + i / 2 % 2, r.progressive = i % 3 == 0, r.arithmetic = i % 5 == 0,
        r.restart = i % 7 ? 0 : 2, r.metadata = i % 4 != 0;
        if (i % 2) r.width = (r.width + 15) / 16 * 16, r.height = (r.height + 15) / 16 * 16;
        file f = make(&r);
        uint64_t hash = coefficient_hash(f);
        fl_jpeg_layout l;
        CHECK(fl_jpeg_markers_read(f.bytes, f.size, &l, &err) == FL_OK);
        CHECK(l.width == (uint32_t)r.width && l.height == (uint32_t)r.height &&
              l.components == r.components && l.eoi && !l.damaged && !l.stray);
        CHECK(l.end == f.size && l.h[0] == r.h && l.v[0] == r.v && l.arithmetic == r.arithmetic &&
              (l.kind == FL_JPEG_PROGRESSIVE) == r.progressive);
        CHECK(l.orientation == (r.metadata ? 6 : 1) && l.exif == r.metadata && l.icc == r.metadata &&
              l.restart_interval == (uint32_t)r.restart);

        file bare = {malloc(f.size), 0};
        size_t size;
        CHECK(fl_jpeg_strip(f.bytes, f.size, bare.bytes, f.size, &size, &err) == FL_OK);
        bare.size = size;
        CHECK(coefficient_hash(bare) == hash && f.size - size == (r.metadata ? 36 + 25 + 13 : 0));
        CHECK(fl_jpeg_markers_read(bare.bytes, bare.size, &l, &err) == FL_OK && l.orientation == 1 &&
              !l.exif && !l.icc);
        CHECK(memcmp(bare.bytes + first_scan(bare), f.bytes + first_scan(f), f.size - first_scan(f)) == 0);
        free(bare.bytes);

        file base, turned, back;
        CHECK(fl_jpeg_transform(f.bytes, f.size, 1, LIMIT, &base.bytes, &size, &err) == FL_OK);
        base.size = size;
        CHECK(coefficient_hash(base) == hash);
        CHECK(fl_jpeg_markers_read(base.bytes, base.size, &l, &err) == FL_OK && l.kind == FL_JPEG_BASELINE &&
              !l.arithmetic && l.scans == 1);
        free(base.bytes);

        static const int undone_by[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
        for (int o = 1; o <= 8; o++) {
            fl_code code = fl_jpeg_transform(f.bytes, f.size, o, LIMIT, &turned.bytes, &size, &err);
            turned.size = size;
            if (i % 2 || o == 1) CHECK(code == FL_OK);
            CHECK(code == FL_OK || code == FL_EUNSUPPORTED);
            if (code != FL_OK) continue;
            CHECK(fl_jpeg_markers_read(turned.bytes, turned.size, &l, &err) == FL_OK &&
                  l.width == (uint32_t)(o < 5 ? r.width : r.height));
            code =
                fl_jpeg_transform(turned.bytes, turned.size, undone_by[o], LIMIT, &back.bytes, &size, &err);
            back.size = size;
            if (code == FL_OK) CHECK(coefficient_hash(back) == hash);
            else CHECK(code == FL_EUNSUPPORTED && i % 2 == 0);
            free(turned.bytes), free(back.bytes);
        }
        free(f.bytes);
    }
}

int main(void) {
    long before = fl_libjpeg_live();
    CHECK(fl_libjpeg_create(&jpeg, &err) == FL_OK && fl_libjpeg_live() == before + 1);
    regions();
    arguments();
    tables_do_not_leak();
    truncation();
    scratch_shrinks();
    hostile_headers();
    flipped();
    transcoding();
    fl_libjpeg_free(jpeg);
    fl_libjpeg_free(NULL);
    CHECK(fl_libjpeg_live() == before);
    return 0;
}
