/* resize/resize: two-pass resample of a box of a view, mirrored and converted on its way into its row of the
 * batch.
 *
 * One fl_resizer per thread: scratch and the last coefficient tables are kept between images. Values are
 * rounded to a byte once, at the end, and so are always within 1 of Pillow's, which rounds after each pass.
 * Antialiased bicubic clips between the passes, as Pillow does, horizontal first.
 * Taps reach beyond the box up to the view's edges (Pillow's box=): for crop-then-resize, as torchvision,
 * hand in a view of the crop. The AVX2 path is chosen at run time and gives the scalar path's bytes exactly.
 */
#ifndef FL_RESIZE_RESIZE_H
#define FL_RESIZE_RESIZE_H

#include "common/image.h"
#include "common/status.h"

typedef struct fl_resizer fl_resizer;
typedef enum fl_resize_filter { FL_RESIZE_BILINEAR = 0, FL_RESIZE_BICUBIC = 1 } fl_resize_filter;

typedef struct fl_resize_spec {
    /* The box, in pixels of the view; may be fractional. The part of it that the window shows lies inside the
     * view, the rest may reach beyond; pixels beyond the view do not exist for the filter. */
    double x, y, width, height;
    uint32_t out_width, out_height; /* what the box becomes */
    fl_box window; /* the part of out that is wanted, inside it; {0, 0, out_width, out_height} for all */
    uint32_t at_x, at_y; /* where the window's first pixel goes in the sink (before its mirror) */
    fl_resize_filter filter;
    bool antialias; /* true: Pillow's filters (bicubic a = -0.5, support scaled); false: torch's interpolate
                       (align_corners=False; bicubic a = -0.75, no scaling of the support) */
} fl_resize_spec;

fl_code fl_resizer_create(fl_resizer **out, fl_error *err);
void fl_resizer_free(fl_resizer *resizer); /* NULL is allowed */

/* Writes the window into the sink; the sink's other pixels are left alone. FL_EARG when box or window do not
 * fit. When the box is whole pixels and equals out in size, pixels are copied unresampled. */
fl_code fl_resize(fl_resizer *resizer, const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink,
                  fl_error *err);

/* Checks an output's size, and that the window is inside it: FL_EARG. */
fl_code fl_resize_check_out(uint32_t width, uint32_t height, const fl_box *window, fl_error *err);

/* Checks that a view and a sink can be, and are of one form: FL_EARG. */
fl_code fl_resize_check_ends(const fl_view *view, const fl_sink *sink, fl_error *err);

/* Checks that box, window and sink fit, for a view and a sink of one form: FL_EARG. */
fl_code fl_resize_check(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink, fl_error *err);

#endif
