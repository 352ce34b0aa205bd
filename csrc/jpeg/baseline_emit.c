/* Upsampling as libjpeg-turbo does it ("fancy" where it does), then colour. */
#include "jpeg/baseline_emit.h"

/* Samples beyond the component's edges repeat the edge, so that kernels need not know about edges: (3 a + a +
 * bias) >> 2 is a. */
static void extend_edges(const fl_jpeg_plane *p, uint32_t from, uint32_t to) {
    for (uint32_t row = from; row < to; row++) {
        uint8_t *samples = fl_jpeg_plane_row(p, row);
        if (p->origin == 0) samples[-1] = samples[0];
        if (p->sample_columns.to == p->width)
            samples[p->width - p->origin] = samples[p->width - 1 - p->origin];
    }
}

/* The row of samples for row y of pixels, from column x (even when samples cover two) on. */
static const uint8_t *samples_of(const fl_jpeg_task *t, const fl_jpeg_plane *p, uint32_t y, uint32_t x,
                                 uint32_t end, uint8_t *scratch) {
    const uint32_t row = y / p->down, column = x / p->across;
    const uint8_t *near = fl_jpeg_plane_row(p, row) + (column - p->origin);
    if (p->across == 1 && p->down == 1) return near;
    const size_t n = (end - x + p->across - 1) / p->across;
    if (p->down == 2 && t->fancy) {
        uint32_t other = y % 2 ? row + 1 : row - (row > 0);
        if (other == p->height) other = row;
        const uint8_t *far = fl_jpeg_plane_row(p, other) + (column - p->origin);
        if (p->across == 1) {
            t->kernels->h1v2(near, far, scratch, n, y % 2 ? 2 : 1);
            return scratch;
        }
        if (p->width > 2) {
            t->kernels->h2v2(near, far, scratch, n);
            return scratch;
        }
    }
    if (p->across == 1) return near;
    if (p->down == 1 && t->fancy && p->width > 2) t->kernels->h2v1(near, scratch, n);
    else t->kernels->h2(near, scratch, n);
    return scratch;
}

static void emit_row(const fl_jpeg_task *t, uint32_t y) {
    const size_t width = t->x1 - t->x0;
    uint8_t *out = t->pixels + (size_t)(y - t->y0) * width * 3;
    const uint8_t *luma = fl_jpeg_plane_row(&t->plane[0], y) + (t->x0 - t->plane[0].origin);
    if (t->frame->count == 1) {
        t->kernels->grey(luma, out, width);
        return;
    }
    const uint32_t shift = t->plane[1].across == 2 ? t->x0 & 1 : 0;
    const uint8_t *cb = samples_of(t, &t->plane[1], y, t->x0 - shift, t->x1, t->chroma[0]) + shift;
    const uint8_t *cr = samples_of(t, &t->plane[2], y, t->x0 - shift, t->x1, t->chroma[1]) + shift;
    t->kernels->ycc(luma, cb, cr, out, width);
}

void fl_jpeg_emit_rows(fl_jpeg_task *t, uint32_t mcu_row) {
    for (int c = 0; c < t->frame->count; c++) {
        const uint32_t rows = t->plane[c].v * t->plane[c].side;
        extend_edges(&t->plane[c], mcu_row * rows, (mcu_row + 1) * rows);
    }
    uint32_t ready = (mcu_row + 1) * t->plane[0].v * t->plane[0].side;
    /* The last row of pixels also takes the next row of chroma. */
    if (t->frame->count == 3 && t->plane[1].down == 2 && t->fancy && mcu_row + 1 < t->frame->mcus_down)
        ready--;
    if (ready > t->y1) ready = t->y1;
    while (t->emitted < ready) emit_row(t, t->emitted++);
}
