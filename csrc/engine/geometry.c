#include "engine/geometry.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* The work of one resolve. */
typedef struct resolving {
    fl_geometry *g;
    fl_boxes *boxes; /* or NULL */
    fl_key key;
    fl_error *err;
    /* no boxes are known, and crops that depend on them take nothing away: the window is the largest that
     * it can be */
    bool largest;
    /* then, past such a crop, the most that the width can be of the height, and the height of the width; 0:
     * the window is what it will be */
    double wide, high;
} resolving;

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static fl_rect meet(fl_rect a, fl_rect b) {
    int64_t x0 = greater(a.x, b.x), y0 = greater(a.y, b.y);
    int64_t x1 = lesser(a.x + a.width, b.x + b.width), y1 = lesser(a.y + a.height, b.y + b.height);
    return (fl_rect){x0, y0, greater(x1 - x0, 0), greater(y1 - y0, 0)};
}

static bool whole(const fl_geometry *g) {
    return g->visible.width == g->window.width && g->visible.height == g->window.height;
}

/* Narrows (or widens) the window to a rectangle given in the coordinates that the user sees, that is after
 * the mirrors so far. */
static void narrow(fl_geometry *g, fl_rect to) {
    if (g->hflip) to.x = g->window.width - to.x - to.width;
    if (g->vflip) to.y = g->window.height - to.y - to.height;
    to.x += g->window.x, to.y += g->window.y;
    g->window = to;
    g->visible = meet(g->visible, to);
}

/* Notes a step, whose canvases' sizes the caller has in `step`, and takes the boxes through it. */
static void note(resolving *r, fl_step step) {
    r->g->steps[r->g->step_count++] = step;
    if (r->boxes) fl_boxes_step(r->boxes, &step);
}

static fl_step step_of(const fl_geometry *g, fl_step_kind kind, int64_t width, int64_t height) {
    return (fl_step){.kind = kind,
                     .in_width = g->window.width,
                     .in_height = g->window.height,
                     .width = width,
                     .height = height};
}

static void crop(resolving *r, fl_step_kind kind, fl_rect to) {
    fl_step step = step_of(r->g, kind, to.width, to.height);
    step.x = to.x, step.y = to.y;
    narrow(r->g, to);
    note(r, step);
}

static fl_code pad(resolving *r, const fl_op *op, int64_t left, int64_t top, int64_t width, int64_t height) {
    if (width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX)
        return fl_fail(r->err, FL_ELIMIT, "padding makes %lld x %lld pixels of it; a side has at most %d",
                       (long long)width, (long long)height, (int)FL_IMAGE_SIDE_MAX);
    fl_step step = step_of(r->g, FL_STEP_PAD, width, height);
    step.x = left, step.y = top;
    narrow(r->g, (fl_rect){-left, -top, width, height});
    memcpy(r->g->fill, op->fill, sizeof op->fill);
    r->g->mask_fill = op->mask_fill;
    note(r, step);
    return FL_OK;
}

static uint32_t side_of(double side) { return (uint32_t)fmin(fmax(side, 1), FL_IMAGE_SIDE_MAX); }

/* From here on the window is the canvas, resized to width x height. */
static fl_code resize(resolving *r, const fl_op *op, uint32_t width, uint32_t height) {
    fl_geometry *g = r->g;
    if (g->resized) return fl_fail(r->err, FL_EUNSUPPORTED, "a second resize in one transform list");
    if (!width || !height || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX)
        return fl_fail(r->err, FL_EARG, "a resize to %u x %u pixels", width, height);
    const fl_step step = step_of(g, FL_STEP_RESIZE, width, height);
    g->padded = !whole(g);
    g->canvas = g->window;
    g->box = (fl_box){(uint32_t)g->visible.x, (uint32_t)g->visible.y, (uint32_t)g->visible.width,
                      (uint32_t)g->visible.height};
    if (!g->box.width || !g->box.height) g->box = (fl_box){0, 0, 0, 0};
    memcpy(g->canvas_fill, g->fill, sizeof g->fill);
    memset(g->fill, 0, sizeof g->fill);
    g->width = width, g->height = height;
    g->resized = true;
    g->filter = op->filter, g->antialias = op->antialias, g->dct_scale = op->dct_scale;
    g->window = g->visible = (fl_rect){0, 0, width, height};
    if (step.in_width != step.width || step.in_height != step.height) note(r, step);
    return FL_OK;
}

/* At least the side that a canvas not larger than the window becomes, where the arithmetic of sizes rounds in
 * another way. */
static double roomy(double side) { return ceil(side) + 1; }

/* A resize by the sides of a canvas of which only the largest size is known, to no more than width x
 * height. */
static fl_code resize_largest(resolving *r, const fl_op *op, double width, double height) {
    return resize(r, op, side_of(roomy(width)), side_of(roomy(height)));
}

/* The same, of the shorter side to `size` (0: any), the longer to max_size at most (0: any). */
static fl_code resize_largest_shorter(resolving *r, const fl_op *op, double size) {
    double width = size * fmax(r->wide, 1), height = size * fmax(r->high, 1);
    if (!size) width = op->max_size * fmin(r->wide, 1), height = op->max_size * fmin(r->high, 1);
    else if (op->max_size) width = fmin(width, op->max_size), height = fmin(height, op->max_size);
    return resize_largest(r, op, width, height);
}

/* As torchvision, which does nothing where the size is reached already; but padding so far is then part of
 * the canvas, with its own fill. */
static fl_code resize_to(resolving *r, const fl_op *op, uint32_t width, uint32_t height) {
    if (width == r->g->window.width && height == r->g->window.height && whole(r->g)) return FL_OK;
    return resize(r, op, width, height);
}

/* The same, to sides that follow from the image's and are truncated. */
static fl_code resize_truncated(resolving *r, const fl_op *op, double width, double height) {
    if (op->strict && (width < 1 || height < 1)) {
        const fl_rect *canvas = &r->g->window;
        return fl_fail(
            r->err, FL_EARG,
            "resizing %lld x %lld leaves %.0f x %.0f (height x width), and a side of 0 is no image",
            (long long)canvas->height, (long long)canvas->width, trunc(height), trunc(width));
    }
    return resize_to(r, op, side_of(width), side_of(height));
}

/* Draws torchvision's RandomResizedCrop box: ten tries, then the largest centred box of an allowed ratio. */
static fl_rect random_resized_box(const fl_op *op, double width, double height, fl_rng *rng) {
    double area = width * height, log_low = log(op->ratio[0]), log_high = log(op->ratio[1]);
    for (int attempt = 0; attempt < 10; attempt++) {
        double target = area * (op->scale[0] + (op->scale[1] - op->scale[0]) * fl_rng_uniform(rng));
        double ratio = exp(log_low + (log_high - log_low) * fl_rng_uniform(rng));
        double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height) {
            uint32_t y = fl_rng_below(rng, (uint32_t)(height - h) + 1),
                     x = fl_rng_below(rng, (uint32_t)(width - w) + 1);
            return (fl_rect){x, y, (int64_t)w, (int64_t)h};
        }
    }
    double ratio = width / height, w = width, h = height;
    if (ratio < op->ratio[0]) h = rint(w / op->ratio[0]);
    else if (ratio > op->ratio[1]) w = rint(h * op->ratio[1]);
    w = fmin(fmax(w, 1), width), h = fmin(fmax(h, 1), height);
    return (fl_rect){(int64_t)(width - w) / 2, (int64_t)(height - h) / 2, (int64_t)w, (int64_t)h};
}

static fl_code op_resized_crop(resolving *r, const fl_op *op) {
    fl_rng rng = fl_rng_start(r->key, op->stream);
    crop(r, FL_STEP_CROP,
         random_resized_box(op, (double)r->g->window.width, (double)r->g->window.height, &rng));
    return resize(r, op, op->width, op->height);
}

/* torchvision's _compute_resized_output_size: the shorter side becomes size, the longer is truncated;
 * without a size (0) the longer becomes max_size. */
static void shorter_side(const fl_op *op, uint32_t size, int64_t width, int64_t height, double *out_width,
                         double *out_height) {
    double small = (double)lesser(width, height), large = (double)greater(width, height);
    double new_small = size, new_large = trunc(new_small * large / small);
    if (!size) {
        new_small = trunc(op->max_size * small / large);
        new_large = op->max_size;
    } else if (op->max_size && new_large > op->max_size) {
        new_small = trunc((double)op->max_size * new_small / new_large);
        new_large = op->max_size;
    }
    *out_width = width <= height ? new_small : new_large;
    *out_height = width <= height ? new_large : new_small;
}

static fl_code resize_shorter(resolving *r, const fl_op *op, uint32_t size) {
    if (r->wide > 0) return resize_largest_shorter(r, op, size);
    double width, height;
    shorter_side(op, size, r->g->window.width, r->g->window.height, &width, &height);
    return resize_truncated(r, op, width, height);
}

static fl_code op_resize(resolving *r, const fl_op *op) {
    return op->height ? resize_to(r, op, op->width, op->height) : resize_shorter(r, op, op->width);
}

static fl_code op_scale_jitter(resolving *r, const fl_op *op) {
    fl_rng rng = fl_rng_start(r->key, op->stream);
    const double width = (double)r->g->window.width, height = (double)r->g->window.height;
    const double scale = op->scale[0] + fl_rng_uniform(&rng) * (op->scale[1] - op->scale[0]);
    if (r->wide > 0) return resize_largest(r, op, op->width * scale, op->height * scale);
    const double by = fmin(op->height / height, op->width / width) * scale;
    return resize_truncated(r, op, width * by, height * by);
}

static fl_code op_shortest_size(resolving *r, const fl_op *op) {
    if (!op->option_count || op->option_count > FL_OPTIONS_MAX)
        return fl_fail(r->err, FL_EARG, "RandomShortestSize with %u sizes", op->option_count);
    fl_rng rng = fl_rng_start(r->key, op->stream);
    const double width = (double)r->g->window.width, height = (double)r->g->window.height;
    const double size = op->options[fl_rng_below(&rng, op->option_count)];
    if (r->wide > 0) return resize_largest_shorter(r, op, size);
    double by = size / fmin(width, height);
    if (op->max_size) by = fmin(by, op->max_size / fmax(width, height));
    return resize_truncated(r, op, width * by, height * by);
}

static fl_code op_random_resize(resolving *r, const fl_op *op) {
    const double low = op->options[0], high = op->options[1];
    if (op->option_count != 2 || !(low >= 1 && low < high && high <= FL_IMAGE_SIDE_MAX))
        return fl_fail(r->err, FL_EARG, "RandomResize from %g to below %g pixels", low, high);
    fl_rng rng = fl_rng_start(r->key, op->stream);
    return resize_shorter(r, op, (uint32_t)low + fl_rng_below(&rng, (uint32_t)high - (uint32_t)low));
}

/* Ultralytics' LetterBox: the largest size of the image's ratio, rounded, in the middle; of an odd margin the
 * smaller half is first. */
static fl_code op_letterbox(resolving *r, const fl_op *op) {
    const double width = (double)r->g->window.width, height = (double)r->g->window.height;
    const double by = fmin(op->width / width, op->height / height);
    const uint32_t w = (uint32_t)lesser(side_of(rint(width * by)), op->width),
                   h = (uint32_t)lesser(side_of(rint(height * by)), op->height);
    if (!w || !h) return fl_fail(r->err, FL_EARG, "a letterbox of %u x %u pixels", op->width, op->height);
    fl_code code = resize_to(r, op, w, h);
    if (code || (w == op->width && h == op->height)) return code;
    return pad(r, op, (op->width - w) / 2, (op->height - h) / 2, op->width, op->height);
}

/* The largest ratio of sides that Qwen2-VL's processors take. */
static const double GRID_RATIO_MOST = 200;

/* smart_resize of Hugging Face's Qwen2-VL processors: both sides rounded to multiples, halves to even; where that is too
 * large or too small, the ratio is kept, and sides are rounded down or up. */
static fl_code op_patch_grid(resolving *r, const fl_op *op) {
    const double width = (double)r->g->window.width, height = (double)r->g->window.height;
    const double by = op->options[0], least = op->options[1], most = op->options[2];
    if (op->option_count != 3 || !(by >= 1 && by <= FL_IMAGE_SIDE_MAX && least <= most) || r->wide > 0)
        return fl_fail(r->err, FL_EARG, "a grid of patches by %g pixels, %g to %g in all", by, least, most);
    if (fmax(width, height) / fmin(width, height) > GRID_RATIO_MOST)
        return fl_fail(
            r->err, FL_EARG,
            "its %.0f x %.0f pixels (height x width) are more than %.0f times as long as wide, which no "
            "grid of patches takes",
            height, width, GRID_RATIO_MOST);
    double w = rint(width / by) * by, h = rint(height / by) * by;
    if (w * h > most) {
        const double beta = sqrt(height * width / most);
        w = fmax(by, floor(width / beta / by) * by), h = fmax(by, floor(height / beta / by) * by);
    } else if (w * h < least) {
        const double beta = sqrt(least / (height * width));
        w = ceil(width * beta / by) * by, h = ceil(height * beta / by) * by;
    }
    return resize_to(r, op, side_of(w), side_of(h));
}

/* Start of a crop of `want` along a side of `have`: padding first when the image is smaller, then the centre,
 * halves rounded to even, as torchvision does, or down. */
static int64_t centre(int64_t have, int64_t want, bool floors) {
    if (want > have) return -((want - have) / 2);
    return floors ? (have - want) / 2 : (int64_t)rint((double)(have - want) / 2.0);
}

static void op_center_crop(resolving *r, const fl_op *op) {
    fl_geometry *g = r->g;
    if (op->width > g->window.width || op->height > g->window.height) {
        memset(g->fill, 0, sizeof g->fill);
        g->mask_fill = 0;
    }
    crop(r, FL_STEP_CROP,
         (fl_rect){centre(g->window.width, op->width, op->floors),
                   centre(g->window.height, op->height, op->floors), op->width, op->height});
}

static fl_code op_corner_crop(resolving *r, const fl_op *op) {
    const fl_geometry *g = r->g;
    const int64_t room_x = g->window.width - op->width, room_y = g->window.height - op->height;
    if (room_x < 0 || room_y < 0)
        return fl_fail(r->err, FL_EARG,
                       "a corner crop (FiveCrop, TenCrop) of %u x %u is larger than the image of %lld x %lld "
                       "(height x width): resize first",
                       op->height, op->width, (long long)g->window.height, (long long)g->window.width);
    crop(r, FL_STEP_CROP, (fl_rect){op->right ? room_x : 0, op->bottom ? room_y : 0, op->width, op->height});
    return FL_OK;
}

static fl_code op_random_crop(resolving *r, const fl_op *op) {
    const fl_geometry *g = r->g;
    int64_t left = op->padding[0], top = op->padding[1], right = op->padding[2], bottom = op->padding[3];
    if (op->pad_if_needed) {
        int64_t short_x = op->width - (g->window.width + left + right),
                short_y = op->height - (g->window.height + top + bottom);
        if (short_x > 0) left += short_x, right += short_x;
        if (short_y > 0) top += short_y, bottom += short_y;
    }
    const int64_t width = g->window.width + left + right, height = g->window.height + top + bottom;
    const int64_t room_x = width - op->width, room_y = height - op->height;
    if (room_x < 0 || room_y < 0)
        return fl_fail(
            r->err, FL_EARG,
            "RandomCrop(%u, %u) is larger than the padded image of %lld x %lld (height x width): resize "
            "first, or pad_if_needed=True",
            op->height, op->width, (long long)height, (long long)width);
    const fl_code code = left || top || right || bottom ? pad(r, op, left, top, width, height) : FL_OK;
    if (code) return code;
    fl_rng rng = fl_rng_start(r->key, op->stream);
    int64_t y = fl_rng_below(&rng, (uint32_t)room_y + 1), x = fl_rng_below(&rng, (uint32_t)room_x + 1);
    if (room_x || room_y) crop(r, FL_STEP_CROP, (fl_rect){x, y, op->width, op->height});
    return FL_OK;
}

static fl_code op_zoom_out(resolving *r, const fl_op *op) {
    fl_rng rng = fl_rng_start(r->key, op->stream);
    if (fl_rng_uniform(&rng) >= op->p) return FL_OK;
    const double by = op->scale[0] + fl_rng_uniform(&rng) * (op->scale[1] - op->scale[0]);
    const int64_t old_width = r->g->window.width, old_height = r->g->window.height;
    double width = trunc(fmax((double)old_width * by, (double)old_width)),
           height = trunc(fmax((double)old_height * by, (double)old_height));
    if (r->wide > 0) { /* a side is truncated to no less than its half */
        width = fmin(width, FL_IMAGE_SIDE_MAX), height = fmin(height, FL_IMAGE_SIDE_MAX);
        r->wide *= 2, r->high *= 2;
    }
    if (!(width <= FL_IMAGE_SIDE_MAX && height <= FL_IMAGE_SIDE_MAX))
        return fl_fail(r->err, FL_ELIMIT, "RandomZoomOut makes %g x %g pixels of it; a side has at most %d",
                       width, height, (int)FL_IMAGE_SIDE_MAX);
    const int64_t left = (int64_t)((width - (double)old_width) * fl_rng_uniform(&rng));
    const int64_t top = (int64_t)((height - (double)old_height) * fl_rng_uniform(&rng));
    return pad(r, op, left, top, (int64_t)width, (int64_t)height);
}

/* One try of torchvision's RandomIoUCrop for a crop that overlaps a box by at least min_iou. */
static bool try_iou_crop(const resolving *r, const fl_op *op, double min_iou, fl_rng *rng, fl_rect *found) {
    const int64_t width = r->g->window.width, height = r->g->window.height;
    const double across = op->scale[0] + (op->scale[1] - op->scale[0]) * fl_rng_uniform(rng);
    const double down = op->scale[0] + (op->scale[1] - op->scale[0]) * fl_rng_uniform(rng);
    const int64_t w = lesser((int64_t)((double)width * across), width),
                  h = lesser((int64_t)((double)height * down), height);
    if (w < 1 || h < 1) return false;
    const double ratio = (double)w / (double)h;
    if (!(op->ratio[0] <= ratio && ratio <= op->ratio[1])) return false;
    const int64_t x = (int64_t)((double)(width - w) * fl_rng_uniform(rng)),
                  y = (int64_t)((double)(height - h) * fl_rng_uniform(rng));
    *found = (fl_rect){x, y, w, h};
    return fl_boxes_overlap(r->boxes, x, y, w, h, min_iou);
}

/* torchvision goes on for ever where no crop fits and no option says to leave the image as it is; this leaves
 * it so after that many options. */
enum { IOU_ROUNDS = 200 };

static fl_code op_iou_crop(resolving *r, const fl_op *op) {
    if (!r->boxes && !r->largest)
        return fl_fail(r->err, FL_EARG, "RandomIoUCrop needs the boxes of the sample");
    if (r->boxes && r->boxes->format >= FL_BOXES_XYWHR)
        return fl_fail(r->err, FL_EUNSUPPORTED, "RandomIoUCrop of rotated boxes");
    if (!op->option_count || op->option_count > FL_OPTIONS_MAX || op->trials > 1000 ||
        !(op->scale[0] >= 0 && op->scale[1] <= 1))
        return fl_fail(r->err, FL_EARG, "RandomIoUCrop of %u options, %u trials", op->option_count,
                       op->trials);
    if (r->largest) {
        const double width = (double)r->g->window.width, height = (double)r->g->window.height;
        const double wide = r->wide > 0 ? r->wide : width / height,
                     high = r->high > 0 ? r->high : height / width;
        r->wide = fmax(wide, fmin(op->ratio[1], width)), r->high = fmax(high, fmin(1 / op->ratio[0], height));
        return FL_OK;
    }
    fl_rng rng = fl_rng_start(r->key, op->stream);
    for (int round = 0; round < IOU_ROUNDS; round++) {
        const double min_iou = op->options[fl_rng_below(&rng, op->option_count)];
        if (min_iou >= 1 || !r->boxes->count) return FL_OK;
        for (uint32_t trial = 0; trial < op->trials; trial++) {
            fl_rect to;
            if (!try_iou_crop(r, op, min_iou, &rng, &to)) continue;
            crop(r, FL_STEP_IOU_CROP, to);
            return FL_OK;
        }
    }
    return FL_OK;
}

static void op_flip(resolving *r, const fl_op *op) {
    fl_rng rng = fl_rng_start(r->key, op->stream);
    if (fl_rng_uniform(&rng) >= op->p) return;
    const bool horizontal = op->kind == FL_OP_HFLIP;
    fl_geometry *g = r->g;
    *(op->late ? horizontal ? &g->late_hflip : &g->late_vflip : horizontal ? &g->hflip : &g->vflip) ^= true;
    r->g->exchanged ^= op->exchange;
    note(r,
         step_of(r->g, horizontal ? FL_STEP_HFLIP : FL_STEP_VFLIP, r->g->window.width, r->g->window.height));
}

static void op_sanitize(resolving *r, const fl_op *op) {
    fl_step step = step_of(r->g, FL_STEP_SANITIZE, r->g->window.width, r->g->window.height);
    step.min_size = op->min_size, step.min_area = op->min_area;
    note(r, step);
}

static fl_code op_format(resolving *r, const fl_op *op) {
    if ((unsigned)op->box_format >= FL_BOXES_XYWHR || (r->boxes && r->boxes->format >= FL_BOXES_XYWHR))
        return fl_fail(r->err, FL_EUNSUPPORTED, "ConvertBoundingBoxFormat of rotated boxes");
    fl_step step = step_of(r->g, FL_STEP_FORMAT, r->g->window.width, r->g->window.height);
    step.box_format = (int)op->box_format;
    note(r, step);
    return FL_OK;
}

static fl_code run(resolving *r, const fl_op *op, uint32_t place) {
    switch (op->kind) {
    case FL_OP_RESIZED_CROP: return op_resized_crop(r, op);
    case FL_OP_RESIZE: return op_resize(r, op);
    case FL_OP_CENTER_CROP: op_center_crop(r, op); return FL_OK;
    case FL_OP_CORNER_CROP: return op_corner_crop(r, op);
    case FL_OP_RANDOM_CROP: return op_random_crop(r, op);
    case FL_OP_HFLIP:
    case FL_OP_VFLIP: op_flip(r, op); return FL_OK;
    case FL_OP_ZOOM_OUT: return op_zoom_out(r, op);
    case FL_OP_SCALE_JITTER: return op_scale_jitter(r, op);
    case FL_OP_SHORTEST_SIZE: return op_shortest_size(r, op);
    case FL_OP_IOU_CROP: return op_iou_crop(r, op);
    case FL_OP_SANITIZE: op_sanitize(r, op); return FL_OK;
    case FL_OP_LETTERBOX: return op_letterbox(r, op);
    case FL_OP_RANDOM_RESIZE: return op_random_resize(r, op);
    case FL_OP_FORMAT: return op_format(r, op);
    case FL_OP_JITTER:
    case FL_OP_GREY:
    case FL_OP_SOLARIZE:
    case FL_OP_POSTERIZE:
    case FL_OP_INVERT:
    case FL_OP_EQUALIZE:
    case FL_OP_AUTOCONTRAST:
    case FL_OP_SHARPNESS:
    case FL_OP_GAUSSIAN_BLUR:
    case FL_OP_ROTATE:
    case FL_OP_AFFINE:
    case FL_OP_PERSPECTIVE:
    case FL_OP_RAND_AUGMENT:
    case FL_OP_TRIVIAL_AUGMENT:
    case FL_OP_AUTO_AUGMENT: return FL_OK; /* engine/augment does it */
    case FL_OP_ERASE: return FL_OK; /* engine/erase does it */
    case FL_OP_PATCH_GRID: return op_patch_grid(r, op);
    }
    return fl_fail(r->err, FL_EARG, "transform %u is of unknown kind %d", place, (int)op->kind);
}

/* True if all images are of one size after an op, whatever they are before it. */
static bool fixes_size(const fl_op *op) {
    return op->kind == FL_OP_RESIZED_CROP || op->kind == FL_OP_CENTER_CROP || op->kind == FL_OP_CORNER_CROP ||
           op->kind == FL_OP_RANDOM_CROP || op->kind == FL_OP_LETTERBOX ||
           (op->kind == FL_OP_RESIZE && op->height);
}

static fl_code resolve(const fl_program *program, uint32_t width, uint32_t height, fl_key key,
                       fl_boxes *boxes, bool largest, fl_geometry *out, fl_error *err) {
    if (!width || !height || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX ||
        program->count > FL_OPS_MAX)
        return fl_fail(err, FL_EARG, "an image of %u x %u pixels", width, height);
    fl_code code = boxes ? fl_boxes_check(boxes, err) : FL_OK;
    memset(out, 0, offsetof(fl_geometry, steps));
    out->box = (fl_box){0, 0, width, height};
    out->width = width, out->height = height;
    out->antialias = true;
    out->canvas = out->window = out->visible = (fl_rect){0, 0, width, height};
    resolving r = {out, boxes, key, err, largest, 0, 0};
    for (uint32_t i = 0; i < program->count && !code; i++) {
        code = run(&r, &program->ops[i], i);
        if (fixes_size(&program->ops[i])) r.wide = r.high = 0;
    }
    return code;
}

fl_code fl_geometry_resolve(const fl_program *program, uint32_t width, uint32_t height, fl_key key,
                            fl_boxes *boxes, fl_geometry *out, fl_error *err) {
    return resolve(program, width, height, key, boxes, false, out, err);
}

fl_code fl_geometry_size(const fl_program *program, uint32_t width, uint32_t height, fl_key key,
                         uint32_t *out_width, uint32_t *out_height, fl_error *err) {
    fl_geometry g;
    fl_code code = resolve(program, width, height, key, NULL, true, &g, err);
    if (code) return code;
    *out_width = (uint32_t)g.window.width, *out_height = (uint32_t)g.window.height;
    return FL_OK;
}
