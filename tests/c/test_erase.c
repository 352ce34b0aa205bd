/* fl_erase_run: one box of the op's value in a row of any dtype, layout and frame, and not a byte outside of
 * it; a flip after it mirrors the box. Boxes and values are torchvision's in
 * tests/dataset/test_native_erasing.py. */
#include "engine/erase.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "draws.h"

enum { ROUNDS = 4000 / THIN, CHANNELS = 3, UNTOUCHED = 0xA5 };

/* A row inside of a frame. */
typedef struct row {
    fl_sink sink;
    size_t bytes, size; /* of all, and of a value */
} row;

static void make_table(float table[CHANNELS][256]) {
    for (int c = 0; c < CHANNELS; c++)
        for (int i = 0; i < 256; i++) table[c][i] = (float)(256 * c + i + 1);
}

static row some_row(const void *table) {
    static const fl_dtype DTYPES[4] = {FL_U8, FL_F32, FL_F16, FL_BF16};
    row made = {.sink = {.width = between(1, 40),
                         .height = between(1, 30),
                         .dtype = DTYPES[below(4)],
                         .layout = below(2) ? FL_CHW : FL_HWC,
                         .hflip = below(2) == 1}};
    fl_sink *sink = &made.sink;
    if (below(2)) {
        sink->pitch = sink->width + below(5);
        sink->plane = sink->pitch * (size_t)(sink->height + below(3));
    }
    made.size = sink->dtype == FL_U8 ? 1 : sink->dtype == FL_F32 ? 4 : 2;
    made.bytes = fl_sink_plane(sink) * CHANNELS * made.size;
    sink->lut = sink->dtype == FL_U8 ? NULL : table;
    sink->data = malloc(made.bytes);
    CHECK(sink->data);
    memset(sink->data, UNTOUCHED, made.bytes);
    return made;
}

static size_t place_of(const row *r, size_t x, size_t y, size_t c) {
    const fl_sink *sink = &r->sink;
    const size_t at = y * fl_sink_pitch(sink) + x;
    return (sink->layout == FL_CHW ? c * fl_sink_plane(sink) + at : CHANNELS * at + c) * r->size;
}

static bool is_touched(const row *r, size_t x, size_t y) {
    const uint8_t *value = (const uint8_t *)r->sink.data + place_of(r, x, y, 0);
    for (size_t i = 0; i < r->size; i++)
        if (value[i] != UNTOUCHED) return true;
    return false;
}

/* The smallest box of all that was touched. */
static fl_box box_of(const row *r) {
    uint32_t left = r->sink.width, top = r->sink.height, right = 0, bottom = 0;
    for (uint32_t y = 0; y < r->sink.height; y++)
        for (uint32_t x = 0; x < r->sink.width; x++) {
            if (!is_touched(r, x, y)) continue;
            left = x < left ? x : left, right = x + 1 > right ? x + 1 : right;
            top = y < top ? y : top, bottom = y + 1 > bottom ? y + 1 : bottom;
        }
    return right ? (fl_box){left, top, right - left, bottom - top} : (fl_box){0, 0, 0, 0};
}

/* The box has one colour, and nothing else was touched. */
static void check_filled(const row *r, fl_box box) {
    uint8_t *want = malloc(r->bytes);
    CHECK(want);
    memset(want, UNTOUCHED, r->bytes);
    for (size_t y = box.y; y < box.y + box.height; y++)
        for (size_t x = box.x; x < box.x + box.width; x++)
            for (size_t c = 0; c < CHANNELS; c++)
                memcpy(want + place_of(r, x, y, c),
                       (const uint8_t *)r->sink.data + place_of(r, box.x, box.y, c), r->size);
    CHECK(memcmp(want, r->sink.data, r->bytes) == 0);
    free(want);
}

static void check_value(const row *r, fl_box box, const fl_op *op, float table[CHANNELS][256]) {
    for (size_t c = 0; c < CHANNELS && box.width; c++) {
        const uint8_t *at = (const uint8_t *)r->sink.data + place_of(r, box.x, box.y, c);
        const float value = op->floats ? op->values[c] : table[c][op->fill[c]];
        if (r->sink.dtype == FL_U8) CHECK(*at == op->fill[c]);
        if (r->sink.dtype == FL_F32) CHECK(memcmp(at, &value, sizeof value) == 0);
    }
}

static fl_op some_op(bool floats) {
    fl_op op = {.kind = FL_OP_ERASE, .stream = 0x8000, .p = below(4) ? 1 : unit(), .option_count = 4};
    op.options[0] = unit(), op.options[1] = op.options[0] + unit() * (1 - op.options[0]);
    op.options[2] = exp(4 * unit() - 2), op.options[3] = op.options[2] * (1 + (below(3) ? unit() : 0));
    for (int c = 0; c < CHANNELS; c++) op.fill[c] = (uint8_t)below(UNTOUCHED);
    op.floats = floats;
    for (int c = 0; c < CHANNELS; c++) op.values[c] = (float)(1 + unit());
    return op;
}

static void one_box_is_filled(void) {
    float table[CHANNELS][256];
    make_table(table);
    const row plain = some_row(table);
    row mirrored = plain;
    const fl_sink *sink = &plain.sink;
    const fl_key key = {noise64(), noise(), noise64()};
    fl_program program = {.count = 1, .ops = {some_op(sink->dtype != FL_U8 && below(2))}};
    fl_error err;
    CHECK(fl_erase_run(&program, key, sink, &err) == FL_OK);
    const fl_box box = box_of(&plain);
    check_filled(&plain, box);
    check_value(&plain, box, &program.ops[0], table);
    mirrored.sink.data = malloc(plain.bytes);
    CHECK(mirrored.sink.data);
    memset(mirrored.sink.data, UNTOUCHED, plain.bytes);
    program.count = 3;
    program.ops[1] = (fl_op){.kind = FL_OP_HFLIP, .p = 1},
    program.ops[2] = (fl_op){.kind = FL_OP_VFLIP, .p = 1};
    CHECK(fl_erase_run(&program, key, &mirrored.sink, &err) == FL_OK);
    const fl_box other = box_of(&mirrored);
    check_filled(&mirrored, other);
    CHECK(box.width == other.width && box.height == other.height);
    if (box.width) {
        CHECK(box.x + box.width == sink->width - other.x && box.y + box.height == sink->height - other.y);
        CHECK(box.width < sink->width && box.height < sink->height);
    }
    free(sink->data), free(mirrored.sink.data);
}

static void what_cannot_be_filled_is_an_error(void) {
    uint8_t data[12] = {0};
    fl_program program = {.count = 1, .ops = {some_op(true)}};
    const fl_sink bytes = {.data = data, .width = 2, .height = 2, .dtype = FL_U8, .layout = FL_HWC};
    fl_sink planes = bytes;
    fl_error err;
    CHECK(fl_erase_run(&program, (fl_key){1, 2, 3}, &bytes, &err) == FL_EARG);
    planes.channels = planes.depth = 1;
    CHECK(fl_erase_run(&program, (fl_key){1, 2, 3}, &planes, &err) == FL_EUNSUPPORTED);
}

int main(void) {
    what_cannot_be_filled_is_an_error();
    for (int i = 0; i < ROUNDS; i++) {
        check_seed = noise_state;
        one_box_is_filled();
    }
    return 0;
}
