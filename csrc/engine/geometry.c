#include "engine/geometry.h"

#include <math.h>
#include <string.h>

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static fl_rect meet(fl_rect a, fl_rect b) {
    int64_t x0 = greater(a.x, b.x), y0 = greater(a.y, b.y);
    int64_t x1 = lesser(a.x + a.width, b.x + b.width), y1 = lesser(a.y + a.height, b.y + b.height);
    return (fl_rect){x0, y0, greater(x1 - x0, 0), greater(y1 - y0, 0)};
}

static bool whole(const fl_geometry *g) { return g->visible.width == g->window.width && g->visible.height == g->window.height; }

/* Narrows the window to a rectangle given in the coordinates that the user sees, that is after the mirrors so far. */
static void narrow(fl_geometry *g, fl_rect to) {
    if (g->hflip) to.x = g->window.width - to.x - to.width;
    if (g->vflip) to.y = g->window.height - to.y - to.height;
    to.x += g->window.x, to.y += g->window.y;
    g->window = to;
    g->visible = meet(g->visible, to);
}

/* From here on the window is the source box, resized to width x height. */
static fl_code resize(fl_geometry *g, const fl_op *op, uint32_t width, uint32_t height, fl_error *err) {
    if (g->resized) return fl_fail(err, FL_EUNSUPPORTED, "a second resize in one transform list");
    if (!whole(g)) return fl_fail(err, FL_EUNSUPPORTED, "a resize after padding");
    g->box = (fl_box){(uint32_t)g->window.x, (uint32_t)g->window.y, (uint32_t)g->window.width, (uint32_t)g->window.height};
    g->width = width, g->height = height;
    g->resized = true;
    g->filter = op->filter, g->antialias = op->antialias, g->dct_scale = op->dct_scale;
    g->window = g->visible = (fl_rect){0, 0, width, height};
    return FL_OK;
}

/* Draws torchvision's RandomResizedCrop box: ten tries, then the largest centred box of an allowed ratio. */
static fl_rect random_resized_box(const fl_op *op, double width, double height, fl_rng *rng) {
    double area = width * height, log_low = log(op->ratio[0]), log_high = log(op->ratio[1]);
    for (int attempt = 0; attempt < 10; attempt++) {
        double target = area * (op->scale[0] + (op->scale[1] - op->scale[0]) * fl_rng_uniform(rng));
        double ratio = exp(log_low + (log_high - log_low) * fl_rng_uniform(rng));
        double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w > 0 && w <= width && h > 0 && h <= height) {
            uint32_t y = fl_rng_below(rng, (uint32_t)(height - h) + 1), x = fl_rng_below(rng, (uint32_t)(width - w) + 1);
            return (fl_rect){x, y, (int64_t)w, (int64_t)h};
        }
    }
    double ratio = width / height, w = width, h = height;
    if (ratio < op->ratio[0]) h = rint(w / op->ratio[0]);
    else if (ratio > op->ratio[1]) w = rint(h * op->ratio[1]);
    w = fmin(fmax(w, 1), width), h = fmin(fmax(h, 1), height);
    return (fl_rect){(int64_t)(width - w) / 2, (int64_t)(height - h) / 2, (int64_t)w, (int64_t)h};
}

static fl_code op_resized_crop(fl_geometry *g, const fl_op *op, fl_key key, fl_error *err) {
    fl_rng rng = fl_rng_start(key, op->stream);
    fl_rect box = random_resized_box(op, (double)g->window.width, (double)g->window.height, &rng);
    if (!whole(g)) return fl_fail(err, FL_EUNSUPPORTED, "a resize after padding");
    narrow(g, box);
    return resize(g, op, op->width, op->height, err);
}

/* torchvision's _compute_resized_output_size: the shorter side becomes size, the longer is truncated. */
static void shorter_side(const fl_op *op, int64_t width, int64_t height, uint32_t *out_width, uint32_t *out_height) {
    double small = (double)lesser(width, height), large = (double)greater(width, height);
    double new_small = op->width, new_large = trunc(new_small * large / small);
    if (op->max_size && new_large > op->max_size) {
        new_small = trunc((double)op->max_size * new_small / new_large);
        new_large = op->max_size;
    }
    uint32_t s = (uint32_t)fmin(fmax(new_small, 1), FL_IMAGE_SIDE_MAX), l = (uint32_t)fmin(fmax(new_large, 1), FL_IMAGE_SIDE_MAX);
    *out_width = width <= height ? s : l;
    *out_height = width <= height ? l : s;
}

static fl_code op_resize(fl_geometry *g, const fl_op *op, fl_error *err) {
    uint32_t width = op->width, height = op->height;
    if (!op->height) shorter_side(op, g->window.width, g->window.height, &width, &height);
    if (width == g->window.width && height == g->window.height) return FL_OK;
    return resize(g, op, width, height, err);
}

/* Where a crop of `want` starts along a side of `have`: padding first when the image is smaller, then the centre,
 * halves rounded to even, as torchvision does. */
static int64_t centre(int64_t have, int64_t want) {
    if (want > have) return -((want - have) / 2);
    return (int64_t)rint((double)(have - want) / 2.0);
}

static void op_center_crop(fl_geometry *g, const fl_op *op) {
    fl_rect to = {centre(g->window.width, op->width), centre(g->window.height, op->height), op->width, op->height};
    memset(g->fill, 0, sizeof g->fill);
    narrow(g, to);
}

static fl_code op_random_crop(fl_geometry *g, const fl_op *op, fl_key key, fl_error *err) {
    int64_t left = op->padding[0], top = op->padding[1], right = op->padding[2], bottom = op->padding[3];
    if (op->pad_if_needed) {
        int64_t short_x = op->width - (g->window.width + left + right), short_y = op->height - (g->window.height + top + bottom);
        if (short_x > 0) left += short_x, right += short_x;
        if (short_y > 0) top += short_y, bottom += short_y;
    }
    int64_t room_x = g->window.width + left + right - op->width, room_y = g->window.height + top + bottom - op->height;
    if (room_x < 0 || room_y < 0)
        return fl_fail(err, FL_EARG,
                       "RandomCrop(%u, %u) is larger than the padded image of %lld x %lld (height x width): resize "
                       "first, or pad_if_needed=True",
                       op->height, op->width, (long long)(g->window.height + top + bottom), (long long)(g->window.width + left + right));
    fl_rng rng = fl_rng_start(key, op->stream);
    int64_t y = fl_rng_below(&rng, (uint32_t)room_y + 1), x = fl_rng_below(&rng, (uint32_t)room_x + 1);
    memcpy(g->fill, op->fill, sizeof g->fill);
    narrow(g, (fl_rect){x - left, y - top, op->width, op->height});
    return FL_OK;
}

static bool coin(const fl_op *op, fl_key key) {
    fl_rng rng = fl_rng_start(key, op->stream);
    return fl_rng_uniform(&rng) < op->p;
}

fl_code fl_geometry_resolve(const fl_program *program, uint32_t width, uint32_t height, fl_key key, fl_geometry *out, fl_error *err) {
    if (!width || !height || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX || program->count > FL_OPS_MAX)
        return fl_fail(err, FL_EARG, "an image of %u x %u pixels", width, height);
    fl_geometry g;
    memset(&g, 0, sizeof g);
    g.box = (fl_box){0, 0, width, height};
    g.width = width, g.height = height;
    g.antialias = true;
    g.window = g.visible = (fl_rect){0, 0, width, height};
    for (uint32_t i = 0; i < program->count; i++) {
        const fl_op *op = &program->ops[i];
        fl_code code = FL_OK;
        switch (op->kind) {
        case FL_OP_RESIZED_CROP: code = op_resized_crop(&g, op, key, err); break;
        case FL_OP_RESIZE: code = op_resize(&g, op, err); break;
        case FL_OP_CENTER_CROP: op_center_crop(&g, op); break;
        case FL_OP_RANDOM_CROP: code = op_random_crop(&g, op, key, err); break;
        case FL_OP_HFLIP: g.hflip ^= coin(op, key); break;
        case FL_OP_VFLIP: g.vflip ^= coin(op, key); break;
        default: code = fl_fail(err, FL_EARG, "transform %u is of unknown kind %d", i, (int)op->kind);
        }
        if (code) return code;
    }
    *out = g;
    return FL_OK;
}

fl_code fl_geometry_size(const fl_program *program, uint32_t width, uint32_t height, uint32_t *out_width, uint32_t *out_height,
                         fl_error *err) {
    fl_geometry g;
    fl_code code = fl_geometry_resolve(program, width, height, (fl_key){0, 0, 0}, &g, err);
    if (code) return code;
    *out_width = (uint32_t)g.window.width, *out_height = (uint32_t)g.window.height;
    return FL_OK;
}
