/* A PNG of every colour and filter comes out as a plain unfilter makes it; cut anywhere, or with a byte of
 * its chunks changed, it is refused or read within its bytes. */
#include "png/pixels.h"

#include "check.h"
#include "draws.h"
#include "png_maker.h"
#include "png/unfilter.h"

enum { ROWS = 12, WIDTH = 21, ROUNDS = 400 };

/* In a block of its own size, so that a sanitizer sees a read beyond it. */
static fl_code open_copy(const uint8_t *file, size_t size, fl_png_reader *reader) {
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, file, size);
    fl_png png;
    fl_view view;
    fl_error err;
    fl_code code = fl_png_open((fl_span){copy, size}, &png, &err);
    if (!code && (uint64_t)png.width * png.height < 1 << 16)
        code = fl_png_reader_box(reader, &png, (fl_box){0, 0, png.width, png.height}, &view, &err);
    CHECK(code == FL_OK || code == FL_EUNSUPPORTED);
    free(copy);
    return code;
}

static void check_damage(const fl_png *png, const uint8_t *rows, size_t size, fl_png_reader *reader) {
    uint8_t *file = malloc(2 * PNG_LARGEST);
    CHECK(file);
    const size_t bytes = png_make(png, rows, size, 40, file);
    CHECK(open_copy(file, bytes, reader) == FL_OK);
    for (size_t cut = 0; cut < bytes; cut++) CHECK(open_copy(file, cut, reader) == FL_EUNSUPPORTED);
    for (size_t at = 0; at < bytes; at++) {
        file[at] ^= 1u << below(8);
        (void)open_copy(file, bytes, reader);
        file[at] ^= (uint8_t)noise();
        (void)open_copy(file, bytes, reader);
        CHECK(png_make(png, rows, size, 40, file) == bytes);
    }
    free(file);
}

/* Rows of every step that a pixel can have, in blocks of their own size. */
static void check_filters(void) {
    static const uint32_t steps[6] = {1, 2, 3, 4, 6, 8};
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t step = steps[round % 6], width = 1 + below(40);
        const size_t row = (size_t)step * width, size = 3 * (row + 1) + FL_PNG_BEYOND;
        uint8_t *made = calloc(1, size), *plain = calloc(1, size);
        CHECK(made && plain);
        for (size_t i = row + 1; i < 3 * (row + 1); i++) made[i] = (uint8_t)noise();
        for (int y = 1; y < 3; y++) made[y * (row + 1)] = (uint8_t)below(5);
        memcpy(plain, made, size);
        png_plain_unfilter(plain + row + 1, row, 2, step);
        for (int y = 1; y < 3; y++)
            CHECK(fl_png_unfilter(made + y * (row + 1) + 1, made + (y - 1) * (row + 1) + 1, row, step));
        CHECK(!memcmp(made, plain, size));
        made[row + 1] = 5;
        CHECK(!fl_png_unfilter(made + row + 2, made + 1, row, step));
        free(made), free(plain);
    }
}

int main(void) {
    static const uint8_t colours[6] = {1, 2, 3, 200, 100, 0};
    const fl_png forms[4] = {{.colour = FL_PNG_GREY, .bits = 1},
                             {.colour = FL_PNG_RGB, .bits = 8},
                             {.colour = FL_PNG_PALETTE, .bits = 4, .palette = {colours, 6}},
                             {.colour = FL_PNG_RGB_ALPHA, .bits = 16}};
    fl_png_reader *reader;
    fl_error err;
    CHECK(fl_png_reader_create(&reader, &err) == FL_OK);
    for (int i = 0; i < 4; i++) {
        fl_png png = forms[i];
        png.width = WIDTH, png.height = ROWS;
        const size_t row = fl_png_row(&png), size = ROWS * (row + 1);
        uint8_t *rows = malloc(size);
        CHECK(rows);
        for (size_t at = 0; at < size; at++)
            rows[at] = at % (row + 1) ? (uint8_t)(noise() % 7) : (uint8_t)below(5);
        check_damage(&png, rows, size, reader);
        free(rows);
    }
    check_filters();
    fl_png_reader_free(reader);
    puts("png: ok");
    return 0;
}
