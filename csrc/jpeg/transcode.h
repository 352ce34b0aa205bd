/* jpeg/transcode: what packing does to a JPEG without touching its coefficients. Stateless; any thread.
 *
 * NOTE [ transcode: same pixels ]
 * Each function here that returns a file promises that fl_jpeg_decode makes of it the very pixels it makes of the source (fl_jpeg_transform:
 * the very coefficients, moved), or fails and says why. Where that cannot be kept, the caller keeps the source's bytes.
 *
 * Buffers returned through `out` come from malloc and are the caller's, to be freed with free().
 */
#ifndef FL_JPEG_TRANSCODE_H
#define FL_JPEG_TRANSCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* One marker segment, in the order of the file. */
typedef struct fl_jpeg_segment {
    uint8_t marker; /* 0xC0 .. 0xFE, without the 0xFF */
    size_t offset;  /* of the 0xFF that starts it */
    size_t length;  /* marker and payload, without the coded data of a scan */
    size_t data;    /* SOS: bytes of entropy-coded data, restart markers included, right after it */
} fl_jpeg_segment;

typedef enum fl_jpeg_kind {
    FL_JPEG_BASELINE = 0,
    FL_JPEG_EXTENDED = 1,
    FL_JPEG_PROGRESSIVE = 2,
    FL_JPEG_LOSSLESS = 3,
    FL_JPEG_HIERARCHICAL = 4
} fl_jpeg_kind;

typedef struct fl_jpeg_layout {
    uint32_t width, height;
    uint8_t components, precision, h[4], v[4]; /* sampling factors of the first 4 components */
    fl_jpeg_kind kind;
    bool arithmetic;
    uint8_t orientation; /* EXIF: 1 .. 8; 1 when there is none */
    int adobe;           /* transform of an Adobe marker that libjpeg heeds; -1 when there is none */
    bool jfif, exif, icc;
    uint32_t restart_interval; /* of the first scan, in MCUs; 0: none */
    uint32_t segments, scans;
    uint32_t stray;    /* bytes between segments that belong to none */
    bool eoi;          /* the end marker is there */
    size_t end;        /* bytes that are the image, end marker included; what follows is another picture, or rubbish */
    bool damaged;      /* a marker where none may be, a length that lies, restarts out of order */
    char damage[FL_TEXT]; /* the first of them, in words; "" */
} fl_jpeg_layout;

/* Walks the markers without decoding. Fills up to `capacity` segments (layout->segments counts all). FL_EJPEG when it is no JPEG or
 * has no frame header before its first scan; FL_ETRUNCATED when it ends before its first scan. What is wrong after that is
 * reported in the layout, for libjpeg may still make something of it. */
fl_code fl_jpeg_scan(const uint8_t *bytes, size_t size, fl_jpeg_layout *layout, fl_jpeg_segment *segments, size_t capacity, fl_error *err);

/* Copies the JPEG without metadata, thumbnails, comments, profiles, stray bytes and whatever follows its end. Kept are tables, frame,
 * scans, byte for byte, and of JFIF and Adobe markers the part that tells libjpeg the colour space. Never longer than the source: capacity
 * must be at least size (FL_EARG). FL_EJPEG for a damaged file (see the layout). A missing end marker is not made up. */
fl_code fl_jpeg_strip(const uint8_t *bytes, size_t size, uint8_t *out, size_t capacity, size_t *written, fl_error *err);

/* Any DCT JPEG (progressive, arithmetic, several scans) → one scan of baseline Huffman coding with optimal tables,
 * without metadata. FL_EUNSUPPORTED when that cannot hold the same pixels (a progressive file that stops early, which libjpeg smooths; coefficients
 * out of Huffman coding's range; too many blocks for one scan). */
fl_code fl_jpeg_to_baseline(const uint8_t *bytes, size_t size, uint64_t max_pixels, uint8_t **out, size_t *written, fl_error *err);

/* As fl_jpeg_to_baseline, with the image turned upright: orientation is EXIF's 1 .. 8. FL_EUNSUPPORTED when a side that would have to move is
 * not whole iMCUs, so that the turn would not be lossless. */
fl_code fl_jpeg_transform(const uint8_t *bytes, size_t size, int orientation, uint64_t max_pixels, uint8_t **out, size_t *written,
                          fl_error *err);

/* Entropy-decodes the whole file up to its end marker: FL_OK with the number of libjpeg's warnings and the text of the first (""),
 * or why it cannot be decoded. */
fl_code fl_jpeg_check(const uint8_t *bytes, size_t size, uint64_t max_pixels, uint32_t *warnings, char first[FL_TEXT], fl_error *err);

#endif
