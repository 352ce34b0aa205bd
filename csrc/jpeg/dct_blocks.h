/* jpeg/dct_blocks: blocks of coefficients from the AC planes of the DCT form. See NOTE [ dct: reading beyond
 * a strip ] in jpeg/dct_form.h. */
#ifndef FL_JPEG_DCT_BLOCKS_H
#define FL_JPEG_DCT_BLOCKS_H

#include "common/simd.h"
#include "jpeg/dct_form.h"

/* Blocks of one strip that follow each other. Every field but end, at, lasts and orders has moved on when
 * they are made. */
typedef struct fl_jpeg_dct_run {
    const uint8_t *at; /* the data */
    uint64_t bit, end; /* of the first block's planes; the strip's end */
    uint64_t lasts;
    uint32_t block, count; /* in the strip; blocks to make, 0 afterwards */
    const fl_jpeg_dct_orders *orders;
    const int16_t *dc;
    int16_t *coefs; /* 64 for each block, natural order, and one more behind the last */
    uint8_t *counts; /* as fl_jpeg_job's */
} fl_jpeg_dct_run;

enum { FL_JPEG_DCT_LIST = 96 };

/* Bits in the making, from the bottom of each byte on. */
typedef struct fl_jpeg_dct_writer {
    uint8_t *at;
    uint64_t bits;
    unsigned count; /* of bits, below 32 between calls */
} fl_jpeg_dct_writer;

/* Blocks of a strip, in zigzag order: `across` in each MCU, and `step` coefficients from one MCU's to the
 * next one's. */
typedef struct fl_jpeg_dct_source {
    const int16_t *blocks;
    size_t step;
    uint32_t mcus, across;
    const fl_jpeg_dct_orders *orders;
} fl_jpeg_dct_source;

/* Every kernel set makes the same coefficients and finds the same damage. */
typedef struct fl_jpeg_dct_kernels {
    /* Two runs, side by side as long as both last: NOTE [ baseline: two streams at a time ]. False for
     * damage. */
    bool (*make)(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b);
    /* Passes over a run's blocks without making them. */
    bool (*pass)(fl_jpeg_dct_run *run);
    /* A block in zigzag order, of one in natural order. */
    void (*order)(const int16_t *natural, int16_t *out);
    /* Zigzag positions and values of a block's AC coefficients that are not zero, in order; returns how many.
     * The block is in zigzag order. Both have room for FL_JPEG_DCT_LIST, all of which may be written. */
    unsigned (*list)(const int16_t *block, uint8_t *places, int16_t *values);
    /* Writes the AC planes of a strip, and up to 9 bytes behind them; `writer` has no bits. Sets the last
     * position of each block, and for each MCU the bits written up to its end. False: a magnitude that the
     * form does not hold. NULL: there is only jpeg/dct_write.c's own way. */
    bool (*put)(fl_jpeg_dct_writer *writer, const fl_jpeg_dct_source *from, uint8_t *lasts, uint32_t *ends);
} fl_jpeg_dct_kernels;

/* By the CPU features in use. */
const fl_jpeg_dct_kernels *fl_jpeg_dct_kernels_best(void);

/* A position that no strip reaches: the block's magnitudes are beyond the form's limit. */
#define FL_JPEG_DCT_DAMAGED UINT64_MAX

/* One block of last position 1 or more, into 64 zeros, in plain C. Returns the position behind it, or
 * FL_JPEG_DCT_DAMAGED. */
uint64_t fl_jpeg_dct_block(const uint8_t *at, uint64_t bit, unsigned last, const fl_jpeg_dct_orders *orders,
                           int16_t *out);

/* A run's next block. */
typedef struct fl_jpeg_dct_next_block {
    int16_t *out;
    unsigned last;
    int16_t dc;
} fl_jpeg_dct_next_block;

/* Takes a run's next block: everything of the run but its bit moves on. */
FL_INLINE fl_jpeg_dct_next_block fl_jpeg_dct_take_block(fl_jpeg_dct_run *r) {
    const fl_jpeg_dct_next_block taken = {r->coefs, fl_jpeg_dct_last(r->at, r->lasts, r->block++), *r->dc++};
    r->coefs += 64;
    *r->counts++ = (uint8_t)(taken.last + 1);
    r->count--;
    return taken;
}

/* Makes blocks of both runs in turn, then what is left of either: the frame of every kernel set, whose `one`
 * makes a run's next block. */
#define FL_JPEG_DCT_MAKE(one)                                                                                \
    fl_jpeg_dct_run p = *a, q = *b;                                                                          \
    while (p.count && q.count) {                                                                             \
        one(&p);                                                                                             \
        one(&q);                                                                                             \
        if (__builtin_expect(p.bit > p.end || q.bit > q.end, 0)) return false;                               \
    }                                                                                                        \
    while (p.count) {                                                                                        \
        one(&p);                                                                                             \
        if (__builtin_expect(p.bit > p.end, 0)) return false;                                                \
    }                                                                                                        \
    while (q.count) {                                                                                        \
        one(&q);                                                                                             \
        if (__builtin_expect(q.bit > q.end, 0)) return false;                                                \
    }                                                                                                        \
    *a = p;                                                                                                  \
    *b = q;                                                                                                  \
    return true

#endif
