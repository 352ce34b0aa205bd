/* jpeg/baseline_parts: what the files of fl_jpeg_baseline share. Entropy decoding (jpeg/baseline_rows.c)
 * hands blocks of coefficients to the inverse DCT, which writes samples into planes; jpeg/baseline_emit.c
 * makes pixels of them as soon as a row of MCUs is done. */
#ifndef FL_JPEG_BASELINE_PARTS_H
#define FL_JPEG_BASELINE_PARTS_H

#include "common/image.h"
#include "jpeg/entropy_index.h"
#include "jpeg/header.h"

/* FL_JPEG_MARGIN: bytes before and behind each row of samples that a kernel may touch. FL_JPEG_SLACK: bytes
 * behind a row of pixels that it may write. */
enum {
    FL_JPEG_MARGIN = 64,
    FL_JPEG_SLACK = 128,
    FL_JPEG_BATCH = 8 /* MCUs between two turns of the inverse DCT */,
    FL_JPEG_MCU_BLOCKS = 6
};

/* A block on its way to the inverse DCT. `count`: all coefficients from this zigzag position on are zero. */
typedef struct fl_jpeg_job {
    const int16_t *coefs;
    uint8_t *out;
    int count;
} fl_jpeg_job;

/* Every kernel set gives the same bytes. `n` is in samples of `in`; kernels may read and write FL_JPEG_MARGIN
 * bytes beyond a row's ends. */
typedef struct fl_jpeg_kernels {
    /* inverse DCTs to 1, 2, 4 and 8 samples a side; out has `stride` bytes a row, both multiples of the side;
     * quant is in natural order */
    void (*idct[4])(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride);
    void (*h2v1)(const uint8_t *in, uint8_t *out, size_t n); /* "fancy": in[-1] and in[n] are read */
    void (*h2v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n); /* likewise */
    void (*h1v2)(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias);
    void (*h2)(const uint8_t *in, uint8_t *out, size_t n); /* each sample twice */
    void (*ycc)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n);
    void (*grey)(const uint8_t *y, uint8_t *rgb, size_t n);
} fl_jpeg_kernels;

/* [from, to) */
typedef struct fl_jpeg_range {
    uint32_t from, to;
} fl_jpeg_range;

/* One component: where its samples are, and which of them are wanted. */
typedef struct fl_jpeg_plane {
    uint32_t h, v; /* blocks of an MCU */
    uint32_t side; /* samples of a block's side after the inverse DCT */
    uint32_t across, down; /* pixels of the output that a sample covers: 1 or 2 */
    uint32_t width, height; /* samples of the whole component */
    fl_jpeg_range columns, rows; /* blocks wanted, in the whole component */
    fl_jpeg_range sample_columns; /* samples wanted */
    uint32_t origin; /* the sample column at the start of a row */
    uint32_t mask; /* rows lie in a ring: row & mask */
    size_t stride;
    uint8_t *samples;
    int16_t quant[64]; /* natural order */
} fl_jpeg_plane;

/* The places of MCUs that a decode has come by, one in `every` of each row, from the first row on. */
typedef struct fl_jpeg_marks {
    fl_jpeg_mark *first, *next; /* room for those of all rows; the next one to be noted */
    uint32_t every, rows; /* rows: those of which all are noted */
    uint32_t known; /* rows that were noted before */
    bool to_the_end; /* go on to the last row, whatever is wanted */
    bool last; /* no more can be known: these are all rows, or there is damage behind them */
    const uint8_t *coded, *counted; /* the stretch that is noted, and how far its 0xFF were counted */
    size_t stuffed;
} fl_jpeg_marks;

/* One decode. */
typedef struct fl_jpeg_task {
    const fl_jpeg_tables *tables;
    const fl_jpeg_frame *frame;
    const fl_jpeg_kernels *kernels;
    const fl_jpeg_index *index; /* NULL: read from the first MCU on */
    fl_jpeg_marks *marks; /* NULL: none are noted. With an index: those of its rows are there */
    const uint8_t *at, *end; /* coded bytes, and behind them all the file */
    uint8_t *plain; /* room for all of them, as two streams need it */
    fl_jpeg_plane plane[3];
    fl_jpeg_range mcu_columns, mcu_rows; /* wanted */
    bool fancy;
    uint32_t x0, y0, x1, y1; /* wanted of the scaled image */
    uint32_t emitted; /* the next row of pixels to make */
    uint8_t *pixels; /* of row y0 */
    uint8_t *chroma[2]; /* one row of upsampled samples each */
} fl_jpeg_task;

static inline uint8_t *fl_jpeg_plane_row(const fl_jpeg_plane *p, uint32_t row) {
    return p->samples + (row & p->mask) * p->stride;
}

#endif
