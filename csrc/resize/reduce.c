#include "resize/reduce.h"

#include "common/simd.h"
#include "resize/axis.h"

/* Pillow's mean of n values (libImaging/Reduce.c): the rounded sum, multiplied by 2^24 / n in 32 bits, which
 * it computes as a float32. */
typedef struct mean {
    uint32_t half, multiplier;
} mean;

static mean mean_of(uint32_t n) {
    const uint32_t some = n ? n : 1; /* no last column: its mean is not used */
    return (mean){some / 2, (uint32_t)(0x1p32f / (float)(some << 8))};
}

static inline uint8_t divide(mean mean, uint32_t sum) {
    return (uint8_t)(((sum + mean.half) * mean.multiplier) >> 24);
}

/* A box of a view, cut into cells. */
typedef struct grid {
    const uint8_t *pixels;
    size_t stride;
    uint32_t width, height, across, down;
    uint32_t columns; /* of cells, the last of which may be narrower */
} grid;

/* One row of cells: their columns are summed down first, then each cell's across. */
FL_INLINE void reduce_row(const grid *grid, const uint8_t *row, uint32_t lines, uint32_t *restrict sum,
                          uint8_t *restrict out, size_t channels) {
    const size_t n = (size_t)grid->width * channels;
    for (size_t i = 0; i < n; i++) sum[i] = row[i];
    for (uint32_t y = 1; y < lines; y++) {
        row += grid->stride;
        for (size_t i = 0; i < n; i++) sum[i] += row[i];
    }
    const uint32_t full = grid->width / grid->across, rest = grid->width % grid->across;
    const mean whole = mean_of(grid->across * lines), narrow = mean_of(rest * lines);
    for (uint32_t x = 0; x < grid->columns; x++, out += channels) {
        uint32_t total[3] = {0};
        const uint32_t taps = x < full ? grid->across : rest;
        for (uint32_t k = 0; k < taps; k++, sum += channels)
            for (size_t c = 0; c < channels; c++) total[c] += sum[c];
        for (size_t c = 0; c < channels; c++) out[c] = divide(x < full ? whole : narrow, total[c]);
    }
}

static void reduce_rows(const grid *grid, uint32_t *sum, uint8_t *out, size_t channels) {
    for (uint32_t y = 0; y < grid->height; y += grid->down, out += grid->columns * channels) {
        const uint8_t *row = grid->pixels + y * grid->stride;
        const uint32_t lines = grid->height - y < grid->down ? grid->height - y : grid->down;
        if (channels == 3) reduce_row(grid, row, lines, sum, out, 3);
        else reduce_row(grid, row, lines, sum, out, 1);
    }
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

fl_code fl_resize_reduce(const fl_view *view, const fl_box *box, uint32_t across, uint32_t down,
                         fl_buffer *room, uint8_t *out, fl_error *err) {
    if (view->channels && !(view->channels == 1 && view->depth == 1))
        return fl_fail(err, FL_EARG, "reduce: planes, where RGB or grey of 8 bits is meant");
    if (!box->width || !box->height || box->width > view->width || box->x > view->width - box->width ||
        box->height > view->height || box->y > view->height - box->height)
        return fl_fail(err, FL_EARG,
                       "reduce: the box (%u, %u) + %u x %u is empty or not inside the %u x %u image", box->x,
                       box->y, box->width, box->height, view->width, view->height);
    if (!across || !down)
        return fl_fail(err, FL_EARG, "reduce: factors (%u, %u), where both are at least 1", across, down);
    across = least(across, box->width); /* one column is of all that there are, in either case */
    down = least(down, box->height);
    if ((uint64_t)across * down >= FL_RESIZE_REDUCE_MOST)
        return fl_fail(err, FL_EARG, "reduce: means of %u x %u pixels: they must be of fewer than %d", across,
                       down, FL_RESIZE_REDUCE_MOST);
    const size_t channels = view->channels ? 1 : 3;
    const fl_code code = fl_resize_fit(room, (size_t)box->width * channels, sizeof(uint32_t), err);
    if (code) return code;
    const grid grid = {.pixels = view->pixels + box->y * view->stride + box->x * channels,
                       .stride = view->stride,
                       .width = box->width,
                       .height = box->height,
                       .across = across,
                       .down = down,
                       .columns = (box->width - 1) / across + 1};
    reduce_rows(&grid, room->bytes, out, channels);
    return FL_OK;
}
