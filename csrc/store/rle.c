#include "store/rle.h"

#include <inttypes.h>

#include "store/edges.h"

fl_code fl_rle_check(fl_span counts, uint32_t height, uint32_t width, fl_error *err) {
    uint64_t sum = 0;
    for (size_t i = 0; i + 4 <= counts.size; i += 4) sum += fl_bytes_le32(counts.bytes + i);
    if (sum != (uint64_t)height * width)
        return fl_fail(err, FL_ERECORD,
                       "its run lengths sum to %" PRIu64 ", its %" PRIu32 " x %" PRIu32
                       " pixels are %" PRIu64,
                       sum, width, height, (uint64_t)height * width);
    return FL_OK;
}

/* The result in work. */
typedef struct canvas {
    const fl_rle_axis *rows, *columns;
    uint8_t *out;
    size_t stride;
    /* the box that has all changes; its last row may lie below the last of the result */
    uint32_t top, bottom, left, right;
} canvas;

/* The changes of pixels [from, to) of a column, which are ones. */
static inline void change(canvas *c, uint32_t column, uint32_t from, uint32_t to) {
    uint32_t top, bottom, left, right;
    fl_edges_shown(c->rows->edges, from, to, &top, &bottom);
    fl_edges_shown(c->columns->edges, column, column + 1, &left, &right);
    if (top == bottom || left == right) return;
    for (uint32_t j = left; j < right; j++) {
        c->out[top * c->stride + j] ^= 1;
        if (bottom < c->rows->count) c->out[bottom * c->stride + j] ^= 1;
    }
    if (top < c->top) c->top = top;
    if (bottom > c->bottom) c->bottom = bottom;
    if (left < c->left) c->left = left;
    if (right > c->right) c->right = right;
}

static void join(uint8_t *restrict row, const uint8_t *restrict above, uint32_t count) {
    for (uint32_t j = 0; j < count; j++) row[j] ^= above[j];
}

fl_code fl_rle_sample(fl_span counts, uint32_t height, uint32_t width, const fl_rle_axis *rows,
                      const fl_rle_axis *columns, uint8_t *out, size_t stride, fl_error *err) {
    const fl_code code = fl_rle_check(counts, height, width, err);
    if (code) return code;
    if ((!rows->edges && rows->count != height) || (!columns->edges && columns->count != width))
        return fl_fail(err, FL_EARG,
                       "%" PRIu32 " x %" PRIu32 " pixels as %" PRIu32 " x %" PRIu32 " without edges", width,
                       height, columns->count, rows->count);
    canvas c = {.rows = rows,
                .columns = columns,
                .out = out,
                .stride = stride,
                .top = rows->count,
                .left = columns->count};
    uint32_t x = 0, y = 0;
    for (size_t i = 0; i < counts.size / 4; i++) {
        uint32_t run = fl_bytes_le32(counts.bytes + 4 * i);
        if (run && !(i & 1)) {
            const uint64_t at = (uint64_t)y + run;
            x += (uint32_t)(at / height), y = (uint32_t)(at % height);
            continue;
        }
        while (run) {
            const uint32_t count = run < height - y ? run : height - y;
            change(&c, x, y, y + count);
            run -= count, y += count;
            if (y == height) y = 0, x++;
        }
    }
    for (uint32_t i = c.top + 1; i <= c.bottom && i < rows->count; i++) {
        uint8_t *row = out + i * stride + c.left;
        join(row, row - stride, c.right - c.left);
    }
    return FL_OK;
}
