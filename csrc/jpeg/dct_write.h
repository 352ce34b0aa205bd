/* jpeg/dct_write: coefficients in the DCT form (jpeg/dct_form.h). */
#ifndef FL_JPEG_DCT_WRITE_H
#define FL_JPEG_DCT_WRITE_H

#include "common/buffer.h"
#include "jpeg/dct_form.h"
#include "jpeg/dct_scan.h"

/* Scratch of a writer. Zeroed at first; freed by fl_jpeg_dct_room_free. */
typedef struct fl_jpeg_dct_room {
    fl_buffer data, strips, ends, out;
} fl_jpeg_dct_room;

void fl_jpeg_dct_room_free(fl_jpeg_dct_room *room);

typedef enum fl_jpeg_dct_outcome { FL_JPEG_DCT_WRITTEN, FL_JPEG_DCT_NO_MEMORY, FL_JPEG_DCT_TOO_LARGE } fl_jpeg_dct_outcome;

/* The form of a whole image (fl_jpeg_header_usual) whose head is given, without a tail: FL_JPEG_DCT_PAD zeros stand for it, and
 * fl_jpeg_dct_finish is to be called. FL_JPEG_DCT_TOO_LARGE: coefficients or an image beyond the form's limits. */
fl_jpeg_dct_outcome fl_jpeg_dct_write(fl_jpeg_dct_room *room, const fl_jpeg_frame *frame, const fl_jpeg_dct_rows *rows, fl_span head,
                                      fl_span *out);

/* Adds what is known only when the scan has been made again. The bytes are valid until the room's next use. */
fl_jpeg_dct_outcome fl_jpeg_dct_finish(fl_jpeg_dct_room *room, fl_span head, fl_span tail, bool ones, fl_span *out);

/* Growth of buffers whose size depends on a file's. */
static const fl_buffer_rule FL_JPEG_DCT_RULE = {.least = 1 << 16, .keep = 64 << 20};

/* Room for `need` bytes behind the first `used`, which stay. False: there is no memory; the buffer is as it was. */
bool fl_jpeg_dct_grow(fl_buffer *buffer, size_t used, size_t need);

#endif
