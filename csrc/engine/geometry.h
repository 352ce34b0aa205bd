/* engine/geometry: a transform list as a program, and what it makes of one sample: which box of the source
 * image is kept, what size it becomes, which window of that is wanted, whether it is mirrored; and the same
 * step by step, for boxes, points and masks. Pure functions; plain values; any thread.
 *
 * Parameters, rounding and the fallback of the random-resized crop are torchvision's (transforms v2).
 *
 * NOTE [ geometry: one draw ]
 * fl_geometry_resolve draws once for a sample; whatever belongs to it goes through the result: its image by
 * box, window and mirrors, its boxes by fl_boxes_step (in the resolve itself, because a crop may depend on
 * them), points and masks by engine/objects.h.
 */
#ifndef FL_ENGINE_GEOMETRY_H
#define FL_ENGINE_GEOMETRY_H

#include "common/image.h"
#include "common/rng.h"
#include "common/status.h"
#include "engine/boxes.h"
#include "engine/step.h"

typedef enum fl_op_kind {
    FL_OP_RESIZED_CROP = 1, /* width x height, scale[], ratio[]; filter, antialias */
    /* width x height; height == 0: width is the shorter side, max_size caps the longer; both 0: the
     * longer is max_size */
    FL_OP_RESIZE = 2,
    FL_OP_CENTER_CROP = 3, /* width x height, padded with black where the image is smaller; floors */
    FL_OP_RANDOM_CROP = 4, /* width x height, padding[left, top, right, bottom], pad_if_needed, fill */
    FL_OP_HFLIP = 5, /* p */
    FL_OP_VFLIP = 6, /* p */
    FL_OP_ZOOM_OUT = 7, /* p, scale[] of the sides, fill */
    FL_OP_SCALE_JITTER = 8, /* width and height: target_size[0] and [1]; scale[] */
    FL_OP_SHORTEST_SIZE = 9, /* options: the sizes; max_size, 0 for none */
    FL_OP_IOU_CROP = 10, /* scale[] of the sides, ratio[], options: the least overlaps, trials */
    FL_OP_SANITIZE = 11, /* min_size, min_area */
    FL_OP_LETTERBOX = 12, /* fitted into width x height, then centred on fill */
    FL_OP_RANDOM_RESIZE =
        13, /* the shorter side is drawn from options[0] to below options[1], as whole numbers */
    FL_OP_FORMAT = 14, /* box_format */
    FL_OP_CORNER_CROP = 15, /* width x height from the corner that right and bottom say; the image holds it */
    /* From here on of the finished image, which keeps its size: engine/augment.h. All with p. */
    FL_OP_JITTER = 16, /* options: least and most of brightness, contrast, saturation and hue */
    FL_OP_GREY = 17,
    FL_OP_SOLARIZE = 18, /* options: threshold */
    FL_OP_POSTERIZE = 19, /* options: bits, 1 to 8 */
    FL_OP_INVERT = 20,
    FL_OP_EQUALIZE = 21,
    FL_OP_AUTOCONTRAST = 22,
    FL_OP_SHARPNESS = 23, /* options: factor */
    FL_OP_GAUSSIAN_BLUR = 24, /* options: weights across and down, odd; least and most sigma */
    FL_OP_ROTATE = 25, /* options: least and most degrees; fill, warp */
    /* options: least and most degrees, the shares of width and height that it shifts by, least and most
     * scale, least and most shear along x and y; fill, warp */
    FL_OP_AFFINE = 26,
    FL_OP_PERSPECTIVE = 27, /* options: the share of a half side by which corners move at most; fill, warp */
    FL_OP_RAND_AUGMENT = 28, /* policy; fill, warp; without p, as those below */
    FL_OP_TRIVIAL_AUGMENT = 29,
    /* options: pairs of a kind, a chance and a bin, as engine/augment.c packs them */
    FL_OP_AUTO_AUGMENT = 30,
    /* By engine/erase.h, after all others. options: least and most share of the area, least and most height by
     * width; fill, or values where `floats` says so */
    FL_OP_ERASE = 31,
    /* options: a number of which both sides become multiples, least and most pixels of the whole; filter, antialias */
    FL_OP_PATCH_GRID = 32
} fl_op_kind;

enum { FL_OPS_MAX = 16, FL_OPTIONS_MAX = 32, FL_STEPS_MAX = 2 * FL_OPS_MAX };

/* The largest magnitudes of an augmentation policy: a slope, pixels or a share of a side, degrees, what is added to
 * a factor of 1, and bits. */
typedef struct fl_policy {
    uint32_t count, bin, bins; /* ops of an image, and their magnitude: bin 0 .. bins - 1, at least 2 */
    double shear, translate, rotate, blend, posterize;
    bool shares; /* translate is a share */
} fl_policy;

typedef struct fl_op {
    fl_op_kind kind;
    uint16_t stream; /* the op's own random stream */
    uint32_t width, height, max_size;
    double scale[2], ratio[2], p;
    uint32_t padding[4];
    bool pad_if_needed;
    bool right, bottom; /* which corner */
    bool floors; /* half of an odd cut is rounded down, and not to the even number */
    bool exchange; /* a flip that is done exchanges the keypoints of each pair */
    bool late; /* a flip that comes after a warp */
    uint8_t fill[3];
    uint16_t mask_fill;
    int filter; /* fl_resize_filter */
    bool antialias, dct_scale;
    /* a resize to a side that truncates to 0 fails, as in torchvision; otherwise that side becomes 1 */
    bool strict;
    uint32_t option_count, trials;
    double options[FL_OPTIONS_MAX];
    double min_size, min_area;
    fl_box_format box_format;
    int warp; /* fl_colour_filter */
    fl_policy policy;
    bool floats; /* what is filled has values, and not the bytes of fill */
    float values[3];
} fl_op;

typedef struct fl_program {
    uint32_t count;
    fl_op ops[FL_OPS_MAX];
} fl_program;

typedef struct fl_rect {
    int64_t x, y, width, height;
} fl_rect;

typedef struct fl_geometry {
    /* of the source, full-size pixels: what is shown of it. Empty, where the resized canvas shows nothing
     * of it */
    fl_box box;
    /* what is resized: the box, and where padding came before the resize the padding, too. In the
     * source's pixels */
    fl_rect canvas;
    uint32_t width, height; /* what the canvas is resized to; its own size when resized is false */
    bool resized;
    bool padded; /* before the resize: the canvas is larger than the box, and shows canvas_fill around it */
    int filter;
    bool antialias, dct_scale;
    fl_rect window; /* of the resized image: what the sink shows; may reach beyond it */
    fl_rect visible; /* the part of the window that shows the image; the rest shows fill */
    uint8_t canvas_fill[3], fill[3];
    uint16_t mask_fill; /* what masks show where nothing of theirs is */
    bool hflip, vflip; /* the finished window is mirrored */
    bool late_hflip, late_vflip; /* and again, after all that engine/augment.h does */
    bool exchanged; /* by an odd number of flips: the keypoints of each pair have changed places */
    uint32_t step_count;
    fl_step steps[FL_STEPS_MAX];
} fl_geometry;

/* Runs the program for a sample whose image has width x height pixels. `boxes`: those of the sample, taken
 * through the steps in place; NULL: none, then FL_OP_IOU_CROP is FL_EARG. FL_EARG when a crop does not fit;
 * FL_ELIMIT for a canvas too large; FL_EUNSUPPORTED for a resize after a resize (fastload/transforms refuses
 * those lists before; this is the second lock). On an error the boxes hold no meaning. */
fl_code fl_geometry_resolve(const fl_program *program, uint32_t width, uint32_t height, fl_key key,
                            fl_boxes *boxes, fl_geometry *out, fl_error *err);

/* The size the program gives the sample of that key. Where that depends on its boxes (FL_OP_IOU_CROP, and no
 * fixed size after it): for each side the largest that it can be, whatever they are. */
fl_code fl_geometry_size(const fl_program *program, uint32_t width, uint32_t height, fl_key key,
                         uint32_t *out_width, uint32_t *out_height, fl_error *err);

#endif
