/* jpeg/dct_write: coefficients in the DCT form (jpeg/dct_form.h). */
#ifndef FL_JPEG_DCT_WRITE_H
#define FL_JPEG_DCT_WRITE_H

#include "common/buffer.h"
#include "jpeg/dct_form.h"
#include "jpeg/dct_read.h"

/* Scratch of a writer. Zeroed at first; freed by fl_jpeg_dct_room_free. */
typedef struct fl_jpeg_dct_room {
    fl_buffer data, strips, ends, scratch, out;
} fl_jpeg_dct_room;

void fl_jpeg_dct_room_free(fl_jpeg_dct_room *room);

typedef enum fl_jpeg_dct_outcome {
    FL_JPEG_DCT_WRITTEN,
    FL_JPEG_DCT_NO_MEMORY,
    FL_JPEG_DCT_TOO_LARGE
} fl_jpeg_dct_outcome;

/* The form of an image (fl_jpeg_header_usual). FL_JPEG_DCT_TOO_LARGE: coefficients or an image beyond the
 * form's limits. The bytes are valid until the room's next use. */
fl_jpeg_dct_outcome fl_jpeg_dct_write(fl_jpeg_dct_room *room, const fl_jpeg_frame *frame,
                                      const fl_jpeg_dct_image *image, fl_span head, fl_span tail,
                                      fl_span *out);

/* Room for `need` bytes behind the first `used`, which stay. False: there is no memory; the buffer is as it
 * was. */
bool fl_jpeg_dct_grow(fl_buffer *buffer, size_t used, size_t need);

#endif
