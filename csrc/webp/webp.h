/* webp/webp: a still WebP's pixels, as Pillow's convert("RGB") makes them; libwebp decodes.
 *
 * NOTE [ webp: what is decoded here ]
 * The reference is Pillow, which opens a file by libwebp's demuxer and draws its first frame on a transparent
 * canvas. A file is decoded here only where it is certain that Pillow decodes it to the same pixels: one
 * image that fills its canvas, its chunks whole, known and in the container's order. Any other file is
 * FL_EUNSUPPORTED, sound or not, and Pillow opens it and decides. Left to Pillow on purpose: animated files.
 * As convert() does, this drops alpha.
 *
 * One thread at a time. Memory: the rows of a box, down to the image's last where that is not known.
 */
#ifndef FL_WEBP_WEBP_H
#define FL_WEBP_WEBP_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/image.h"
#include "common/status.h"

/* Borrows the file's bytes. */
typedef struct fl_webp {
    /* the chunk of the image, after that of its alpha: to bytes behind them, which its codes may lead to,
     * Pillow does not come */
    fl_span image;
    uint32_t width, height;
    bool may_turn; /* it has metadata that may say how to turn it */
} fl_webp;

/* True if the bytes begin as a WebP. */
bool fl_webp_is(fl_span data);

/* FL_EUNSUPPORTED with the reason. See NOTE [ webp: what is decoded here ]. */
fl_code fl_webp_open(fl_span data, fl_webp *webp, fl_error *err);

/* The pixels of a box of an open image, in the buffer. All of its data is read, so that which files are
 * errors does not depend on the box, but of one that is known to be `sound`. FL_EUNSUPPORTED: it is
 * damaged. */
fl_code fl_webp_box(const fl_webp *webp, fl_box box, bool sound, fl_buffer *buffer, fl_view *view,
                    fl_error *err);

#endif
