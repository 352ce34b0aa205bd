/* Planes, runs and rows of any number: what is encoded decodes to the same, any box and any nearest sampling
 * of it is what the pixels say, and damaged bytes are an error or pixels, never more. */
#define _GNU_SOURCE
#include "store/planes.h"

#include <string.h>

#include "check.h"
#include "draws.h"
#include "store/edges.h"
#include "store/rle.h"
#include "store/varying.h"

enum { ROUNDS = 3000, LABELS = 0, SMOOTH = 1, NOISE = 2 };

static void *allocate(size_t size) {
    void *bytes = malloc(size ? size : 1);
    CHECK(bytes);
    return bytes;
}

typedef struct picture {
    uint32_t height, width, channels, depth;
    size_t pixel, stride;
    uint8_t *pixels;
} picture;

static picture make(int kind) {
    picture p = {.height = between(1, 70),
                 .width = between(1, 70),
                 .channels = kind == LABELS ? 1 : between(1, 4),
                 .depth = between(1, 2)};
    p.pixel = p.channels * p.depth, p.stride = p.width * p.pixel;
    p.pixels = allocate(p.height * p.stride);
    const uint32_t block = between(1, 20), labels = between(1, 300);
    for (uint32_t y = 0; y < p.height; y++) {
        for (uint32_t x = 0; x < p.width * p.channels; x++) {
            uint32_t value = noise();
            if (kind == LABELS) value = (x / block * 7 + y / block * 13) % labels;
            if (kind == SMOOTH) value = 3 * x / p.channels + 2 * y + value % 2 + 300 * (x % p.channels);
            p.pixels[y * p.stride + x * p.depth] = (uint8_t)value;
            if (p.depth == 2) p.pixels[y * p.stride + x * 2 + 1] = (uint8_t)(value >> 8);
        }
    }
    return p;
}

static void check_samples(const picture *p, const fl_planes *planes, fl_buffer *scratch) {
    fl_error err;
    uint32_t rows[90], columns[90];
    const uint32_t order = below(3), n = between(1, 90), m = between(1, 90);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = order == 2 ? below(p->height) : (order ? n - 1 - i : i) * p->height / n;
    for (uint32_t j = 0; j < m; j++)
        columns[j] = order == 2 ? below(p->width) : (order ? m - 1 - j : j) * p->width / m;
    const size_t stride = m * p->pixel + 3;
    uint8_t *out = allocate(n * stride);
    CHECK(fl_planes_sample(planes, rows, n, columns, m, out, stride, scratch, &err) == FL_OK);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < m; j++)
            CHECK(!memcmp(out + i * stride + j * p->pixel,
                          p->pixels + rows[i] * p->stride + columns[j] * p->pixel, p->pixel));
    }
    const fl_box box = {.x = below(p->width), .y = below(p->height)};
    const fl_box inner = {box.x, box.y, between(1, p->width - box.x), between(1, p->height - box.y)};
    uint8_t *cut = allocate(inner.height * inner.width * p->pixel);
    CHECK(fl_planes_box(planes, inner, cut, inner.width * p->pixel, scratch, &err) == FL_OK);
    for (uint32_t y = 0; y < inner.height; y++)
        CHECK(!memcmp(cut + y * inner.width * p->pixel,
                      p->pixels + (inner.y + y) * p->stride + inner.x * p->pixel, inner.width * p->pixel));
    CHECK(fl_planes_box(planes, (fl_box){0, 0, p->width + 1, 1}, cut, 0, scratch, &err) == FL_EARG);
    columns[0] = p->width;
    CHECK(fl_planes_sample(planes, rows, 1, columns, 1, out, stride, scratch, &err) == FL_EARG);
    free(out), free(cut);
}

/* Cut off anywhere, or with some bytes changed: an error, or pixels. */
static void check_damaged(const picture *p, const uint8_t *entry, size_t size, fl_buffer *scratch) {
    fl_error err;
    fl_planes planes;
    const size_t left = below((uint32_t)size + 1);
    uint8_t *cut = allocate(left), *out = allocate(p->height * p->stride);
    memcpy(cut, entry, left);
    for (uint32_t i = between(0, 3); i && left > FL_PLANES_HEADER; i--)
        cut[between(FL_PLANES_HEADER, (uint32_t)left - 1)] = (uint8_t)noise();
    const fl_code code = fl_planes_open((fl_span){cut, left}, &planes, &err);
    CHECK(code == FL_ERECORD || code == FL_OK);
    if (code == FL_OK) {
        const fl_code decoded =
            fl_planes_box(&planes, (fl_box){0, 0, p->width, p->height}, out, p->stride, scratch, &err);
        CHECK(decoded == FL_OK || decoded == FL_ERECORD);
    }
    free(cut), free(out);
}

static void test_planes(void) {
    fl_buffer entry = {0}, scratch = {0};
    fl_error err;
    uint32_t seen[3] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        const picture p = make(round % 3);
        size_t size = 0;
        fl_planes planes;
        CHECK(fl_planes_encode(p.pixels, p.height, p.width, p.channels, p.depth, &entry, &size, &err) ==
              FL_OK);
        CHECK(size <= FL_PLANES_HEADER + p.height * p.stride);
        CHECK(fl_planes_open((fl_span){entry.bytes, size}, &planes, &err) == FL_OK);
        CHECK(planes.height == p.height && planes.width == p.width && planes.channels == p.channels &&
              planes.pixel == p.pixel);
        seen[planes.codec]++;
        check_samples(&p, &planes, &scratch);
        check_damaged(&p, entry.bytes, size, &scratch);
        free(p.pixels);
    }
    CHECK(seen[FL_PLANES_STORED] > ROUNDS / 10 && seen[FL_PLANES_RUNS] > ROUNDS / 10 &&
          seen[FL_PLANES_ZLIB] > ROUNDS / 10);
    CHECK(fl_planes_encode("", 0, 1, 1, 1, &entry, &(size_t){0}, &err) == FL_EARG);
    fl_buffer_free(&entry), fl_buffer_free(&scratch);
}

/* Numbers below `size` that rise, or fall: any steps from a start, as crops, flips and nearest resampling
 * make them. */
static uint32_t shown_of(uint32_t size, uint32_t *from, uint32_t most) {
    const uint32_t first = below(size), last = between(first, size - 1), count = between(1, most);
    const bool falls = below(2);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = first + i * (last - first + 1) / count;
        from[falls ? count - 1 - i : i] =
            below(8) || i + 1 == count ? at : between(at, first + (i + 1) * (last - first + 1) / count);
    }
    return count;
}

/* A result of rows and columns has the mask's pixels, and nothing is written around it. */
static void check_rle(fl_span counts, const uint8_t *mask, uint32_t height, uint32_t width) {
    enum { MOST = 40, PITCH = MOST + 3 };
    fl_error err;
    uint32_t rows[MOST], columns[MOST], row_edges[31], column_edges[31];
    uint8_t out[(MOST + 2) * PITCH] = {0};
    const fl_rle_axis y = {shown_of(height, rows, MOST), row_edges},
                      x = {shown_of(width, columns, MOST), column_edges};
    fl_edges_make(rows, y.count, height, row_edges), fl_edges_make(columns, x.count, width, column_edges);
    CHECK(fl_rle_sample(counts, height, width, &y, &x, out + PITCH + 1, PITCH, &err) == FL_OK);
    for (uint32_t i = 0; i < MOST + 2; i++)
        for (uint32_t j = 0; j < PITCH; j++) {
            const bool inside = i > 0 && i <= y.count && j > 0 && j <= x.count;
            CHECK(out[i * PITCH + j] == (inside ? mask[rows[i - 1] * width + columns[j - 1]] : 0));
        }
}

static void test_rle(void) {
    fl_error err;
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t height = between(1, 30), width = between(1, 30), longest = between(2, 200);
        uint8_t counts[4 * 1000], mask[900], out[900] = {0};
        uint32_t number = 0, pixel = 0;
        while (pixel < height * width) {
            const uint32_t left = height * width - pixel,
                           count = number < 900 ? below(left < longest ? left + 1 : longest) : left;
            for (uint32_t i = 0; i < count; i++, pixel++)
                mask[pixel % height * width + pixel / height] = number & 1;
            fl_bytes_put_le32(counts + 4 * number++, count);
        }
        const fl_span span = {counts, 4 * number};
        const fl_rle_axis rows = {height, NULL}, columns = {width, NULL}, wrong = {width + 1, NULL};
        CHECK(fl_rle_sample(span, height, width, &rows, &columns, out, width, &err) == FL_OK &&
              !memcmp(out, mask, height * width));
        check_rle(span, mask, height, width);
        CHECK(fl_rle_check(span, height, width + 1, &err) == FL_ERECORD);
        CHECK(fl_rle_sample(span, height, width + 1, &rows, &wrong, out, width + 1, &err) == FL_ERECORD);
        CHECK(fl_rle_sample(span, height, width, &rows, &wrong, out, width + 1, &err) == FL_EARG);
        CHECK(!memcmp(out, mask, height * width));
    }
    const fl_rle_axis one = {1, NULL};
    CHECK(fl_rle_sample((fl_span){(const uint8_t *)"", 0}, 1, 1, &one, &one, (uint8_t[1]){0}, 1, &err) ==
          FL_ERECORD);
}

/* Two objects of 1 and 2 parts, of 3, 0 and 1 points of 8 bytes; then all cuts and all changed lengths. */
static void test_varying(void) {
    uint8_t entry[4 + 8 + 12 + 32] = {2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
    fl_varying found;
    fl_error err;
    CHECK(fl_varying_open((fl_span){entry, sizeof entry}, 2, 8, &found, &err) == FL_OK);
    CHECK(found.rows == 2 && found.lengths[0].size == 8 && found.lengths[1].size == 12 &&
          found.values.size == 32);
    for (size_t size = 0; size < sizeof entry; size++) {
        uint8_t *cut = allocate(size);
        memcpy(cut, entry, size);
        CHECK(fl_varying_open((fl_span){cut, size}, 2, 8, &found, &err) == FL_ERECORD);
        free(cut);
    }
    for (size_t at = 0; at < 24; at++) {
        for (int value = 0; value < 256; value++) {
            const uint8_t kept = entry[at];
            entry[at] = (uint8_t)value;
            for (uint32_t levels = 0; levels <= 2; levels++) {
                if (fl_varying_open((fl_span){entry, sizeof entry}, levels, 8, &found, &err) == FL_OK)
                    CHECK(found.values.bytes + found.values.size == entry + sizeof entry);
            }
            entry[at] = kept;
        }
    }
}

int main(void) {
    test_planes();
    test_rle();
    test_varying();
    puts("planes: ok");
    return 0;
}
