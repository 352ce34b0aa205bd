/* jpeg/transcode: what packing does to a JPEG without touching its coefficients. Stateless; any thread.
 *
 * NOTE [ transcode: same pixels ]
 * Each function here that returns a file promises that fl_libjpeg_decode makes of it the very pixels it makes of the source (fl_jpeg_transform:
 * the very coefficients, moved), or fails and says why. Where that cannot be kept, the caller keeps the source's bytes.
 *
 * Buffers returned through `out` come from malloc and are the caller's, to be freed with free().
 */
#ifndef FL_JPEG_TRANSCODE_H
#define FL_JPEG_TRANSCODE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Any DCT JPEG (progressive, arithmetic, several scans) → one scan of baseline Huffman coding with optimal tables, without metadata, turned
 * upright as EXIF's orientation 1 .. 8 asks. FL_EUNSUPPORTED when that cannot hold the same pixels: a progressive file that stops early, which
 * libjpeg smooths; coefficients out of Huffman coding's range; too many blocks for one scan; a side that would have to move is not whole
 * iMCUs, so that the turn would not be lossless. */
fl_code fl_jpeg_transform(const uint8_t *bytes, size_t size, int orientation, uint64_t max_pixels, uint8_t **out, size_t *written,
                          fl_error *err);

/* Entropy-decodes the whole file up to its end marker: FL_OK with the number of libjpeg's warnings and the text of the first (""),
 * or why it cannot be decoded. */
fl_code fl_jpeg_check(const uint8_t *bytes, size_t size, uint64_t max_pixels, uint32_t *warnings, char first[FL_TEXT], fl_error *err);

#endif
