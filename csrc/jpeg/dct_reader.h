/* jpeg/dct_reader: a strip of the DCT form, entered at its entry point before a block and read on from there,
 * a chunk at a time. */
#ifndef FL_JPEG_DCT_READER_H
#define FL_JPEG_DCT_READER_H

#include "jpeg/dct_blocks.h"

typedef struct fl_jpeg_dct_reader {
    const fl_jpeg_dct_strip *strip;
    fl_jpeg_dct_run run; /* run.block: the next one; run.coefs and run.counts are the caller's to set */
    uint32_t to; /* blocks to read end here */
    uint32_t segment, segment_end; /* the segment of the next block; its end in blocks ... */
    uint64_t segment_bit; /* ... and in bits, by the table */
} fl_jpeg_dct_reader;

/* Goes to block `from`, of which `dc` points to the DC coefficient; those after it follow. False for
 * damage. */
bool fl_jpeg_dct_enter(fl_jpeg_dct_reader *reader, const fl_jpeg_dct_kernels *kernels,
                       const fl_jpeg_dct_strip *strip, uint32_t from, uint32_t to, const int16_t *dc);

/* Sets run.count to the blocks that can be made next, at most `most`; 0 at the end. */
static inline uint32_t fl_jpeg_dct_next(fl_jpeg_dct_reader *r, uint32_t most) {
    const uint32_t end = r->segment_end < r->to ? r->segment_end : r->to, left = end - r->run.block;
    return r->run.count = left < most ? left : most;
}

/* To be called after each chunk: at a segment's end compares the position with the table's, and goes on to
 * the next segment. False for damage. */
bool fl_jpeg_dct_settle(fl_jpeg_dct_reader *reader);

#endif
