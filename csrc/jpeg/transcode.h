/* jpeg/transcode: what packing does to a JPEG without touching its coefficients, and JPEGs of pixels.
 * Stateless; any thread.
 *
 * NOTE [ transcode: same pixels ]
 * Each function here that makes a file of a file promises that fl_libjpeg_decode makes of it the very pixels it makes
 * of the source (fl_jpeg_transform: the very coefficients, moved), or fails and says why. Where that cannot
 * be kept, the caller keeps the source's bytes.
 *
 * Buffers returned through `out` come from malloc and are the caller's, to be freed with free().
 */
#ifndef FL_JPEG_TRANSCODE_H
#define FL_JPEG_TRANSCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/image.h"
#include "common/status.h"

/* Any DCT JPEG (progressive, arithmetic, several scans) → one scan of baseline Huffman coding with optimal
 * tables, without metadata, turned upright as EXIF's orientation 1 .. 8 asks. FL_EUNSUPPORTED when that
 * cannot hold the same pixels: a progressive file that stops early, which libjpeg smooths; coefficients out
 * of Huffman coding's range; too many blocks for one scan; a side that would have to move is not whole iMCUs,
 * so that the turn would not be lossless. */
fl_code fl_jpeg_transform(const uint8_t *bytes, size_t size, int orientation, uint64_t max_pixels,
                          uint8_t **out, size_t *written, fl_error *err);

/* A baseline JPEG of RGB pixels: 4:2:0, as Pillow writes it at that quality. FL_EUNSUPPORTED: a side is longer
 * than a JPEG's. */
fl_code fl_jpeg_encode(const fl_view *image, int quality, uint8_t **out, size_t *written, fl_error *err);

/* Result of decoding a file's coefficients.
 * NOTE [ jpeg: files that decoders smooth ]
 * A progressive file may end before its coefficients have full precision: a script of few scans, or a file
 * that lost the last of them. libjpeg-turbo is silent about it, and smooths such a picture across its blocks.
 * The standard does not know this filter, and it differs between releases. So the pixels are a matter of the
 * library that decodes, where those of any other sound file are not. In place, such a file is opened by the
 * dataset's own loader. A lossless pack stores the pixels that it has when it is packed. */
typedef struct fl_jpeg_checked {
    uint32_t warnings;   /* libjpeg's */
    char first[FL_TEXT]; /* the text of the first, or "" */
    bool smoothed;       /* libjpeg smooths it */
} fl_jpeg_checked;

/* Entropy-decodes the whole file up to its end marker. FL_OK, or why it cannot be decoded. */
fl_code fl_jpeg_check(const uint8_t *bytes, size_t size, uint64_t max_pixels, fl_jpeg_checked *checked,
                      fl_error *err);

#endif
