#include "store/planes_runs.h"

#include <inttypes.h>

#include "store/edges.h"

enum { VARINT_MOST = 5 };

/* Reads a varint of at most 32 bits; NULL: it does not end in time, or is too large. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint32_t *value) {
    uint64_t found = 0;
    for (int bits = 0; bits < 7 * VARINT_MOST && at < end; bits += 7) {
        found |= (uint64_t)(*at & 0x7F) << bits;
        if (*at++ < 0x80) {
            *value = (uint32_t)found;
            return found <= UINT32_MAX ? at : NULL;
        }
    }
    return NULL;
}

static fl_code bad_row(uint32_t row, fl_error *err) {
    return fl_fail(err, FL_ERECORD, "row %" PRIu32 " of its runs does not hold", row);
}

static fl_code bad_runs(fl_error *err) {
    return fl_fail(err, FL_ERECORD, "the runs of a row do not sum to its width");
}

/* Takes the next row of the cursor's strip. */
static fl_code next_row(fl_planes_cursor *c, uint32_t row, fl_error *err) {
    uint32_t size;
    const uint8_t *at = varint(c->at, c->end, &size);
    if (!at || size > (size_t)(c->end - at) || (!size && row % FL_PLANES_STRIP == 0))
        return bad_row(row, err);
    if (size) c->runs = (fl_span){at, size};
    c->at = at + size;
    c->row = row;
    return FL_OK;
}

fl_code fl_planes_runs_seek(const fl_planes *planes, fl_planes_cursor *c, uint32_t row, fl_error *err) {
    const uint32_t strip = row / FL_PLANES_STRIP;
    uint32_t next = c->row + 1;
    if (!c->begun || c->row / FL_PLANES_STRIP != strip || c->row > row) {
        fl_span bytes;
        const fl_code code = fl_planes_strip(planes, strip, &bytes, err);
        if (code) return code;
        c->begun = false;
        c->at = bytes.bytes, c->end = bytes.bytes + bytes.size;
        next = strip * FL_PLANES_STRIP;
    }
    for (; next <= row; next++) {
        const fl_code code = next_row(c, next, err);
        if (code) {
            c->begun = false;
            return code;
        }
    }
    c->begun = true;
    return FL_OK;
}

/* One run of a row: its value, and the column that it ends before. */
typedef struct run {
    const uint8_t *value;
    uint32_t end;
} run;

/* The run that begins at column x; NULL: it does not hold. Returns what follows it. */
static inline const uint8_t *next_run(const uint8_t *at, const uint8_t *end, uint32_t pixel, uint32_t x,
                                      uint32_t width, run *out) {
    if ((size_t)(end - at) < pixel) return NULL;
    out->value = at;
    at += pixel;
    out->end = width;
    if (at == end) return at;
    uint32_t length;
    if (*at < 0x80) {
        length = *at++;
    } else if (!(at = varint(at, end, &length))) {
        return NULL;
    }
    if (!length || length >= width - x || at == end)
        return NULL; /* at least one column is left for the last run */
    out->end = x + length;
    return at;
}

static inline void put(uint8_t *out, uint32_t at, const uint8_t *value, uint32_t count, uint32_t pixel) {
    if (pixel == 1) {
        memset(out + at, *value, count);
        return;
    }
    uint16_t label;
    memcpy(&label, value, sizeof label);
    for (uint32_t i = 0; i < count; i++) memcpy(out + 2 * (size_t)(at + i), &label, sizeof label);
}

fl_code fl_planes_runs_fill(const fl_planes *planes, fl_span runs, uint32_t first, uint32_t count,
                            uint8_t *out, fl_error *err) {
    const uint8_t *at = runs.bytes, *end = at + runs.size;
    const uint32_t stop = first + count;
    run found;
    for (uint32_t x = 0; x < stop; x = found.end) {
        if (!(at = next_run(at, end, planes->pixel, x, planes->width, &found))) return bad_runs(err);
        if (found.end <= first) continue;
        const uint32_t low = x < first ? first : x, high = found.end < stop ? found.end : stop;
        put(out, low - first, found.value, high - low, planes->pixel);
    }
    return FL_OK;
}

fl_code fl_planes_runs_pick(const fl_planes *planes, fl_span runs, const uint32_t *edges, uint32_t stop,
                            uint8_t *out, fl_error *err) {
    const uint8_t *at = runs.bytes, *end = at + runs.size;
    run found;
    for (uint32_t x = 0; x < stop; x = found.end) {
        uint32_t from, to;
        if (!(at = next_run(at, end, planes->pixel, x, planes->width, &found))) return bad_runs(err);
        fl_edges_shown(edges, x, found.end, &from, &to);
        put(out, from, found.value, to - from, planes->pixel);
    }
    return FL_OK;
}

static size_t put_varint(uint8_t *out, uint32_t value) {
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) out[size++] = (uint8_t)(value | 0x80);
    out[size++] = (uint8_t)value;
    return size;
}

/* Writes a row's runs; 0: they do not fit. Each run but the last needs room for its value and the longest
 * varint. */
static size_t encode_row(const uint8_t *row, uint32_t width, uint32_t pixel, uint8_t *out, size_t room) {
    size_t size = 0;
    for (uint32_t x = 0; x < width;) {
        const uint8_t *value = row + (size_t)x * pixel;
        uint32_t end = x + 1;
        if (pixel == 1) {
            while (end < width && row[end] == *value) end++;
        } else {
            while (end < width && !memcmp(row + 2 * (size_t)end, value, 2)) end++;
        }
        if (room - size < pixel + VARINT_MOST) return 0;
        memcpy(out + size, value, pixel);
        size += pixel;
        if (end < width) size += put_varint(out + size, end - x);
        x = end;
    }
    return size;
}

size_t fl_planes_runs_encode(const uint8_t *pixels, uint32_t height, uint32_t width, uint32_t pixel,
                             uint8_t *out, size_t room) {
    const size_t stride = (size_t)width * pixel,
                 table = (size_t)((height + FL_PLANES_STRIP - 1) / FL_PLANES_STRIP) * 4;
    size_t size = table;
    if (table > room) return 0;
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *row = pixels + y * stride;
        if (room - size < 1 + VARINT_MOST) return 0;
        if (y % FL_PLANES_STRIP && !memcmp(row, row - stride, stride)) {
            out[size++] = 0;
        } else {
            const size_t written =
                encode_row(row, width, pixel, out + size + VARINT_MOST, room - size - VARINT_MOST);
            if (!written) return 0;
            const size_t head = put_varint(out + size, (uint32_t)written);
            memmove(out + size + head, out + size + VARINT_MOST, written);
            size += head + written;
        }
        if ((y + 1) % FL_PLANES_STRIP == 0 || y + 1 == height)
            fl_bytes_put_le32(out + (size_t)(y / FL_PLANES_STRIP) * 4, (uint32_t)(size - table));
    }
    return size;
}
