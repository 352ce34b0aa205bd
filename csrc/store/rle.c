#include "store/rle.h"

#include <inttypes.h>

fl_code fl_rle_check(fl_span counts, uint32_t height, uint32_t width, fl_error *err) {
    uint64_t sum = 0;
    for (size_t i = 0; i + 4 <= counts.size; i += 4) sum += fl_bytes_le32(counts.bytes + i);
    if (sum != (uint64_t)height * width)
        return fl_fail(err, FL_ERECORD, "its run lengths sum to %" PRIu64 ", its %" PRIu32 " x %" PRIu32 " pixels are %" PRIu64, sum, width,
                       height, (uint64_t)height * width);
    return FL_OK;
}

/* A place among the runs: pixels [start, end) are of run `run`, which is of ones if its number is odd. The counts sum to all pixels, so that a
 * walk to any pixel stays within them. */
typedef struct cursor {
    const uint8_t *counts;
    size_t run;
    uint64_t start, end;
} cursor;

static inline uint8_t value_at(cursor *c, uint64_t pixel) {
    while (pixel >= c->end) {
        c->start = c->end;
        c->end += fl_bytes_le32(c->counts + 4 * ++c->run);
    }
    while (pixel < c->start) {
        c->end = c->start;
        c->start -= fl_bytes_le32(c->counts + 4 * --c->run);
    }
    return c->run & 1;
}

/* All pixels, run by run. */
static void fill(fl_span counts, uint32_t height, uint8_t *out, size_t stride) {
    uint32_t x = 0, y = 0;
    for (size_t i = 0; i < counts.size / 4; i++) {
        uint32_t left = fl_bytes_le32(counts.bytes + 4 * i);
        while (left) {
            const uint32_t count = left < height - y ? left : height - y;
            uint8_t *at = out + y * stride + x;
            for (uint32_t k = 0; k < count; k++, at += stride) *at = i & 1;
            left -= count, y += count;
            if (y == height) y = 0, x++;
        }
    }
}

fl_code fl_rle_sample(fl_span counts, uint32_t height, uint32_t width, const uint32_t *rows, uint32_t row_count, const uint32_t *columns,
                      uint32_t column_count, uint8_t *out, size_t stride, fl_error *err) {
    const fl_code code = fl_rle_check(counts, height, width, err);
    if (code) return code;
    if (!rows && !columns) {
        fill(counts, height, out, stride);
        return FL_OK;
    }
    for (uint32_t i = 0; rows && i < row_count; i++) {
        if (rows[i] >= height) return fl_fail(err, FL_EARG, "row %" PRIu32 " of %" PRIu32, rows[i], height);
    }
    if (!rows) row_count = height;
    if (!columns) column_count = width;
    cursor c = {.counts = counts.bytes, .end = counts.size >= 4 ? fl_bytes_le32(counts.bytes) : 0};
    for (uint32_t j = 0; j < column_count; j++) {
        const uint32_t column = columns ? columns[j] : j;
        if (column >= width) return fl_fail(err, FL_EARG, "column %" PRIu32 " of %" PRIu32, column, width);
        const uint64_t first = (uint64_t)column * height;
        for (uint32_t i = 0; i < row_count; i++) out[i * stride + j] = value_at(&c, first + (rows ? rows[i] : i));
    }
    return FL_OK;
}
