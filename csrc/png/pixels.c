#include "png/pixels.h"

#include <libdeflate.h>
#include <stdlib.h>

#include "common/buffer.h"
#include "common/deflate.h"
#include "png/unfilter.h"

static const fl_buffer_rule RULE = {.least = 1 << 16, .keep = 1 << 24};

struct fl_png_reader {
    struct libdeflate_decompressor *inflater;
    fl_buffer joined; /* the data of several chunks */
    fl_buffer rows;   /* as they are stored: a row of zeros, then each with its filter's byte before it */
    fl_buffer rgb;    /* of the box */
    uint8_t colours[256][3]; /* of grey and of a palette: RGB of each value */
};

fl_code fl_png_reader_create(fl_png_reader **out, fl_error *err) {
    fl_png_reader *reader = calloc(1, sizeof *reader);
    if (reader) reader->inflater = libdeflate_alloc_decompressor();
    *out = reader;
    if (reader && reader->inflater) return FL_OK;
    fl_png_reader_free(reader);
    *out = NULL;
    return fl_fail(err, FL_ENOMEM, "no memory for a decoder of PNGs");
}

void fl_png_reader_free(fl_png_reader *reader) {
    if (!reader) return;
    libdeflate_free_decompressor(reader->inflater);
    fl_buffer_free(&reader->joined);
    fl_buffer_free(&reader->rows);
    fl_buffer_free(&reader->rgb);
    free(reader);
}

static fl_code fit(fl_buffer *buffer, size_t count, size_t size, fl_error *err) {
    if (fl_buffer_fit(buffer, count, size, RULE)) return FL_OK;
    return fl_fail(err, FL_ENOMEM, "no memory for %zu bytes of a PNG", count * size);
}

/* Inflates all rows to `out`. */
static fl_code inflate_rows(fl_png_reader *reader, const fl_png *png, uint8_t *out, size_t size,
                            fl_error *err) {
    const uint8_t *data = png->chunks.bytes + 8;
    if (png->chunks.size != png->compressed + 12) {
        const fl_code code = fit(&reader->joined, png->compressed, 1, err);
        if (code) return code;
        fl_png_join(png, reader->joined.bytes);
        data = reader->joined.bytes;
    }
    const enum libdeflate_result result =
        libdeflate_zlib_decompress(reader->inflater, data, png->compressed, out, size, NULL);
    if (result == LIBDEFLATE_SUCCESS) return FL_OK;
    return fl_fail(err, FL_EUNSUPPORTED, "the PNG's data %s",
                   result == LIBDEFLATE_BAD_DATA ? "is damaged" : "is not that of its rows");
}

static void fill_colours(fl_png_reader *reader, const fl_png *png) {
    const uint32_t most = png->bits < 8 ? (1u << png->bits) - 1 : 255;
    for (uint32_t value = 0; value <= most; value++) {
        uint8_t *rgb = reader->colours[value];
        if (png->colour != FL_PNG_PALETTE) memset(rgb, (int)(value * 255 / most), 3);
        else if (3 * (size_t)value < png->palette.size) memcpy(rgb, png->palette.bytes + 3 * value, 3);
        else memset(rgb, 0, 3);
    }
}

/* Pixels x .. x + count of a row, of samples below a byte or of a byte, by their colours. */
static void look_up(const fl_png_reader *reader, const fl_png *png, const uint8_t *row, uint32_t x,
                    uint32_t count, uint8_t *out) {
    const uint32_t bits = png->bits, mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < count; i++, out += 3) {
        const size_t bit = (size_t)(x + i) * bits;
        memcpy(out, reader->colours[row[bit / 8] >> (8 - bits - bit % 8) & mask], 3);
    }
}

/* Pixels of whole bytes: of 16-bit samples the high byte, without alpha. */
static void narrow(const fl_png *png, const uint8_t *row, uint32_t x, uint32_t count, uint8_t *out) {
    const uint32_t step = fl_png_step(png), sample = png->bits / 8;
    const bool coloured = png->colour == FL_PNG_RGB || png->colour == FL_PNG_RGB_ALPHA;
    const uint8_t *from = row + (size_t)x * step;
    for (uint32_t i = 0; i < count; i++, from += step, out += 3)
        for (uint32_t c = 0; c < 3; c++) out[c] = from[coloured ? c * sample : 0];
}

/* Grey of 16 bits, which Pillow clips. */
static void clip(const uint8_t *row, uint32_t x, uint32_t count, uint8_t *out) {
    for (uint32_t i = 0; i < count; i++, out += 3) {
        const uint32_t value = fl_bytes_be16(row + 2 * (size_t)(x + i));
        memset(out, value < 255 ? (int)value : 255, 3);
    }
}

static void to_rgb(const fl_png_reader *reader, const fl_png *png, const uint8_t *row, uint32_t x,
                   uint32_t count, uint8_t *out) {
    const bool single = png->colour == FL_PNG_GREY || png->colour == FL_PNG_PALETTE;
    if (single && png->bits == 16) clip(row, x, count, out);
    else if (single) look_up(reader, png, row, x, count, out);
    else narrow(png, row, x, count, out);
}

/* The rows of a box, whose filters are undone, as RGB. */
static fl_code convert(fl_png_reader *reader, const fl_png *png, fl_box box, const uint8_t *rows,
                       fl_view *view, fl_error *err) {
    const size_t pitch = fl_png_row(png) + 1;
    *view = (fl_view){.width = box.width, .height = box.height};
    if (png->colour == FL_PNG_RGB && png->bits == 8) { /* as they are stored */
        view->pixels = rows + box.y * pitch + 3 * (size_t)box.x;
        view->stride = pitch;
        view->tail = FL_PNG_BEYOND;
        return FL_OK;
    }
    const fl_code code = fit(&reader->rgb, box.height, 3 * (size_t)box.width, err);
    if (code) return code;
    fill_colours(reader, png);
    view->pixels = reader->rgb.bytes, view->stride = 3 * (size_t)box.width;
    for (uint32_t y = 0; y < box.height; y++)
        to_rgb(reader, png, rows + (box.y + y) * pitch, box.x, box.width,
               (uint8_t *)reader->rgb.bytes + y * view->stride);
    return FL_OK;
}

fl_code fl_png_reader_box(fl_png_reader *reader, const fl_png *png, fl_box box, fl_view *view,
                          fl_error *err) {
    const size_t size = fl_png_row(png), pitch = size + 1;
    if (pitch * png->height / FL_DEFLATE_RATIO_MOST > png->compressed) /* before memory is asked for */
        return fl_fail(err, FL_EUNSUPPORTED, "the PNG has %zu bytes of data for %u x %u pixels",
                       png->compressed, png->width, png->height);
    fl_code code = fit(&reader->rows, ((size_t)png->height + 1) * pitch + FL_PNG_BEYOND, 1, err);
    if (code) return code;
    uint8_t *rows = (uint8_t *)reader->rows.bytes + pitch;
    memset(reader->rows.bytes, 0, pitch);
    code = inflate_rows(reader, png, rows, pitch * png->height, err);
    if (code) return code;
    const uint8_t *above = (uint8_t *)reader->rows.bytes + 1;
    for (uint32_t y = 0; y < png->height; y++) {
        uint8_t *row = rows + y * pitch + 1;
        if (y >= box.y + box.height) {
            if (row[-1] > 4)
                return fl_fail(err, FL_EUNSUPPORTED, "the PNG has a row with filter %d", row[-1]);
        } else if (!fl_png_unfilter(row, above, size, fl_png_step(png))) {
            return fl_fail(err, FL_EUNSUPPORTED, "the PNG has a row with filter %d", row[-1]);
        }
        above = row;
    }
    return convert(reader, png, box, rows + 1, view, err);
}
