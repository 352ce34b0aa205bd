#include "jpeg/baseline_blocks.h"

void fl_jpeg_batch_flush(const fl_jpeg_task *t, fl_jpeg_batch *a) {
    static const uint8_t log2_side[9] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    for (int c = 0; c < t->frame->count; c++)
        if (a->pending[c])
            t->kernels->idct[log2_side[t->plane[c].side]](a->jobs[c], a->pending[c], t->plane[c].quant,
                                                          t->plane[c].stride);
    fl_jpeg_batch_empty(a);
}

void fl_jpeg_block_places(const fl_jpeg_task *t, fl_jpeg_block_place *places, uint32_t mcu_row,
                          uint32_t mcu) {
    for (uint32_t c = 0, i = 0; c < t->frame->count; c++) {
        const fl_jpeg_plane *p = &t->plane[c];
        for (uint32_t j = 0; j < p->h * p->v; j++, i++) {
            const uint32_t row = mcu_row * p->v + j / p->h, column = mcu * p->h + j % p->h;
            const bool wanted = row >= p->rows.from && row < p->rows.to;
            places[i] = (fl_jpeg_block_place){
                .out = fl_jpeg_plane_row(p, row * p->side) + (column * p->side - p->origin),
                .step = p->h * p->side,
                .component = c,
                .column = column,
                .across = p->h,
                .wanted = wanted ? p->columns : (fl_jpeg_range){0, 0},
                .dc_only = p->side == 1,
            };
        }
    }
}
