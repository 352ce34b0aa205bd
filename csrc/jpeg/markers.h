/* jpeg/markers: the segments of a JPEG, found and copied without decoding. Stateless; any thread. */
#ifndef FL_JPEG_MARKERS_H
#define FL_JPEG_MARKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Second bytes of markers, after 0xFF. ITU-T T.81, table B.1. */
typedef enum fl_jpeg_marker {
    FL_JPEG_TEM = 0x01,
    FL_JPEG_SOF0 = 0xC0,
    FL_JPEG_SOF1 = 0xC1,
    FL_JPEG_SOF2 = 0xC2,
    FL_JPEG_DHT = 0xC4,
    FL_JPEG_JPG = 0xC8,
    FL_JPEG_DAC = 0xCC,
    FL_JPEG_SOF15 = 0xCF,
    FL_JPEG_RST0 = 0xD0,
    FL_JPEG_RST7 = 0xD7,
    FL_JPEG_SOI = 0xD8,
    FL_JPEG_EOI = 0xD9,
    FL_JPEG_SOS = 0xDA,
    FL_JPEG_DQT = 0xDB,
    FL_JPEG_DNL = 0xDC,
    FL_JPEG_DRI = 0xDD,
    FL_JPEG_APP0 = 0xE0,
    FL_JPEG_APP1 = 0xE1,
    FL_JPEG_APP2 = 0xE2,
    FL_JPEG_APP14 = 0xEE,
    FL_JPEG_APP15 = 0xEF,
    FL_JPEG_COM = 0xFE
} fl_jpeg_marker;

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
    uint32_t scans;
    uint32_t stray;    /* bytes between segments that belong to none */
    bool eoi;          /* the end marker is there */
    /* bytes that are the image, end marker included; what follows is another picture, or rubbish */
    size_t end;
    bool damaged; /* a marker where none may be, a length that lies, restarts out of order */
    char damage[FL_TEXT]; /* the first of them, in words; "" */
} fl_jpeg_layout;

/* Walks the markers without decoding. FL_EJPEG when it is no JPEG or has no frame header before its first
 * scan; FL_ETRUNCATED when it ends before its first scan. What is wrong after that is reported in the layout,
 * for libjpeg may still make something of it. */
fl_code fl_jpeg_markers_read(const uint8_t *bytes, size_t size, fl_jpeg_layout *layout, fl_error *err);

/* Copies the JPEG without metadata, thumbnails, comments, profiles, stray bytes and whatever follows its end.
 * Kept are tables, frame, scans, byte for byte, and of JFIF and Adobe markers the part that tells libjpeg the
 * colour space. Never longer than the source: capacity must be at least size (FL_EARG). FL_EJPEG for a
 * damaged file (see the layout). A missing end marker is not made up. */
fl_code fl_jpeg_strip(const uint8_t *bytes, size_t size, uint8_t *out, size_t capacity, size_t *written,
                      fl_error *err);

#endif
