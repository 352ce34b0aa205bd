#include "store/planes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/edges.h"
#include "store/planes_runs.h"
#include "store/planes_zlib.h"

/* runs of a 16th of the pixels' bytes are taken without asking what zlib makes of them */
enum { SMALL = 16 };
static const uint64_t ENTRY_MOST = 0xFFFF0000; /* bytes: a record has at most 4 GiB */
static const fl_buffer_rule RULE = {.least = 1 << 12, .keep = 1 << 22};

/* Layout of the columns that are asked for: it decides how a row is copied. */
typedef struct columns {
    const uint32_t *numbers; /* NULL: `first` and those after it */
    uint32_t first, count;
    const uint32_t *edges; /* of runs, where the numbers rise or fall: see store/edges.h; else NULL */
    uint32_t stop; /* columns from here on are not shown */
} columns;

static void pick(const uint8_t *row, uint32_t pixel, const columns *c, uint8_t *out) {
    if (!c->numbers) {
        memcpy(out, row + (size_t)c->first * pixel, (size_t)c->count * pixel);
        return;
    }
    switch (pixel) {
    case 1:
        for (uint32_t j = 0; j < c->count; j++) out[j] = row[c->numbers[j]];
        return;
    case 2:
        for (uint32_t j = 0; j < c->count; j++)
            memcpy(out + 2 * (size_t)j, row + 2 * (size_t)c->numbers[j], 2);
        return;
    default:
        for (uint32_t j = 0; j < c->count; j++)
            memcpy(out + (size_t)pixel * j, row + (size_t)pixel * c->numbers[j], pixel);
    }
}

/* Reads rows one after another, in any order. */
typedef struct reader {
    const fl_planes *planes;
    fl_planes_cursor cursor;
    fl_planes_inflater *inflater;
    fl_buffer *scratch;
    fl_span shown; /* the runs of the row that was read last */
} reader;

/* `above`: what was made of the row that was read last; NULL: this is the first. */
static fl_code read_runs(reader *r, uint32_t row, const columns *c, const uint8_t *above, uint8_t *out,
                         fl_error *err) {
    fl_code code = fl_planes_runs_seek(r->planes, &r->cursor, row, err);
    if (code) return code;
    const fl_span last = r->shown;
    r->shown = r->cursor.runs;
    if (above && last.bytes == r->shown.bytes && last.size == r->shown.size) {
        memcpy(out, above, (size_t)c->count * r->planes->pixel);
        return FL_OK;
    }
    if (!c->numbers) return fl_planes_runs_fill(r->planes, r->cursor.runs, c->first, c->count, out, err);
    if (c->edges) return fl_planes_runs_pick(r->planes, r->cursor.runs, c->edges, c->stop, out, err);
    if (!fl_buffer_fit(r->scratch, r->planes->width, r->planes->pixel, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for a row of %" PRIu32 " pixels", r->planes->width);
    code = fl_planes_runs_fill(r->planes, r->cursor.runs, 0, r->planes->width, r->scratch->bytes, err);
    if (!code) pick(r->scratch->bytes, r->planes->pixel, c, out);
    return code;
}

static fl_code read_row(reader *r, uint32_t row, const columns *c, const uint8_t *above, uint8_t *out,
                        fl_error *err) {
    const fl_planes *planes = r->planes;
    if (planes->codec == FL_PLANES_RUNS) return read_runs(r, row, c, above, out, err);
    const uint8_t *pixels = NULL;
    if (planes->codec == FL_PLANES_STORED) {
        pixels = planes->data.bytes + (size_t)row * planes->width * planes->pixel;
    } else {
        const fl_code code = fl_planes_inflater_row(r->inflater, row, r->scratch, &pixels, err);
        if (code) return code;
    }
    pick(pixels, planes->pixel, c, out);
    return FL_OK;
}

static fl_code sample(const fl_planes *planes, const uint32_t *rows, uint32_t first, uint32_t count,
                      const columns *c, uint8_t *out, size_t stride, fl_buffer *scratch, fl_error *err) {
    reader r = {.planes = planes, .scratch = scratch};
    fl_code code =
        planes->codec == FL_PLANES_ZLIB ? fl_planes_inflater_create(planes, &r.inflater, err) : FL_OK;
    for (uint32_t i = 0; i < count && !code; i++) {
        const uint32_t row = rows ? rows[i] : first + i;
        const uint8_t *above = i ? out + (i - 1) * stride : NULL;
        if (rows && above && row == rows[i - 1]) {
            memcpy(out + i * stride, above, (size_t)c->count * planes->pixel);
        } else {
            code = read_row(&r, row, c, above, out + i * stride, err);
        }
    }
    fl_planes_inflater_free(r.inflater);
    return code;
}

fl_code fl_planes_box(const fl_planes *planes, fl_box box, void *out, size_t stride, fl_buffer *scratch,
                      fl_error *err) {
    if (!box.width || !box.height || box.x >= planes->width || box.width > planes->width - box.x ||
        box.y >= planes->height || box.height > planes->height - box.y)
        return fl_fail(err, FL_EARG,
                       "a box of %" PRIu32 " x %" PRIu32 " at (%" PRIu32 ", %" PRIu32 ") of %" PRIu32
                       " x %" PRIu32 " pixels",
                       box.width, box.height, box.x, box.y, planes->width, planes->height);
    const columns c = {.first = box.x, .count = box.width};
    return sample(planes, NULL, box.y, box.height, &c, out, stride, scratch, err);
}

fl_code fl_planes_sample(const fl_planes *planes, const uint32_t *rows, uint32_t row_count,
                         const uint32_t *numbers, uint32_t column_count, void *out, size_t stride,
                         fl_buffer *scratch, fl_error *err) {
    columns c = {.numbers = numbers, .count = column_count};
    bool rising = true, falling = true;
    for (uint32_t i = 0; i < row_count; i++) {
        if (rows[i] >= planes->height)
            return fl_fail(err, FL_EARG, "row %" PRIu32 " of %" PRIu32, rows[i], planes->height);
    }
    for (uint32_t j = 0; j < column_count; j++) {
        if (numbers[j] >= planes->width)
            return fl_fail(err, FL_EARG, "column %" PRIu32 " of %" PRIu32, numbers[j], planes->width);
        rising = rising && (!j || numbers[j - 1] <= numbers[j]);
        falling = falling && (!j || numbers[j - 1] >= numbers[j]);
    }
    if (planes->codec == FL_PLANES_RUNS && column_count && (rising || falling)) {
        if (!fl_buffer_fit(scratch, (size_t)planes->width + 1, sizeof(uint32_t), RULE))
            return fl_fail(err, FL_ENOMEM, "no memory for the edges of %" PRIu32 " columns", planes->width);
        fl_edges_make(numbers, column_count, planes->width, scratch->bytes);
        c.edges = scratch->bytes, c.stop = numbers[rising ? column_count - 1 : 0] + 1;
    }
    return sample(planes, rows, 0, row_count, &c, out, stride, scratch, err);
}

/* Both candidates lie in one block: `bytes` each, the codec that is chosen in front. */
static fl_code choose(const uint8_t *pixels, const fl_planes *p, uint32_t depth, uint8_t *runs,
                      uint8_t *deflated, size_t bytes, fl_planes_codec *codec, size_t *size, fl_error *err) {
    const size_t of_runs =
        p->channels == 1 ? fl_planes_runs_encode(pixels, p->height, p->width, p->pixel, runs, bytes) : 0;
    size_t of_zlib = 0;
    if (!of_runs || of_runs > bytes / SMALL) {
        const fl_code code = fl_planes_deflate(pixels, p->height, p->width, p->channels, depth, deflated,
                                               bytes, &of_zlib, err);
        if (code) return code;
    }
    *codec = of_runs && (!of_zlib || of_runs / 2 <= of_zlib) ? FL_PLANES_RUNS
             : of_zlib                                       ? FL_PLANES_ZLIB
                                                             : FL_PLANES_STORED;
    *size = *codec == FL_PLANES_RUNS ? of_runs : *codec == FL_PLANES_ZLIB ? of_zlib : bytes;
    return FL_OK;
}

fl_code fl_planes_encode(const void *pixels, uint32_t height, uint32_t width, uint32_t channels,
                         uint32_t depth, fl_buffer *out, size_t *size, fl_error *err) {
    if (!height || height > FL_IMAGE_SIDE_MAX || !width || width > FL_IMAGE_SIDE_MAX || !channels ||
        channels > FL_PLANES_CHANNELS || !depth || depth > 2)
        return fl_fail(err, FL_EARG,
                       "planes of %" PRIu32 " x %" PRIu32 " pixels of %" PRIu32 " channels of %" PRIu32
                       " bytes",
                       width, height, channels, depth);
    const fl_planes p = {.height = height, .width = width, .channels = channels, .pixel = channels * depth};
    const uint64_t bytes = (uint64_t)height * width * p.pixel;
    if (bytes > ENTRY_MOST)
        return fl_fail(err, FL_ELIMIT,
                       "%" PRIu32 " x %" PRIu32 " pixels are more than the 4 GiB that one record may have",
                       width, height);
    uint8_t *block = malloc(2 * (size_t)bytes);
    if (!block || !fl_buffer_fit(out, 1, FL_PLANES_HEADER + (size_t)bytes, RULE)) {
        free(block);
        return fl_fail(err, FL_ENOMEM, "no memory for %" PRIu64 " bytes of pixels", 3 * bytes);
    }
    fl_planes_codec codec = FL_PLANES_STORED;
    const fl_code code = choose(pixels, &p, depth, block, block + bytes, bytes, &codec, size, err);
    if (!code) {
        uint8_t *at = out->bytes;
        fl_bytes_put_le32(at, height), fl_bytes_put_le32(at + 4, width);
        at[8] = (uint8_t)channels, at[9] = (uint8_t)depth, at[10] = (uint8_t)codec, at[11] = 0;
        memcpy(at + FL_PLANES_HEADER,
               codec == FL_PLANES_STORED ? (const uint8_t *)pixels
               : codec == FL_PLANES_RUNS ? block
                                         : block + bytes,
               *size);
        *size += FL_PLANES_HEADER;
    }
    free(block);
    return code;
}
