/* jpeg/turn: coefficients moved as an EXIF orientation turns the picture. For jpeg/transcode; errors go by
 * longjmp, see jpeg/libjpeg_io.h. */
#ifndef FL_JPEG_TURN_H
#define FL_JPEG_TURN_H

#include "jpeg/libjpeg_io.h"

/* Between jpeg_copy_critical_parameters and jpeg_write_coefficients: gives the compressor the turned
 * picture's size, samplings and quantisers, and returns its arrays of coefficients, which are empty. Fails
 * with FL_EUNSUPPORTED where a side that would have to move is not whole iMCUs. orientation: 2 .. 8. */
jvirt_barray_ptr *fl_jpeg_turn_begin(fl_libjpeg_io *io, struct jpeg_compress_struct *d, int orientation);

/* After jpeg_write_coefficients: fills them from those of the source. */
void fl_jpeg_turn_fill(struct jpeg_decompress_struct *c, jvirt_barray_ptr *from,
                       struct jpeg_compress_struct *d, jvirt_barray_ptr *to, int orientation);

#endif
