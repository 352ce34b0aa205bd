/* fl_jpeg_baseline against libjpeg's plain full decode, cropped: every sampling, quality, small size and
 * scale, random boxes, both kernel sets. Then damaged files: where it delivers, libjpeg-turbo delivers the
 * same bytes. Under the sanitizers also: no damage makes it read or write where it must not. */
#include "check.h"
#include "jpeg/libjpeg.h"
#include "index_liar.h"
#include "own_decoder.h"
/* of its helpers only some are needed here */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "jpeg_maker.h"
#pragma GCC diagnostic pop

static fl_error err;

static fl_box random_box(uint32_t width, uint32_t height, int i) {
    fl_box b = {below(width), below(height), 0, 0};
    if (i % 3 == 0) b.x = b.x / 8 * 8, b.y = b.y / 8 * 8;
    b.width = 1 + below(width - b.x), b.height = 1 + below(height - b.y);
    if (i % 4 == 0) b.width = width - b.x;
    if (i % 5 == 0) b.height = height - b.y;
    return i ? b : (fl_box){0, 0, width, height};
}

static void check_part(const fl_view *v, const fl_box *b, uint32_t e, const unsigned char *full, int w,
                       int h) {
    uint32_t x0 = b->x * e / 8, y0 = b->y * e / 8, x1 = ((b->x + b->width) * e + 7) / 8,
             y1 = ((b->y + b->height) * e + 7) / 8;
    CHECK(v->width == (x1 < (uint32_t)w ? x1 : (uint32_t)w) - x0 &&
          v->height == (y1 < (uint32_t)h ? y1 : (uint32_t)h) - y0);
    for (uint32_t y = 0; y < v->height; y++)
        CHECK(memcmp(v->pixels + y * v->stride, full + ((size_t)(y0 + y) * (size_t)w + x0) * 3,
                     (size_t)v->width * 3) == 0);
    CHECK(v->tail >= 64);
    volatile uint8_t seen = 0;
    const uint8_t *end = v->pixels + (v->height - 1) * v->stride + v->width * 3;
    for (size_t i = 0; i < 64; i++) seen ^= end[i];
    seen ^= end[v->tail - 1];
    (void)seen;
}

/* An index of a file with a mark in every `every` MCUs, in a block of its own size. */
static uint8_t *make_index(file f, uint32_t every, size_t *size) {
    const uint8_t *index;
    CHECK(fl_jpeg_entropy_index(entropy, f.bytes, f.size, every, SIZE_MAX, &index, size) && *size > 0);
    uint8_t *copy = malloc(*size);
    memcpy(copy, index, *size);
    return copy;
}

static void equal_crops(const recipe *r, int boxes) {
    check_seed = noise_state;
    file f = make(r);
    uint32_t width, height;
    CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height) && width == (uint32_t)r->width &&
          height == (uint32_t)r->height);
    for (int eighths = 1; eighths <= 8; eighths *= 2) {
        int w, h;
        unsigned char *full = decode_all(f, eighths, &w, &h);
        size_t size;
        uint8_t *index = make_index(f, 1 + below(2 * (width / 8 + 1)), &size);
        for (int i = 0; i < boxes; i++) {
            fl_box b = random_box(width, height, i);
            for (int plain = 0; plain < 2; plain++) {
                fl_view v;
                use_plain(plain);
                for (int indexed = 0; indexed < 2; indexed++) {
                    CHECK(fl_jpeg_baseline_decode(baseline, &b, eighths, index, indexed ? size : 0, &v));
                    check_part(&v, &b, (uint32_t)eighths, full, w, h);
                }
            }
        }
        free(full);
        free(index);
    }
    free(f.bytes);
}

static const int samplings[5][3] = {{3, 1, 1}, {3, 2, 1}, {3, 2, 2}, {3, 1, 2}, {1, 1, 1}};

static recipe random_recipe(int sampling, int width, int height) {
    recipe r = {.width = width,
                .height = height,
                .quality = 1 + (int)below(100),
                .smooth = below(2),
                .metadata = below(2)};
    r.components = samplings[sampling][0], r.h = samplings[sampling][1], r.v = samplings[sampling][2];
    r.restart = below(3) ? 0 : 1 + (int)below(5);
    return r;
}

static void every_small_size(void) {
    for (int width = 1; width <= 33; width++)
        for (int height = 1; height <= 33; height++)
            for (int s = 0; s < 5; s++) {
                if (THIN > 1 && below(THIN)) continue;
                recipe r = random_recipe(s, width, height);
                equal_crops(&r, 4);
            }
}

static void every_quality(void) {
    for (int quality = 1; quality <= 100; quality++)
        for (int s = 0; s < 5; s++) {
            if (THIN > 1 && below(THIN)) continue;
            recipe r = random_recipe(s, 20 + (int)below(120), 20 + (int)below(120));
            r.quality = quality;
            equal_crops(&r, 5);
        }
}

static void large_sizes(void) {
    for (int i = 0; i < 60 / THIN; i++) {
        recipe r = random_recipe(i % 5, 200 + (int)below(700), 200 + (int)below(500));
        equal_crops(&r, 8);
    }
    recipe grey = random_recipe(4, 70, 50);
    grey.h = grey.v = 2; /* still one block an MCU */
    equal_crops(&grey, 8);
}

static void refused(void) {
    recipe r = {.width = 40, .height = 30, .quality = 70, .components = 3, .h = 2, .v = 2};
    recipe others[] = {r, r, r, r, r};
    others[0].progressive = true, others[1].arithmetic = true, others[2].components = 4, others[3].h = 4,
    others[4].bare = true;
    uint32_t width, height;
    for (int i = 0; i < 5; i++) {
        file f = make(&others[i]);
        fl_view v;
        CHECK(!fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
        CHECK(!fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, 1, 1}, 8, NULL, 0, &v));
        free(f.bytes);
    }
    file f = make(&r);
    fl_view v;
    CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
    CHECK(!fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, 41, 30}, 8, NULL, 0, &v) &&
          !fl_jpeg_baseline_decode(baseline, &(fl_box){40, 0, UINT32_MAX, 1}, 8, NULL, 0, &v));
    CHECK(!fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, 0, 1}, 8, NULL, 0, &v) &&
          !fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, 4, 4}, 3, NULL, 0, &v));
    CHECK(fl_jpeg_baseline_decode(baseline, &(fl_box){39, 29, 1, 1}, 8, NULL, 0, &v));
    CHECK(!fl_jpeg_baseline_open(baseline, NULL, 0, &width, &height));
    free(f.bytes);
}

/* A byte too many before a restart marker: libjpeg-turbo passes over it with a warning, which is its to
 * give. */
static void stray_before_restart(void) {
    recipe r = {.width = 60, .height = 40, .quality = 70, .components = 3, .h = 2, .v = 2, .restart = 2};
    file f = make(&r);
    uint8_t *longer = malloc(f.size + 1);
    size_t at = f.size - 2;
    while (f.bytes[at - 2] != 0xFF || f.bytes[at - 1] < 0xD0 || f.bytes[at - 1] > 0xD7) at--;
    memcpy(longer, f.bytes, at - 2);
    longer[at - 2] = 0x55;
    memcpy(longer + at - 1, f.bytes + at - 2, f.size - at + 2);
    uint32_t width, height;
    fl_view v;
    CHECK(fl_jpeg_baseline_open(baseline, longer, f.size + 1, &width, &height));
    CHECK(!fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, width, height}, 8, NULL, 0, &v));
    CHECK(fl_jpeg_baseline_decode(baseline, &(fl_box){0, 0, 8, 8}, 8, NULL, 0,
                                  &v)); /* nothing is amiss before it */
    free(longer), free(f.bytes);
}

static size_t damage(uint8_t *bytes, size_t size) {
    size_t at = 2 + below((uint32_t)size - 2);
    switch (below(5)) {
    case 0: bytes[at] ^= (uint8_t)(1u << below(8)); return size;
    case 1: bytes[at] = (uint8_t)(below(2) ? 0xFF : 0xD0 + below(10)); return size;
    case 2: return at;
    case 3:
        for (int i = 0; i < 8 && at < size; i++) bytes[at++] = (uint8_t)noise();
        return size;
    default: {
        size_t gone = 1 + below(40);
        if (gone > size - at) gone = size - at;
        memmove(bytes + at, bytes + at + gone, size - at - gone);
        return size - gone;
    }
    }
}

/* Where libjpeg-turbo delivers, with a warning or without, and this decoder too, their bytes are equal. Where
 * libjpeg-turbo fails, this decoder may still have all that the box needs, for it looks at less: that must be
 * so for truncated data only. */
static void damaged(int rounds) {
    fl_libjpeg *jpeg;
    CHECK(fl_libjpeg_create(&jpeg, &err) == FL_OK);
    long delivered = 0, refusals = 0;
    for (int i = 0; i < rounds; i++) {
        recipe r = random_recipe(i % 5, 1 + (int)below(90), 1 + (int)below(90));
        file f = make(&r);
        for (int j = 0; j < 40; j++) {
            check_seed = noise_state;
            uint8_t *broken = malloc(f.size);
            memcpy(broken, f.bytes, f.size);
            size_t size = f.size;
            for (uint32_t k = below(3); k < 3 && size > 40; k++) size = damage(broken, size);
            uint8_t *exact = malloc(size); /* of its own size, so that a sanitizer sees a read beyond it */
            memcpy(exact, broken, size);
            free(broken);
            uint32_t width, height;
            int eighths = 1 << below(4);
            fl_view ours, theirs;
            fl_libjpeg_info info;
            if (fl_jpeg_baseline_open(baseline, exact, size, &width, &height) &&
                (uint64_t)width * height < 1 << 22) {
                fl_box b = random_box(width, height, (int)below(20));
                use_plain(below(2));
                if (fl_jpeg_baseline_decode(baseline, &b, eighths, NULL, 0, &ours)) {
                    delivered++;
                    CHECK(fl_libjpeg_open(jpeg, exact, size, 1 << 22, &info, &err) == FL_OK &&
                          info.width == width && info.height == height);
                    fl_code code = fl_libjpeg_decode(jpeg, &b, eighths, &theirs, &err);
                    CHECK(code == FL_OK || code == FL_ETRUNCATED);
                    if (code == FL_OK && SAME_RUBBISH) {
                        CHECK(ours.width == theirs.width && ours.height == theirs.height);
                        for (uint32_t y = 0; y < ours.height; y++)
                            CHECK(memcmp(ours.pixels + y * ours.stride, theirs.pixels + y * theirs.stride,
                                         (size_t)ours.width * 3) == 0);
                    }
                } else {
                    refusals++;
                }
            }
            free(exact);
        }
        free(f.bytes);
    }
    CHECK(delivered > rounds && refusals > rounds);
    fl_libjpeg_free(jpeg);
}

/* An index of other marks, of another image, or of rubbish: decoding goes on without it, or shows what it
 * leads to, but nothing worse. */
static void lying_index(void) {
    long right = 0, wrong = 0;
    for (int i = 0; i < 2000 / THIN; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 20 + (int)below(90), 20 + (int)below(90));
        file f = make(&r);
        uint32_t width, height;
        CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
        int w, h;
        unsigned char *full = decode_all(f, 8, &w, &h);
        size_t size;
        uint8_t *index = make_index(f, 1 + below(5), &size);
        const uint32_t across = (width - 1) / (8 * (uint32_t)r.h) + 1,
                       down = (height - 1) / (8 * (uint32_t)r.v) + 1;
        if (below(3)) {
            uint8_t *other = lie(index, &size, across, down, f.size);
            free(index);
            index = other;
        } else {
            for (uint32_t j = 0; j < 3; j++) index[below((uint32_t)size)] = (uint8_t)noise();
            size -= below(2) ? 0 : below((uint32_t)size);
        }
        for (int j = 0; j < 10; j++) {
            fl_box b = random_box(width, height, j);
            fl_view v;
            CHECK(fl_jpeg_baseline_decode(baseline, &b, 8, index, size, &v) && v.width == b.width &&
                  v.height == b.height);
            bool equal = true;
            for (uint32_t y = 0; y < v.height; y++)
                equal = equal && !memcmp(v.pixels + y * v.stride,
                                         full + ((size_t)(b.y + y) * width + b.x) * 3, (size_t)v.width * 3);
            *(equal ? &right : &wrong) += 1;
        }
        free(full), free(index), free(f.bytes);
    }
    CHECK(right >
          /* most lies are found out at the next mark; the last one of a row has none behind it */
          10 * wrong);
}

/* What a row's first mark says is proved by the next one in the box, or at its end, also of a box too narrow
 * for two streams. */
static void lies_are_found_out(void) {
    for (int i = 0; i < 60; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 100, 40);
        r.restart = 0;
        file f = make(&r);
        uint32_t width, height;
        CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
        const uint32_t mcu = 8 * (uint32_t)r.h, across = (width - 1) / mcu + 1,
                       down = (height - 1) / (8 * (uint32_t)r.v) + 1;
        int w, h;
        unsigned char *full = decode_all(f, 8, &w, &h);
        size_t size;
        uint8_t *index = make_index(f, 1, &size);
        fl_jpeg_index opened;
        CHECK(fl_jpeg_index_open(&opened, index, size, across, down));
        fl_jpeg_mark *marks = marks_of(&opened);
        for (uint32_t row = 0; row < opened.rows; row++) marks[row * opened.across].dc[0] ^= 64;
        uint8_t *lying = with_marks(&opened, marks, &size);
        for (uint32_t columns = 1; columns < 6; columns++) {
            const fl_box b = {0, 0, columns * mcu, height};
            fl_view v;
            CHECK(fl_jpeg_baseline_decode(baseline, &b, 8, lying, size, &v));
            check_part(&v, &b, 8, full, w, h);
        }
        free(lying), free(full), free(index), free(f.bytes);
    }
}

/* An index made by the way has the marks that the walk finds, of the rows that were read, or of every
 * second, third ... in each row where less is allowed. */
static void learnt_marks(const uint8_t *index, size_t size, const fl_jpeg_index *walked, uint32_t down) {
    fl_jpeg_index learnt;
    CHECK(fl_jpeg_index_open(&learnt, index, size, (walked->across - 1) * walked->every + 1, down));
    CHECK(walked->every == 1 && learnt.rows >= 1 && learnt.rows <= down &&
          (learnt.rows < down || learnt.last));
    for (uint32_t row = 0; row < learnt.rows; row++) {
        fl_jpeg_cursor c = fl_jpeg_index_row(&learnt, row), truth = fl_jpeg_index_row(walked, row);
        do {
            while (truth.column < c.column) CHECK(fl_jpeg_index_next(&truth));
            CHECK(truth.column == c.column && memcmp(&truth.mark, &c.mark, sizeof c.mark) == 0);
        } while (fl_jpeg_index_next(&c));
    }
}

/* Boxes one after another of a file, each decoded by what those before it have taught: always the same
 * pixels, and an index that is complete with the second decode that adds to it. */
static void learns_by_the_way(void) {
    for (int i = 0; i < 400 / THIN; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 20 + (int)below(300), 20 + (int)below(200));
        file f = make(&r);
        uint32_t width, height, taught = 0, rows = 0;
        int w, h;
        unsigned char *full = decode_all(f, 8, &w, &h);
        size_t walked_size, size = 0;
        uint8_t *walk = make_index(f, 1, &walked_size), *index = NULL;
        CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
        const uint32_t across = (width - 1) / (8 * (uint32_t)r.h) + 1,
                       down = (height - 1) / (8 * (uint32_t)r.v) + 1;
        fl_jpeg_index walked, now = {.last = false};
        CHECK(fl_jpeg_index_open(&walked, walk, walked_size, across, down));
        const uint8_t *made;
        for (int j = 0; j < 12; j++) {
            const fl_box b = random_box(width, height, j + 1);
            fl_view v;
            size_t made_size;
            CHECK(fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height));
            if (j % 5 != 4) fl_jpeg_baseline_learn(baseline);
            CHECK(fl_jpeg_baseline_decode(baseline, &b, 8, index, size, &v));
            check_part(&v, &b, 8, full, w, h);
            fl_jpeg_baseline_learnt(baseline, below(4) ? SIZE_MAX : 60, &made, &made_size);
            if (j % 5 == 4 || now.last) CHECK(made_size == 0);
            if (!made_size) continue;
            learnt_marks(made, made_size, &walked, down);
            free(index);
            index = malloc(made_size);
            memcpy(index, made, size = made_size);
            CHECK(fl_jpeg_index_open(&now, index, size, across, down) &&
                  (now.rows > rows || (rows && now.rows == rows && now.last)));
            rows = now.rows;
            CHECK(++taught == 1 || now.last);
        }
        CHECK(taught >= 1 && taught <= 2);
        free(full), free(walk), free(index), free(f.bytes);
    }
}

/* Of a damaged file a decode that learns, and one by what was learnt, succeed where one without does, with
 * the same pixels. */
static void learns_of_damage(int rounds) {
    long both = 0, partly = 0;
    for (int i = 0; i < rounds; i++) {
        check_seed = noise_state;
        recipe r = random_recipe(i % 5, 20 + (int)below(200), 60 + (int)below(120));
        file f = make(&r);
        uint32_t width, height;
        f.size = damage(f.bytes, f.size);
        uint8_t *index = NULL;
        size_t size = 0, made_size;
        for (int j = 0; j < 8 && fl_jpeg_baseline_open(baseline, f.bytes, f.size, &width, &height); j++) {
            if ((uint64_t)width * height > 1 << 20) break;
            const fl_box b = random_box(width, height, j + 1);
            fl_view v;
            const bool plain = fl_jpeg_baseline_decode(baseline, &b, 8, NULL, 0, &v);
            uint8_t *pixels = plain ? malloc(v.stride * v.height) : NULL;
            if (plain) memcpy(pixels, v.pixels, v.stride * v.height);
            fl_jpeg_baseline_learn(baseline);
            CHECK(fl_jpeg_baseline_decode(baseline, &b, 8, index, size, &v) == plain);
            if (plain) CHECK(memcmp(pixels, v.pixels, v.stride * v.height) == 0);
            free(pixels);
            const uint8_t *made;
            fl_jpeg_baseline_learnt(baseline, SIZE_MAX, &made, &made_size);
            CHECK(plain || !made_size);
            both += plain && size, partly += !plain && size;
            if (!made_size) continue;
            free(index);
            index = malloc(made_size);
            memcpy(index, made, size = made_size);
        }
        free(index), free(f.bytes);
    }
    CHECK(both > rounds && partly > rounds / 20);
}

/* The end of a file is behind its EOI marker, whatever follows, and 0 where another marker or nothing ends
 * the coded data. */
static void ends_of_files(void) {
    for (int restart = 0; restart <= 3; restart += 3) {
        recipe r = {
            .width = 70, .height = 50, .quality = 97, .components = 3, .h = 2, .v = 2, .restart = restart};
        file f = make(&r);
        uint32_t width, height;
        uint8_t *copy = malloc(f.size + 9);
        memcpy(copy, f.bytes, f.size);
        memset(copy + f.size, 0xFF, 9); /* what a camera leaves there */
        CHECK(fl_jpeg_baseline_open(baseline, copy, f.size + 9, &width, &height) &&
              fl_jpeg_baseline_end(baseline) == f.size);
        CHECK(fl_jpeg_baseline_open(baseline, copy, f.size, &width, &height) &&
              fl_jpeg_baseline_end(baseline) == f.size);
        for (size_t cut = 1; cut < 40; cut++) {
            uint8_t *part = malloc(f.size - cut); /* of its own size, so that a read behind it is seen */
            memcpy(part, copy, f.size - cut);
            CHECK(fl_jpeg_baseline_open(baseline, part, f.size - cut, &width, &height) &&
                  fl_jpeg_baseline_end(baseline) == 0);
            free(part);
        }
        copy[f.size - 1] = 0xC4; /* a table where the end was */
        CHECK(fl_jpeg_baseline_open(baseline, copy, f.size + 9, &width, &height) &&
              fl_jpeg_baseline_end(baseline) == 0);
        CHECK(!fl_jpeg_baseline_open(baseline, copy, 3, &width, &height) &&
              fl_jpeg_baseline_end(baseline) == 0);
        free(copy);
        free(f.bytes);
    }
}

int main(int argc, char **argv) {
    create_own_decoder();
    if (argc > 2) noise_state = strtoull(argv[2], NULL, 0);
    if (argc > 1) { /* rounds and a seed: a longer search for disagreement */
        damaged(atoi(argv[1]));
    } else {
        refused();
        ends_of_files();
        stray_before_restart();
        every_small_size();
        every_quality();
        large_sizes();
        damaged(600 / THIN);
        lying_index();
        lies_are_found_out();
        learns_by_the_way();
        learns_of_damage(1500 / THIN);
    }
    fl_jpeg_entropy_free(entropy);
    fl_jpeg_baseline_free(baseline);
    fl_jpeg_baseline_free(NULL);
    return 0;
}
