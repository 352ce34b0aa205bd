/* jpeg/dct: a JPEG in the DCT form (jpeg/dct_form.h), which is decoded faster, and back to its very bytes.
 *
 * One fl_jpeg_dct per thread, made and freed by its owner; it keeps tables and scratch between files. Bytes
 * that it returns are valid until the next call on it.
 */
#ifndef FL_JPEG_DCT_H
#define FL_JPEG_DCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct fl_jpeg_dct fl_jpeg_dct;

fl_code fl_jpeg_dct_create(fl_jpeg_dct **out, fl_error *err);
void fl_jpeg_dct_free(fl_jpeg_dct *dct); /* NULL is allowed */

/* The DCT form of a JPEG. FL_EUNSUPPORTED, with the reason, for a file that stays a JPEG: neither one for
 * fl_jpeg_baseline nor progressive with the same samplings, more than max_pixels pixels, damaged or
 * incomplete, with coefficients beyond the form's limits, or one that would not come back byte for byte. What
 * is returned has been read again, and its coefficients compared: NOTE [ dct: coded data that follow from
 * their coefficients ]. */
fl_code fl_jpeg_dct_encode(fl_jpeg_dct *dct, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                           const uint8_t **out, size_t *written, fl_error *err);

/* True if the file of the last fl_jpeg_dct_encode, which returned FL_OK, is proved sound as by
 * fl_jpeg_entropy_sound, which need not walk it then. */
bool fl_jpeg_dct_sound(const fl_jpeg_dct *dct);

/* The JPEG, byte for byte. FL_EJPEG for damage. */
fl_code fl_jpeg_dct_restore(fl_jpeg_dct *dct, const uint8_t *bytes, size_t size, const uint8_t **out,
                            size_t *written, fl_error *err);

#endif
