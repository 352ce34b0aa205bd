/* store/planes: pixels of 1 to 4 channels of 1 or 2 bytes, stored without loss: masks, depth, grey and RGBA
 * images.
 *
 * The form of an entry is in store/planes_strips.h.
 *
 * Nothing is believed: whatever the bytes are, a function reads no byte outside of the entry, writes no byte
 * outside of its output, and ends in time linear in the entry's size and the pixels that are asked for.
 * Values are written little-endian, channels interleaved.
 */
#ifndef FL_STORE_PLANES_H
#define FL_STORE_PLANES_H

#include "common/buffer.h"
#include "store/planes_strips.h"

/* Decodes a box of pixels into rows that are `stride` bytes apart. FL_ERECORD, FL_ENOMEM; FL_EARG: the box is
 * empty or not within. */
fl_code fl_planes_box(const fl_planes *planes, fl_box box, void *out, size_t stride, fl_buffer *scratch,
                      fl_error *err);

/* Pixel (columns[j], rows[i]) goes to row i, place j of the output: nearest resampling, crops and flips at
 * once. Numbers may repeat and come in any order; in rising or falling order they cost least. Of runs, only
 * the rows of strips that are asked for are looked at. FL_ERECORD, FL_ENOMEM; FL_EARG: a row or column is not
 * there. */
fl_code fl_planes_sample(const fl_planes *planes, const uint32_t *rows, uint32_t row_count,
                         const uint32_t *columns, uint32_t column_count, void *out, size_t stride,
                         fl_buffer *scratch, fl_error *err);

/* Encodes pixels that lie without gaps, with the codec that suits them: runs where they take at most twice
 * the bytes of zlib, or a 16th of the pixels' (zlib is not tried then); else zlib, where that is smaller than
 * the pixels. `out` is grown to hold the entry of *size bytes. FL_EARG: sides or channels out of range.
 * FL_ELIMIT: the pixels take more than a record may have. FL_ENOMEM. */
fl_code fl_planes_encode(const void *pixels, uint32_t height, uint32_t width, uint32_t channels,
                         uint32_t depth, fl_buffer *out, size_t *size, fl_error *err);

#endif
