/* engine/geometry: a transform list as a program, and what it makes of one image: which box of the source is kept, what size it
 * becomes, which window of that is wanted, and whether it is mirrored. Pure functions; plain values; any thread.
 *
 * Parameters, rounding and the fallback of the random-resized crop are torchvision's (transforms v2).
 */
#ifndef FL_ENGINE_GEOMETRY_H
#define FL_ENGINE_GEOMETRY_H

#include "common/image.h"
#include "common/rng.h"
#include "common/status.h"

typedef enum fl_op_kind {
    FL_OP_RESIZED_CROP = 1, /* width x height, scale[], ratio[]; filter, antialias */
    FL_OP_RESIZE = 2, /* width x height; height == 0: width is the shorter side, max_size caps the longer */
    FL_OP_CENTER_CROP = 3, /* width x height, padded with black where the image is smaller */
    FL_OP_RANDOM_CROP = 4, /* width x height, padding[left, top, right, bottom], pad_if_needed, fill */
    FL_OP_HFLIP = 5, /* p */
    FL_OP_VFLIP = 6 /* p */
} fl_op_kind;

typedef struct fl_op {
    fl_op_kind kind;
    uint16_t stream; /* the op's own random stream */
    uint32_t width, height, max_size;
    double scale[2], ratio[2], p;
    uint32_t padding[4];
    bool pad_if_needed;
    uint8_t fill[3];
    int filter; /* fl_resize_filter */
    bool antialias, dct_scale;
} fl_op;

enum { FL_OPS_MAX = 16 };

typedef struct fl_program {
    uint32_t count;
    fl_op ops[FL_OPS_MAX];
} fl_program;

typedef struct fl_rect {
    int64_t x, y, width, height;
} fl_rect;

typedef struct fl_geometry {
    fl_box box; /* of the source, full-size pixels */
    uint32_t width, height; /* what the box is resized to; the box's own size when resized is false */
    bool resized;
    int filter;
    bool antialias, dct_scale;
    fl_rect window; /* of the resized image: what the sink shows; may reach beyond it */
    fl_rect visible; /* the part of the window that shows the image; the rest shows fill */
    uint8_t fill[3];
    bool hflip, vflip; /* the finished window is mirrored */
} fl_geometry;

/* Runs the program for an image of width x height. FL_EARG when a crop does not fit; FL_EUNSUPPORTED for a resize after a
 * resize or after padding (plan.py refuses those lists before; this is the second lock). */
fl_code fl_geometry_resolve(const fl_program *program, uint32_t width, uint32_t height, fl_key key, fl_geometry *out, fl_error *err);

/* The size the program gives such an image; it never depends on the random draws. */
fl_code fl_geometry_size(const fl_program *program, uint32_t width, uint32_t height, uint32_t *out_width, uint32_t *out_height,
                         fl_error *err);

#endif
