#include "store/planes_zlib.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

#include "common/deflate.h"

enum { SUB = 1, UP = 2, LEVEL = 6 };
static const fl_buffer_rule RULE = {.least = 1 << 14, .keep = 1 << 22};

struct fl_planes_inflater {
    const fl_planes *planes;
    z_stream stream;
    uint32_t strip; /* the one in scratch; UINT32_MAX: none */
};

static uint32_t rows_of(uint32_t height, uint32_t strip) {
    const uint32_t left = height - strip * FL_PLANES_STRIP;
    return left < FL_PLANES_STRIP ? left : FL_PLANES_STRIP;
}

fl_code fl_planes_inflater_create(const fl_planes *planes, fl_planes_inflater **out, fl_error *err) {
    fl_planes_inflater *made = calloc(1, sizeof *made);
    if (!made || inflateInit(&made->stream) != Z_OK) {
        free(made);
        return fl_fail(err, FL_ENOMEM, "no memory to inflate planes");
    }
    made->planes = planes;
    made->strip = UINT32_MAX;
    *out = made;
    return FL_OK;
}

void fl_planes_inflater_free(fl_planes_inflater *inflater) {
    if (!inflater) return;
    inflateEnd(&inflater->stream);
    free(inflater);
}

static inline uint32_t value_at(const uint8_t *at, uint32_t depth) {
    return depth == 1 ? *at : fl_bytes_le16(at);
}

static inline void put_value(uint8_t *at, uint32_t value, uint32_t depth) {
    at[0] = (uint8_t)value;
    if (depth == 2) at[1] = (uint8_t)(value >> 8);
}

/* Undoes a row's filter: `coded` are the bytes after the filter's. */
static void unfilter(uint8_t *row, const uint8_t *coded, size_t values, uint32_t channels, uint32_t depth,
                     const uint8_t *above) {
    for (size_t i = 0; i < values; i++) {
        const uint32_t step = coded[i] | (depth == 2 ? (uint32_t)coded[values + i] << 8 : 0);
        uint32_t base = 0;
        if (above) {
            base = value_at(above + i * depth, depth);
        } else if (i >= channels) {
            base = value_at(row + (i - channels) * depth, depth);
        }
        put_value(row + i * depth, base + step, depth);
    }
}

static void filter(uint8_t *coded, const uint8_t *row, size_t values, uint32_t channels, uint32_t depth,
                   const uint8_t *above) {
    for (size_t i = 0; i < values; i++) {
        uint32_t base = 0;
        if (above) {
            base = value_at(above + i * depth, depth);
        } else if (i >= channels) {
            base = value_at(row + (i - channels) * depth, depth);
        }
        const uint32_t step = value_at(row + i * depth, depth) - base;
        coded[i] = (uint8_t)step;
        if (depth == 2) coded[values + i] = (uint8_t)(step >> 8);
    }
}

static fl_code inflate_strip(fl_planes_inflater *f, uint32_t strip, fl_buffer *scratch, fl_error *err) {
    const fl_planes *p = f->planes;
    const uint32_t rows = rows_of(p->height, strip), depth = p->pixel / p->channels;
    const size_t stride = (size_t)p->width * p->pixel, coded = stride + 1;
    fl_span bytes;
    const fl_code code = fl_planes_strip(p, strip, &bytes, err);
    if (code) return code;
    f->strip = UINT32_MAX;
    if (rows * coded / FL_DEFLATE_RATIO_MOST > bytes.size) /* before memory is asked for */
        return fl_fail(err, FL_ERECORD, "strip %" PRIu32 " of its planes has %zu bytes for %" PRIu32 " rows",
                       strip, bytes.size, rows);
    if (!fl_buffer_fit(scratch, rows, stride + coded, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu32 " rows of %" PRIu32 " pixels", rows,
                       p->width);
    uint8_t *pixels = scratch->bytes, *from = pixels + rows * stride;
    inflateReset(&f->stream);
    f->stream.next_in = (Bytef *)bytes.bytes, f->stream.avail_in = (uInt)bytes.size;
    f->stream.next_out = from, f->stream.avail_out = (uInt)(rows * coded);
    if (inflate(&f->stream, Z_FINISH) != Z_STREAM_END || f->stream.avail_out || f->stream.avail_in)
        return fl_fail(err, FL_ERECORD, "strip %" PRIu32 " of its planes does not inflate to its rows",
                       strip);
    for (uint32_t y = 0; y < rows; y++) {
        const uint8_t kind = from[y * coded];
        if (kind != SUB && (kind != UP || !y))
            return fl_fail(err, FL_ERECORD, "a row of its planes has filter %d", kind);
        uint8_t *row = pixels + y * stride;
        unfilter(row, from + y * coded + 1, (size_t)p->width * p->channels, p->channels, depth,
                 kind == UP ? row - stride : NULL);
    }
    f->strip = strip;
    return FL_OK;
}

fl_code fl_planes_inflater_row(fl_planes_inflater *f, uint32_t row, fl_buffer *scratch, const uint8_t **out,
                               fl_error *err) {
    if (f->strip != row / FL_PLANES_STRIP) {
        const fl_code code = inflate_strip(f, row / FL_PLANES_STRIP, scratch, err);
        if (code) return code;
    }
    *out = (const uint8_t *)scratch->bytes +
           (size_t)(row % FL_PLANES_STRIP) * f->planes->width * f->planes->pixel;
    return FL_OK;
}

/* PNG's measure of a filtered row: the sum of its bytes as signed numbers. */
static uint64_t cost(const uint8_t *coded, size_t size) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++) sum += coded[i] < 128 ? coded[i] : 256u - coded[i];
    return sum;
}

/* Filters the rows of a strip: each in the way that costs less. `other` has room for a row. */
static void filter_strip(uint8_t *coded, uint8_t *other, const uint8_t *pixels, uint32_t rows, size_t values,
                         uint32_t channels, uint32_t depth) {
    const size_t stride = values * depth;
    for (uint32_t y = 0; y < rows; y++, coded += stride + 1, pixels += stride) {
        coded[0] = SUB;
        filter(coded + 1, pixels, values, channels, depth, NULL);
        if (!y) continue;
        filter(other, pixels, values, channels, depth, pixels - stride);
        if (cost(other, stride) >= cost(coded + 1, stride)) continue;
        coded[0] = UP;
        memcpy(coded + 1, other, stride);
    }
}

fl_code fl_planes_deflate(const uint8_t *pixels, uint32_t height, uint32_t width, uint32_t channels,
                          uint32_t depth, uint8_t *out, size_t room, size_t *size, fl_error *err) {
    const size_t values = (size_t)width * channels, stride = values * depth;
    const uint32_t strips = (height + FL_PLANES_STRIP - 1) / FL_PLANES_STRIP;
    const size_t table = 4 * (size_t)strips;
    *size = 0;
    if (table >= room) return FL_OK;
    uint8_t *coded = malloc(FL_PLANES_STRIP * (stride + 1) + stride);
    z_stream stream = {0};
    if (!coded || deflateInit(&stream, LEVEL) != Z_OK) {
        free(coded);
        return fl_fail(err, FL_ENOMEM, "no memory to deflate planes");
    }
    size_t used = table;
    bool fits = true;
    for (uint32_t strip = 0; strip < strips && fits; strip++) {
        const uint32_t rows = rows_of(height, strip);
        const uint8_t *first = pixels + (size_t)strip * FL_PLANES_STRIP * stride;
        filter_strip(coded, coded + FL_PLANES_STRIP * (stride + 1), first, rows, values, channels, depth);
        deflateReset(&stream);
        stream.next_in = coded, stream.avail_in = (uInt)(rows * (stride + 1));
        stream.next_out = out + used,
        stream.avail_out = (uInt)(room - used < UINT32_MAX ? room - used : UINT32_MAX);
        const uInt before = stream.avail_out;
        fits = deflate(&stream, Z_FINISH) == Z_STREAM_END;
        used += before - stream.avail_out;
        fl_bytes_put_le32(out + 4 * (size_t)strip, (uint32_t)(used - table));
    }
    deflateEnd(&stream);
    free(coded);
    *size = fits ? used : 0;
    return FL_OK;
}
