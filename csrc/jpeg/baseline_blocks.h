/* jpeg/baseline_blocks: where the blocks of a row of MCUs go, and those that wait for the inverse DCT. */
#ifndef FL_JPEG_BASELINE_BLOCKS_H
#define FL_JPEG_BASELINE_BLOCKS_H

#include "common/simd.h"
#include "jpeg/baseline_parts.h"

/* Blocks between entropy decoding and the inverse DCT. */
typedef struct fl_jpeg_batch {
    _Alignas(32) int16_t coefs[FL_JPEG_BATCH * FL_JPEG_MCU_BLOCKS * 64 + 64];
    fl_jpeg_job jobs[3][FL_JPEG_BATCH * 4];
    uint32_t pending[3], blocks, mcus;
} fl_jpeg_batch;

/* The blocks in one place of each MCU of a row. */
typedef struct fl_jpeg_block_place {
    uint8_t *out; /* where the next MCU's block goes; wanted ones are inside the plane */
    size_t step;
    uint32_t component;
    uint32_t column, across; /* the next MCU's block column, blocks of an MCU side by side */
    fl_jpeg_range wanted; /* block columns; none in rows that are not wanted */
    bool dc_only; /* its samples are made of the DC coefficient alone */
} fl_jpeg_block_place;

static inline void fl_jpeg_batch_empty(fl_jpeg_batch *batch) {
    for (int c = 0; c < 3; c++) batch->pending[c] = 0;
    batch->blocks = batch->mcus = 0;
}

/* The inverse DCT of all that wait. */
void fl_jpeg_batch_flush(const fl_jpeg_task *task, fl_jpeg_batch *batch);

/* The places of the blocks of MCU `mcu` of a row, and of those after it. */
void fl_jpeg_block_places(const fl_jpeg_task *task, fl_jpeg_block_place *places, uint32_t mcu_row,
                          uint32_t mcu);

/* memset, a loop or larger vectors would become a call or a slow instruction for every block. */
typedef int16_t fl_jpeg_eight __attribute__((vector_size(16), may_alias));

FL_INLINE void fl_jpeg_block_clear(int16_t *coefs) {
    fl_jpeg_eight *at = (fl_jpeg_eight *)coefs;
    at[0] = at[1] = at[2] = at[3] = at[4] = at[5] = at[6] = at[7] = (fl_jpeg_eight){0};
}

/* True if the place's next block is wanted; goes on to the next MCU's. `out`: the block's destination. */
FL_INLINE bool fl_jpeg_block_next(fl_jpeg_block_place *at, uint8_t **out) {
    const bool wanted = at->column >= at->wanted.from && at->column < at->wanted.to;
    *out = at->out;
    at->column += at->across;
    at->out += at->step;
    return wanted;
}

#endif
