/* resize/exact: Pillow's own resize of 8-bit grey and RGB images, bit for bit, into the caller's memory.
 *
 * NOTE [ resize: Pillow's arithmetic ]
 * Facts of Pillow's libImaging/Resample.c, Geometry.c and _imaging.c, which this room follows step by step:
 * - A box is four float32. Its width is their float32 difference, and everything after that is float64:
 *   scale, centres and weights.
 * - Weights are divided by their sum, then rounded to FL_RESIZE_EXACT_BITS fraction bits. A sum of products
 *   starts at one half, wraps in 32 bits, is shifted, and clipped to a byte after each pass.
 * - A pass is left out where the image's side, the output's side and the box agree. A box of whole pixels
 *   that equals the output in size is copied with any filter.
 * - Up to Pillow 12 rows are resampled across before columns down. Pillow 13 goes down first where the height
 *   shrinks by more than twice as many pixels as the width (FL_RESIZE_BY_SHRINK); the sizes are those of the
 *   whole image, not of the box.
 * - Nearest adds the step up from pixel to pixel, in float64; a position that thereby leaves the image is
 *   black.
 *
 * One fl_resize_exact per thread: scratch and the last tables are kept between images, so a warm resize
 * allocates nothing.
 */
#ifndef FL_RESIZE_EXACT_H
#define FL_RESIZE_EXACT_H

#include "common/image.h"
#include "common/status.h"

typedef struct fl_resize_exact fl_resize_exact;

typedef enum fl_resize_exact_filter { /* Pillow's numbers */
                                      FL_RESIZE_EXACT_NEAREST = 0,
                                      FL_RESIZE_EXACT_LANCZOS = 1,
                                      FL_RESIZE_EXACT_BILINEAR = 2,
                                      FL_RESIZE_EXACT_BICUBIC = 3,
                                      FL_RESIZE_EXACT_BOX = 4,
                                      FL_RESIZE_EXACT_HAMMING = 5,
                                      FL_RESIZE_EXACT_MKS2013 = 6,
                                      FL_RESIZE_EXACT_MKS2021 = 7
} fl_resize_exact_filter;

typedef enum fl_resize_order {
    FL_RESIZE_ACROSS_FIRST = 0,
    FL_RESIZE_DOWN_FIRST = 1,
    FL_RESIZE_BY_SHRINK = 2
} fl_resize_order;

typedef struct fl_resize_exact_spec {
    /* The image, beyond whose edges no pixel exists. The view holds all of it or a part: image_x and image_y
     * are the place of the image's first pixel in the view, below 0 where the view begins later. */
    int64_t image_x, image_y;
    uint32_t image_width, image_height;
    float left, top, right, bottom; /* the box, in pixels of the image */
    uint32_t out_width, out_height; /* what the box becomes */
    /* the part of out that is wanted, inside it; it fills the sink, before the sink's mirror */
    fl_box window;
    fl_resize_exact_filter filter;
    fl_resize_order order;
} fl_resize_exact_spec;

fl_code fl_resize_exact_create(fl_resize_exact **out, fl_error *err);
void fl_resize_exact_free(fl_resize_exact *exact); /* NULL is allowed */

/* The pixels of the image that the window is made of, as a box of the image. Sizes of 0 where it is made of
 * none. FL_EARG: box, window or names do not fit. */
fl_code fl_resize_exact_reads(const fl_resize_exact_spec *spec, fl_box *box, fl_error *err);

/* Writes the window into the sink, whose size it has. View and sink are RGB, or planes of one channel of one
 * byte. FL_EARG when something does not fit, or when the view lacks a pixel of fl_resize_exact_reads. */
fl_code fl_resize_exact_run(fl_resize_exact *exact, const fl_view *view, const fl_resize_exact_spec *spec,
                            const fl_sink *sink, fl_error *err);

#endif
