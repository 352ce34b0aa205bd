/* jpeg/dct_scans: the scans of a usual progressive JPEG, as coefficients and back.
 *
 * A file is its coefficients, all segments with what they say, and the coded data between them. Of the same
 * coefficients a scan can be coded in many ways: how long runs of ended blocks are, and so where the bits
 * that correct earlier coefficients stand, is the encoder's choice. Written is what libjpeg and those that
 * come from it write: runs as long as they can be, up to 0x7FFF blocks or 937 correcting bits. So a file that
 * was read is written, and its bytes are compared.
 *
 * Source of the rules: ITU-T T.81, annex G; of the limits of a run: libjpeg-turbo, jcphuff.c.
 */
#ifndef FL_JPEG_DCT_SCANS_H
#define FL_JPEG_DCT_SCANS_H

#include "jpeg/dct_code.h"
#include "jpeg/header.h"

enum {
    FL_JPEG_DCT_SCANS_MOST = 100, /* FL_JPEG_SCANS_MAX, and for the same reason */
    FL_JPEG_DCT_UNSENT = 255
};

/* What a scan's header says. */
typedef struct fl_jpeg_dct_scan_header {
    uint8_t count, component[3], dc[3], ac[3]; /* tables */
    /* zigzag positions; bits not sent before and after: 0 before for the first time */
    uint8_t from, to, high, low;
    uint32_t across, down; /* MCUs, or blocks of the one component */
} fl_jpeg_dct_scan_header;

/* State between scans. */
typedef struct fl_jpeg_dct_scans {
    const fl_jpeg_frame *frame;
    fl_jpeg_tables *tables; /* as far as they can be numbered; what was built of them is forgotten */
    fl_jpeg_dct_code (*dc)[256], (*ac)[256]; /* of each table */
    uint8_t missing[3][64]; /* bits of each position, or FL_JPEG_DCT_UNSENT */
    uint32_t interval, scans;
    unsigned dcs, acs; /* tables defined so far */
    int16_t *blocks; /* as fl_jpeg_dct_image has them */
    fl_jpeg_dct_scan_header scan; /* the last one */
} fl_jpeg_dct_scans;

typedef enum fl_jpeg_dct_segment {
    FL_JPEG_DCT_WRONG,
    FL_JPEG_DCT_OTHER,
    FL_JPEG_DCT_SCAN,
    FL_JPEG_DCT_END
} fl_jpeg_dct_segment;

/* Takes the segment at `at`, and sets its length. FL_JPEG_DCT_END: the end marker. FL_JPEG_DCT_WRONG: no
 * segment, or one that has no place there: a scan that the coefficients sent so far do not allow, another
 * frame or quantiser. */
fl_jpeg_dct_segment fl_jpeg_dct_take(fl_jpeg_dct_scans *scans, const uint8_t *at, const uint8_t *end,
                                     size_t *length);

/* True if all bits of all coefficients have been sent. */
bool fl_jpeg_dct_complete(const fl_jpeg_dct_scans *scans);

/* Blocks of an MCU of the scan, with their components. Returns how many. */
uint32_t fl_jpeg_dct_scan_mcu(const fl_jpeg_dct_scans *scans, uint32_t mcu,
                              int16_t *blocks[FL_JPEG_BLOCKS_MAX], uint8_t components[FL_JPEG_BLOCKS_MAX]);

#endif
