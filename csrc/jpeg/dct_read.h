/* jpeg/dct_read: the coded data of a usual JPEG as coefficients, of which they can be made again.
 *
 * NOTE [ dct: coded data that follow from their coefficients ]
 * fl_jpeg_dct_encode promises the file's bytes, and does not write them to find out: what it reads is such
 * that jpeg/dct_scan.c, given the same coefficients, tables and frame, has no choice but these bytes. Proof,
 * from the bytes up:
 * - Stuffing. Each 0xFF of the coded data is followed by 0 or by a marker, or nothing is read beyond it. So
 *   the plain bytes, stuffed, are the coded ones.
 * - Intervals. The markers are those that are due, with nothing before or behind them, and there is none
 *   behind the last MCU.
 * - Padding. Less than 8 bits are left at an interval's end, all ones or all zeros, the same in all
 *   intervals: `ones` says which.
 * - Symbols. A table has no symbol twice, so each symbol has one code: that which was read.
 * - Values. `size` bits stand for a number whose magnitude has just `size` bits, and each such number for one
 *   pattern of them. So symbol and bits follow from run and value; a DC difference from two coefficients, for
 *   sums that leave 16 bits are refused.
 * - Runs. Of the ways to code a block's zeros the writer takes 16 zeros only where another coefficient comes,
 *   and an end of block only where zeros are left. A block that was read to position `count` is coded so
 *   unless it has 16 zeros that no coefficient follows: then, and only then, the coefficient before `count`
 *   is zero.
 * What remains is that the form has these coefficients: fl_jpeg_dct_encode reads it, and compares.
 * tests/c/test_dct.c and tests/fuzz/fuzz_dct.c restore what was encoded, and compare bytes.
 */
#ifndef FL_JPEG_DCT_READ_H
#define FL_JPEG_DCT_READ_H

#include "common/buffer.h"
#include "common/status.h"
#include "jpeg/header.h"

/* Growth of buffers whose size depends on a file's. */
static const fl_buffer_rule FL_JPEG_DCT_RULE = {.least = 1 << 16, .keep = 64 << 20};

/* Scratch of a reader. Zeroed at first; freed by fl_jpeg_dct_coded_free. */
typedef struct fl_jpeg_dct_coded {
    fl_buffer plain, blocks;
} fl_jpeg_dct_coded;

/* All coefficients of an image: its MCUs' blocks as a scan of all components has them, 64 coefficients each
 * in zigzag order. */
typedef struct fl_jpeg_dct_image {
    int16_t *blocks;
    const uint8_t *end; /* of the coded data */
    bool ones; /* what fills the last byte of an interval */
    bool progressive;
} fl_jpeg_dct_image;

void fl_jpeg_dct_coded_free(fl_jpeg_dct_coded *room);

/* Room for all blocks, and what is written behind them. False: there is no memory. */
bool fl_jpeg_dct_image_fit(fl_jpeg_dct_coded *room, const fl_jpeg_frame *frame, fl_jpeg_dct_image *image);

/* Of the ways to fill an interval's last byte, `count` bits, *fill keeps those that it has: 1: zeros; 2:
 * ones. */
void fl_jpeg_dct_note_fill(const uint8_t *last, unsigned count, unsigned *fill);

/* Reads the coded data at [at, end), which a marker ends, or the end. The image is valid until the room's
 * next use. FL_EUNSUPPORTED: damaged, or not what the writer would write; FL_ENOMEM. */
fl_code fl_jpeg_dct_read(fl_jpeg_dct_coded *room, const fl_jpeg_tables *tables, const fl_jpeg_frame *frame,
                         const uint8_t *at, const uint8_t *end, fl_jpeg_dct_image *image);

#endif
