/* A PNG: hostile bytes are FL_EUNSUPPORTED or pixels, whatever box is asked for the same; and rows of any
 * form and filters, made into a file, come out as a plain unfilter makes them. */
#include "fuzz_pictures.h"
#include "png/pixels.h"
#include "png_maker.h"

enum { MOST = 1 << 14 /* pixels of a picture that is decoded */ };

static fl_png_reader *reader;

static uint8_t *read_box(const fl_png *png, fl_box box, fl_code *code) {
    fl_view view;
    fl_error err;
    *code = fl_png_reader_box(reader, png, box, &view, &err);
    fuzz_known(*code, &err, FUZZ_CODE(FL_EUNSUPPORTED));
    return *code ? NULL : fuzz_pixels(&view, box);
}

/* All of the file, in a block of its own size; NULL: it is refused. Any box of it is what the whole says. */
static uint8_t *check_file(const uint8_t *data, size_t size, fl_png *png) {
    fl_error err;
    fl_code code = fl_png_open((fl_span){data, size}, png, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_EUNSUPPORTED));
    if (code || (uint64_t)png->width * png->height > MOST) return NULL;
    uint8_t *whole = read_box(png, (fl_box){0, 0, png->width, png->height}, &code);
    const fl_box box = fuzz_box(png->width, png->height);
    fl_code again;
    uint8_t *part = read_box(png, box, &again);
    CHECK(again == code);
    if (part) fuzz_check_part(part, box, whole, png->width);
    free(part);
    return whole;
}

/* The 8-bit value of a channel of a pixel, from unfiltered rows. */
static uint8_t value_of(const fl_png *png, const uint8_t *row, uint32_t x, uint32_t channel) {
    const uint32_t step = fl_png_step(png), bits = png->bits, mask = bits < 8 ? (1u << bits) - 1 : 255;
    if (png->colour == FL_PNG_RGB || png->colour == FL_PNG_RGB_ALPHA)
        return row[(size_t)x * step + channel * bits / 8];
    if (png->colour == FL_PNG_GREY_ALPHA) return row[(size_t)x * step];
    if (bits == 16) return row[2 * x] ? 255 : row[2 * x + 1];
    const uint32_t value = row[(size_t)x * bits / 8] >> (8 - bits - x * bits % 8) & mask;
    if (png->colour == FL_PNG_GREY) return (uint8_t)(value * (255 / mask));
    return 3 * value + channel < png->palette.size ? png->palette.bytes[3 * value + channel] : 0;
}

/* Reads the bytes as rows of some form, and makes a file of them. */
static void check_rows(const uint8_t *data, size_t size) {
    static const uint8_t forms[15][2] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
                                         {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};
    static const uint8_t colours[12] = {0, 1, 2, 50, 60, 70, 255, 254, 253, 9, 99, 199};
    const uint8_t *form = forms[data[0] % 15];
    fl_png made = {.width = 1 + data[1] % 40,
                   .colour = (fl_png_colour)form[0],
                   .bits = form[1],
                   .palette = {colours, 3 + 3 * (data[2] % 2)}},
           png;
    const size_t row = fl_png_row(&made);
    made.height = (uint32_t)((size - 3) / (row + 1) < 60 ? (size - 3) / (row + 1) : 60);
    if (!made.height) return;
    uint8_t *rows = fuzz_copy(data + 3, made.height * (row + 1)), *file = fuzz_allocate(2 * PNG_LARGEST);
    for (uint32_t y = 0; y < made.height; y++) rows[y * (row + 1)] %= 5;
    const size_t bytes = png_make(&made, rows, made.height * (row + 1), 1 + below(400), file);
    uint8_t *exact = fuzz_copy(file, bytes), *pixels = check_file(exact, bytes, &png);
    CHECK(pixels && png.width == made.width && png.height == made.height);
    png_plain_unfilter(rows, row, made.height, fl_png_step(&made));
    for (uint32_t y = 0; y < made.height; y++)
        for (uint32_t i = 0; i < 3 * made.width; i++)
            CHECK(pixels[3 * (size_t)made.width * y + i] ==
                  value_of(&made, rows + y * (row + 1) + 1, i / 3, i % 3));
    fuzz_count("pictures made and read");
    free(rows), free(file), free(exact), free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    fl_png png;
    if (!reader) CHECK(fl_png_reader_create(&reader, &err) == FL_OK);
    fuzz_draws_from_hash(data, size);
    uint8_t *copy = fuzz_copy(data, size), *pixels = check_file(copy, size, &png);
    if (pixels) fuzz_count("files that hold");
    free(pixels), free(copy);
    if (size > 8 && size < PNG_LARGEST / 2) check_rows(data, size);
    return 0;
}

/* Blind mutations; then mostly the checksums that they broke are made right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    draws_at = draws_end = NULL;
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (noise() % 4 == 0) return size;
    for (size_t at = 8; at + 12 <= size;) {
        const size_t content = fl_bytes_be32(data + at);
        if (content > size - at - 12) break;
        png_put32(data + at + 8 + content, libdeflate_crc32(0, data + at + 4, content + 4));
        at += content + 12;
    }
    return size;
}
