/* store/planes_zlib: strips of pixels, filtered as PNG's Sub and Up do and deflated, for images that are no
 * label maps.
 *
 * A strip is one zlib stream (RFC 1950) of its rows. A row is a byte, 1 (Sub: the value to the left is
 * subtracted from each) or 2 (Up: the value above; not in a strip's first row), the low bytes of its values,
 * and, of values of 2 bytes, their high bytes. Differences are modulo 256 or 65536, and values outside of the
 * row are 0.
 */
#ifndef FL_STORE_PLANES_ZLIB_H
#define FL_STORE_PLANES_ZLIB_H

#include "common/buffer.h"
#include "store/planes_strips.h"

/* One strip at a time, in memory of the reader's scratch. */
typedef struct fl_planes_inflater fl_planes_inflater;

/* FL_ENOMEM. */
fl_code fl_planes_inflater_create(const fl_planes *planes, fl_planes_inflater **out, fl_error *err);
void fl_planes_inflater_free(fl_planes_inflater *inflater); /* NULL is nothing */

/* The pixels of a row, valid until the next call. FL_ERECORD, FL_ENOMEM. */
fl_code fl_planes_inflater_row(fl_planes_inflater *inflater, uint32_t row, fl_buffer *scratch,
                               const uint8_t **out, fl_error *err);

/* Writes table and strips into `room` bytes; *size is 0 where they do not fit. FL_ENOMEM. */
fl_code fl_planes_deflate(const uint8_t *pixels, uint32_t height, uint32_t width, uint32_t channels,
                          uint32_t depth, uint8_t *out, size_t room, size_t *size, fl_error *err);

#endif
