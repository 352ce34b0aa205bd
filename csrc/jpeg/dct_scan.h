/* jpeg/dct_scan: coefficients of a usual JPEG as coded data. */
#ifndef FL_JPEG_DCT_SCAN_H
#define FL_JPEG_DCT_SCAN_H

#include "common/buffer.h"
#include "jpeg/dct_blocks.h"
#include "jpeg/dct_code.h"
#include "jpeg/header.h"

/* Coefficients of an MCU row: of each component its rows of blocks, natural order. */
typedef struct fl_jpeg_dct_rows {
    uint32_t across[3]; /* blocks of a row */
    int16_t *blocks[3];
} fl_jpeg_dct_rows;

/* Blocks of an MCU row. */
static inline uint32_t fl_jpeg_dct_row_blocks(const fl_jpeg_frame *f) {
    return f->mcus_across * f->block_count;
}

/* Shares out room for an MCU row: 64 coefficients for each of its blocks, and 64 more. */
fl_jpeg_dct_rows fl_jpeg_dct_rows_in(const fl_jpeg_frame *frame, int16_t *room);

/* Coded data in the making. */
typedef struct fl_jpeg_dct_scan {
    const fl_jpeg_frame *frame;
    const fl_jpeg_dct_kernels *kernels;
    bool ones; /* what fills the last byte of an interval */
    fl_jpeg_dct_code dc[4][256], ac[4][256];
    uint64_t bits; /* from the top on */
    unsigned count; /* of bits, below 8 between blocks */
    uint32_t until_restart;
    uint8_t restart;
    int before[3];
} fl_jpeg_dct_scan;

void fl_jpeg_dct_scan_begin(fl_jpeg_dct_scan *scan, const fl_jpeg_tables *tables, const fl_jpeg_frame *frame,
                            bool ones);

/* Most bytes that an MCU row takes. */
size_t fl_jpeg_dct_scan_most(const fl_jpeg_frame *frame);

/* Writes an MCU row. Both `plain`, which is scratch, and `out` have room for fl_jpeg_dct_scan_most. Returns
 * where it ends, or NULL: a coefficient for which the tables have no code. */
uint8_t *fl_jpeg_dct_scan_row(fl_jpeg_dct_scan *scan, const fl_jpeg_dct_rows *rows, uint8_t *plain,
                              uint8_t *out);

/* The last byte. */
uint8_t *fl_jpeg_dct_scan_end(fl_jpeg_dct_scan *scan, uint8_t *out);

#endif
