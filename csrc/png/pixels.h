/* png/pixels: a PNG's pixels, as Pillow's convert("RGB") makes them.
 *
 * One thread at a time. Memory: the compressed data, where it lies in several chunks, and the rows as they
 * are stored.
 */
#ifndef FL_PNG_PIXELS_H
#define FL_PNG_PIXELS_H

#include "common/image.h"
#include "png/chunks.h"

typedef struct fl_png_reader fl_png_reader;

fl_code fl_png_reader_create(fl_png_reader **out, fl_error *err);
void fl_png_reader_free(fl_png_reader *reader); /* idempotent; NULL is allowed */

/* The pixels of a box of an open image. All of its data is inflated and its checksum checked, so that which
 * files are errors does not depend on the box. FL_EUNSUPPORTED: it is damaged, or its data goes on after its
 * last row, which Pillow takes. */
fl_code fl_png_reader_box(fl_png_reader *reader, const fl_png *png, fl_box box, fl_view *view, fl_error *err);

#endif
