/* jpeg/header: what is read of a usual JPEG (baseline or extended sequential, 8 bit, Huffman, one scan of all
 * components) before its coded data: frame, quantisers, and Huffman tables made ready for jpeg/huffman.h.
 * Shared by the walk that proves a file and by the decoder.
 *
 * Source of the rules: ITU-T T.81, annex B.
 */
#ifndef FL_JPEG_HEADER_H
#define FL_JPEG_HEADER_H

#include <stddef.h>

#include "jpeg/huffman_tables.h"

/* Tables outlive a file: cameras and encoders mostly write the same ones, and a table equal to the last one
 * in its place is kept. */
typedef struct fl_jpeg_tables {
    fl_jpeg_codes dc[4], ac[4];
} fl_jpeg_tables;

typedef struct fl_jpeg_frame {
    uint32_t width, height, interval; /* interval: MCUs from one restart marker to the next; 0: none */
    uint8_t count, id[4], h[4], v[4], quant[4];
    uint8_t block_count, block_dc[FL_JPEG_BLOCKS_MAX], block_ac[FL_JPEG_BLOCKS_MAX],
        block_component[FL_JPEG_BLOCKS_MAX];
    uint32_t mcus_across, mcus_down;
    unsigned quants, dcs, acs; /* tables defined so far, one bit each */
    bool framed, jfif;
    int adobe; /* the transform of an Adobe marker; -1: none */
    uint16_t quantiser[4][64]; /* in the file's order, zigzag */
    size_t data; /* where the coded data start */
} fl_jpeg_frame;

/* Reads everything up to the first coded byte. False for a file of another kind, or of which libjpeg-turbo
 * might have anything to say. */
bool fl_jpeg_header_read(fl_jpeg_tables *tables, fl_jpeg_frame *frame, const uint8_t *bytes, size_t size);

/* The same of a progressive file, up to the first coded byte of its first scan: frame and quantisers, and
 * where blocks of an MCU would be in a scan of all components. Huffman tables and scan header are not looked
 * at. */
bool fl_jpeg_header_progressive(fl_jpeg_frame *frame, const uint8_t *bytes, size_t size);

/* True if fl_jpeg_baseline decodes such files, and an index helps: grey or YCbCr, one chroma sample for 1 or
 * 2 pixels each way. */
bool fl_jpeg_header_usual(const fl_jpeg_frame *frame);

/* Copies coded data from `at` to the next marker, or to the end, without the zeros stuffed in behind 0xFF,
 * and FL_JPEG_PAD zeros behind them. Returns where it stopped. `out` has room for end - at + FL_JPEG_PAD
 * bytes. */
const uint8_t *fl_jpeg_unstuff(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *size);

/* True if the marker at `at` is the given one, with nothing before it. */
static inline bool fl_jpeg_marker_at(const uint8_t *at, const uint8_t *end, uint8_t marker) {
    return end - at >= 2 && at[0] == 0xFF && at[1] == marker;
}

#endif
