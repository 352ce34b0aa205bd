/* Where rows of different sizes lie: apart from each other, inside the batch's bytes, in frames that hold
 * them; what is cleared, and what does not fit. */
#include "engine/target.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "draws.h"

enum { ROWS = 9 };

typedef struct batch {
    fl_target target;
    fl_place places[ROWS];
    uint32_t rows, multiple;
    fl_lay lay;
    size_t bytes;
    uint8_t *data;
} batch;

static void make(batch *b, fl_lay lay, bool bounded) {
    *b = (batch){.lay = lay, .rows = between(1, ROWS), .multiple = between(1, 5)};
    const bool planar = between(0, 1);
    const uint32_t size = 1u << between(0, 2);
    b->target = (fl_target){.unit = planar ? size : size * between(1, 4),
                            .planes = planar ? between(1, 4) : 1,
                            .bounded = bounded};
    b->target.sink.width = between(1, 12), b->target.sink.height = between(1, 12);
    for (uint32_t i = 0; i < b->rows; i++)
        if (between(0, 9)) b->places[i].width = between(1, 12), b->places[i].height = between(1, 12);
    if (lay != FL_LAY_EQUAL) b->target.places = b->places;
    fl_error err;
    CHECK(fl_target_lay(&b->target, b->rows, lay, b->multiple, &b->bytes, &err) == FL_OK);
    b->data = malloc(b->bytes ? b->bytes : 1);
    CHECK(b->data != NULL);
    memset(b->data, 0xA5, b->bytes);
    b->target.sink.data = b->data;
}

/* Calls `each` with every byte of the row's image. */
static void each_byte(const batch *b, uint32_t row, void (*each)(uint8_t *byte)) {
    const fl_target *t = &b->target;
    const fl_sink sink = fl_target_sink(t, row);
    for (uint32_t p = 0; p < t->planes; p++)
        for (uint32_t y = 0; y < sink.height; y++)
            for (size_t x = 0; x < (size_t)sink.width * t->unit; x++)
                each((uint8_t *)sink.data + (p * fl_sink_plane(&sink) + y * fl_sink_pitch(&sink)) * t->unit +
                     x);
}

static void once(uint8_t *byte) {
    CHECK(*byte == 0xA5); /* of no other row, nor of this one before */
    *byte = 1;
}
static void is_cleared(uint8_t *byte) { CHECK(*byte == 0); }
static void is_one(uint8_t *byte) { CHECK(*byte == 1); }

/* Each byte of an image belongs to one row, and the sanitizers see one that is not the batch's. */
static void test_rows_lie_apart(fl_lay lay) {
    batch b;
    make(&b, lay, false);
    uint32_t width = 0, height = 0;
    for (uint32_t i = 0; i < b.rows; i++) {
        const fl_sink sink = fl_target_sink(&b.target, i);
        if (lay == FL_LAY_EQUAL)
            CHECK(sink.width == b.target.sink.width && sink.height == b.target.sink.height);
        else CHECK(sink.width == b.places[i].width && sink.height == b.places[i].height);
        width = sink.width > width ? sink.width : width, height = sink.height > height ? sink.height : height;
        each_byte(&b, i, once);
    }
    for (uint32_t i = 0; lay == FL_LAY_FLAT && i < b.rows; i++)
        CHECK(b.places[i].at + b.places[i].bytes == (i + 1 < b.rows ? b.places[i + 1].at : b.bytes));
    if (lay == FL_LAY_PADDED) {
        CHECK(b.target.sink.width % b.multiple == 0 && b.target.sink.width - width < b.multiple);
        CHECK(b.target.sink.height % b.multiple == 0 && b.target.sink.height - height < b.multiple);
    }
    free(b.data);
}

/* After its margin is cleared, the row's frame is zeros but for the image, and no other row's byte has
 * changed. */
static void test_margins_are_cleared(void) {
    batch b;
    make(&b, FL_LAY_PADDED, false);
    const uint32_t row = between(0, b.rows - 1);
    each_byte(&b, row, once);
    fl_target_clear_margin(&b.target, row);
    each_byte(&b, row, is_one);
    for (size_t i = 0, ones = 0; i < b.bytes; i++) {
        const bool mine = i / b.target.row_bytes == row;
        CHECK(mine ? b.data[i] <= 1 : b.data[i] == 0xA5);
        ones += b.data[i] == 1;
        if (i + 1 == b.bytes)
            CHECK(ones ==
                  (size_t)b.places[row].width * b.places[row].height * b.target.unit * b.target.planes);
    }
    free(b.data);
}

static void test_rows_are_cleared(fl_lay lay) {
    batch b;
    make(&b, lay, false);
    const uint32_t row = between(0, b.rows - 1);
    for (uint32_t i = 0; i < b.rows; i++) each_byte(&b, i, once);
    fl_target_clear(&b.target, row);
    fl_target_clear_margin(&b.target, row);
    for (uint32_t i = 0; i < b.rows; i++) each_byte(&b, i, i == row ? is_cleared : is_one);
    free(b.data);
}

/* A row's size is what was said; of a bounded target, any that its place has room for, and then that. */
static void test_sizes_that_fit(fl_lay lay, bool bounded) {
    batch b;
    make(&b, lay, bounded);
    fl_error err;
    const uint32_t row = between(0, b.rows - 1), width = between(0, 14), height = between(0, 14);
    const fl_sink before = fl_target_sink(&b.target, row);
    const size_t room = b.places[row].bytes / b.target.unit / b.target.planes;
    bool fits = width == before.width && height == before.height;
    if (bounded && width && height)
        fits = lay != FL_LAY_PADDED ? (size_t)width * height <= room
                                    : width <= b.target.sink.width && height <= b.target.sink.height;
    const fl_code code = fl_target_fit(&b.target, row, width, height, &err);
    CHECK(code == (fits ? FL_OK : FL_ERECORD));
    const fl_sink after = fl_target_sink(&b.target, row);
    if (fits) CHECK(after.width == width && after.height == height);
    else CHECK(after.width == before.width && after.height == before.height);
    if (fits && width) each_byte(&b, row, once);
    if (fits) fl_target_clear_margin(&b.target, row);
    free(b.data);
}

static uint8_t mark_of(uint32_t row) { return (uint8_t)(row + 1); }

/* Frames whose images were smaller than their bounds become those of the images: each image is what it was,
 * all else is zeros. */
static void test_frames_are_tightened(void) {
    batch b;
    make(&b, FL_LAY_PADDED, true);
    const size_t before = b.target.row_bytes;
    fl_error err;
    uint32_t width = 0, height = 0;
    for (uint32_t i = 0; i < b.rows; i++) {
        const uint32_t w = between(0, b.places[i].width), h = w ? between(0, b.places[i].height) : 0;
        if (!h) {
            fl_target_clear(&b.target, i);
            CHECK(b.places[i].width == 0 && b.places[i].height == 0);
            continue;
        }
        CHECK(fl_target_fit(&b.target, i, w, h, &err) == FL_OK);
        fl_target_clear_margin(&b.target, i);
        const fl_sink sink = fl_target_sink(&b.target, i);
        for (uint32_t p = 0; p < b.target.planes; p++)
            for (uint32_t y = 0; y < h; y++)
                memset((uint8_t *)sink.data +
                           (p * fl_sink_plane(&sink) + y * fl_sink_pitch(&sink)) * b.target.unit,
                       mark_of(i), (size_t)w * b.target.unit);
        width = w > width ? w : width, height = h > height ? h : height;
    }
    fl_target_tighten(&b.target, b.rows, b.multiple);
    const fl_sink *frame = &b.target.sink;
    CHECK(frame->width % b.multiple == 0 && frame->width >= width && frame->width - width < b.multiple);
    CHECK(frame->height % b.multiple == 0 && frame->height >= height && frame->height - height < b.multiple);
    CHECK(b.target.row_bytes == (size_t)frame->width * frame->height * b.target.unit * b.target.planes &&
          b.target.row_bytes <= before);
    for (uint32_t i = 0; i < b.rows; i++) {
        CHECK(b.places[i].at == b.target.row_bytes * i && b.places[i].bytes == b.target.row_bytes);
        size_t marks = 0;
        for (size_t at = 0; at < b.target.row_bytes; at++) {
            const uint8_t byte = b.data[b.places[i].at + at];
            const size_t x = at / b.target.unit % frame->width,
                         y = at / b.target.unit / frame->width % frame->height;
            const bool inside = x < b.places[i].width && y < b.places[i].height;
            CHECK(byte == (inside ? mark_of(i) : 0));
            marks += inside;
        }
        CHECK(marks == (size_t)b.places[i].width * b.places[i].height * b.target.unit * b.target.planes);
    }
    free(b.data);
}

/* Batches that no memory holds are refused before anything overflows. */
static void test_what_is_too_large_is_refused(void) {
    fl_place places[2] = {{0, 0, FL_IMAGE_SIDE_MAX, FL_IMAGE_SIDE_MAX},
                          {0, 0, FL_IMAGE_SIDE_MAX, FL_IMAGE_SIDE_MAX}};
    fl_target target = {.unit = 12, .planes = 1, .places = places};
    fl_error err;
    size_t bytes;
    CHECK(fl_target_lay(&target, 2, FL_LAY_LIST, 1, &bytes, &err) == FL_OK && bytes == (size_t)24 << 48);
    target.unit = 64, target.planes = 4;
    for (fl_lay lay = FL_LAY_LIST; lay <= FL_LAY_FLAT; lay++) {
        CHECK(fl_target_lay(&target, 2, lay, 1, &bytes, &err) == FL_EARG);
        places[1].width++;
        CHECK(fl_target_lay(&target, 2, lay, 1, &bytes, &err) == FL_EARG);
        places[1].width--;
    }
    target.sink.width = target.sink.height = FL_IMAGE_SIDE_MAX;
    CHECK(fl_target_lay(&target, UINT32_MAX, FL_LAY_EQUAL, 1, &bytes, &err) == FL_EARG);
    CHECK(fl_target_lay(&target, 0, FL_LAY_EQUAL, 1, &bytes, &err) == FL_EARG);
    CHECK(fl_target_lay(&target, 1, FL_LAY_PADDED, 0, &bytes, &err) == FL_EARG);
    target.places = NULL;
    CHECK(fl_target_lay(&target, 1, FL_LAY_LIST, 1, &bytes, &err) == FL_EARG);
}

int main(void) {
    for (check_seed = 1; check_seed < 4000; check_seed++) {
        noise_state = check_seed * 0x9E3779B97F4A7C15u;
        for (fl_lay lay = FL_LAY_EQUAL; lay <= FL_LAY_FLAT; lay++) {
            test_rows_lie_apart(lay);
            test_rows_are_cleared(lay);
            test_sizes_that_fit(lay, lay != FL_LAY_EQUAL && between(0, 1));
        }
        test_margins_are_cleared();
        test_frames_are_tightened();
    }
    test_what_is_too_large_is_refused();
    return 0;
}
