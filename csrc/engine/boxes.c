#include "engine/boxes.h"

#include <string.h>

#include "engine/rotated.h"

uint32_t fl_boxes_columns(fl_box_format format) {
    static const uint32_t columns[] = {4, 4, 4, 5, 5, 8};
    return (unsigned)format <= FL_BOXES_XYXYXYXY ? columns[format] : 0;
}

fl_code fl_boxes_check(const fl_boxes *boxes, fl_error *err) {
    if ((unsigned)boxes->format > FL_BOXES_XYXYXYXY)
        return fl_fail(err, FL_EARG, "boxes of unknown format %d", (int)boxes->format);
    if (boxes->integer && boxes->format >= FL_BOXES_XYWHR)
        return fl_fail(err, FL_EARG, "rotated boxes of integers: give float32");
    return FL_OK;
}

/* As torch.clamp: a NaN stays one. */
static float clamp(float value, float most) { return value < 0 ? 0 : value > most ? most : value; }

static void to_xyxy(float b[4], fl_box_format format) {
    if (format == FL_BOXES_CXCYWH)
        for (int i = 0; i < 2; i++) b[i] -= b[2 + i] / 2;
    if (format != FL_BOXES_XYXY)
        for (int i = 0; i < 2; i++) b[2 + i] += b[i];
}

static void from_xyxy(float b[4], fl_box_format format) {
    if (format == FL_BOXES_XYXY) return;
    for (int i = 0; i < 2; i++) b[2 + i] -= b[i];
    if (format == FL_BOXES_CXCYWH)
        for (int i = 0; i < 2; i++) b[i] = (b[i] * 2 + b[2 + i]) / 2;
}

static void clamp_box(float b[4], fl_box_format format, const fl_step *step) {
    to_xyxy(b, format);
    for (int i = 0; i < 4; i++) b[i] = clamp(b[i], (float)(i % 2 ? step->height : step->width));
    from_xyxy(b, format);
}

/* As a C cast, and for values that no int64 holds, where that is undefined, the nearest one; 0 for a NaN. */
static int64_t truncated(float value) {
    if (!(value > -9223372036854775808.0f)) return value != value ? 0 : INT64_MIN;
    return value >= 9223372036854775808.0f ? INT64_MAX : (int64_t)value;
}

/* Integers wrap around, as torch's. */
static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* As torch's div(2, rounding_mode="floor"). */
static int64_t half_down(int64_t value) { return value / 2 - (value < 0 && value % 2); }

/* torchvision takes integers with a centre to float32 and truncates the corners, towards 0. */
static void corners_of_centre(const int64_t b[4], int64_t out[4]) {
    float f[4];
    for (int i = 0; i < 4; i++) f[i] = (float)b[i];
    to_xyxy(f, FL_BOXES_CXCYWH);
    for (int i = 0; i < 4; i++) out[i] = truncated(f[i]);
}

static void convert_integer(int64_t b[4], fl_box_format from, fl_box_format to) {
    if (from == FL_BOXES_CXCYWH) {
        int64_t c[4];
        corners_of_centre(b, c);
        memcpy(b, c, sizeof c);
    } else if (from == FL_BOXES_XYWH) {
        for (int i = 0; i < 2; i++) b[2 + i] = sum(b[2 + i], b[i]);
    }
    if (to == FL_BOXES_XYXY) return;
    for (int i = 0; i < 2; i++) b[2 + i] = difference(b[2 + i], b[i]);
    if (to == FL_BOXES_CXCYWH)
        for (int i = 0; i < 2; i++) b[i] = half_down(sum(sum(b[i], b[i]), b[2 + i]));
}

/* Between the two formats of sides torchvision leaves the sides as they are, and goes by no corner, which
 * would round. */
static void convert_float(float b[4], fl_box_format from, fl_box_format to) {
    if (from == FL_BOXES_XYWH && to == FL_BOXES_CXCYWH) {
        for (int i = 0; i < 2; i++) b[i] += b[2 + i] / 2;
    } else if (from == FL_BOXES_CXCYWH && to == FL_BOXES_XYWH) {
        for (int i = 0; i < 2; i++) b[i] -= b[2 + i] / 2;
    } else {
        to_xyxy(b, from);
        from_xyxy(b, to);
    }
}

static void flip_float(float b[4], fl_box_format format, int axis, float size) {
    if (format == FL_BOXES_XYXY) {
        const float low = b[axis];
        b[axis] = -(b[2 + axis] - size), b[2 + axis] = -(low - size);
    } else if (format == FL_BOXES_XYWH) {
        b[axis] = -(b[axis] + b[2 + axis] - size);
    } else {
        b[axis] = -(b[axis] - size);
    }
}

static void flip_integer(int64_t b[4], fl_box_format format, int axis, int64_t size) {
    if (format == FL_BOXES_XYXY) {
        const int64_t low = b[axis];
        b[axis] = difference(size, b[2 + axis]), b[2 + axis] = difference(size, low);
    } else if (format == FL_BOXES_XYWH) {
        b[axis] = difference(size, sum(b[axis], b[2 + axis]));
    } else {
        b[axis] = difference(size, b[axis]);
    }
}

static void ratios(const fl_step *step, float by[2]) {
    by[0] = (float)((double)step->width / (double)step->in_width);
    by[1] = (float)((double)step->height / (double)step->in_height);
}

static int moved_columns(fl_box_format format) { return format == FL_BOXES_XYXY ? 4 : 2; }

static void step_float(float b[4], fl_box_format format, const fl_step *step) {
    float by[2];
    switch (step->kind) {
    case FL_STEP_CROP:
    case FL_STEP_IOU_CROP:
        for (int i = 0; i < moved_columns(format); i++) b[i] -= (float)(i % 2 ? step->y : step->x);
        clamp_box(b, format, step);
        break;
    case FL_STEP_PAD:
        for (int i = 0; i < moved_columns(format); i++) b[i] += (float)(i % 2 ? step->y : step->x);
        clamp_box(b, format, step);
        break;
    case FL_STEP_RESIZE:
        ratios(step, by);
        for (int i = 0; i < 4; i++) b[i] *= by[i % 2];
        break;
    case FL_STEP_HFLIP: flip_float(b, format, 0, (float)step->width); break;
    case FL_STEP_VFLIP: flip_float(b, format, 1, (float)step->height); break;
    case FL_STEP_SANITIZE:
    case FL_STEP_FORMAT: break;
    }
}

static void step_integer(int64_t b[4], fl_box_format format, const fl_step *step) {
    float by[2], f[4];
    switch (step->kind) {
    case FL_STEP_CROP:
    case FL_STEP_IOU_CROP:
    case FL_STEP_PAD:
        for (int i = 0; i < moved_columns(format); i++) {
            const int64_t by_how_much = i % 2 ? step->y : step->x;
            b[i] = step->kind == FL_STEP_PAD ? sum(b[i], by_how_much) : difference(b[i], by_how_much);
        }
        for (int i = 0; i < 4; i++) f[i] = (float)b[i];
        clamp_box(f, format, step);
        for (int i = 0; i < 4; i++) b[i] = truncated(f[i]);
        break;
    case FL_STEP_RESIZE:
        ratios(step, by);
        for (int i = 0; i < 4; i++) b[i] = truncated((float)b[i] * by[i % 2]);
        break;
    case FL_STEP_HFLIP: flip_integer(b, format, 0, step->width); break;
    case FL_STEP_VFLIP: flip_integer(b, format, 1, step->height); break;
    case FL_STEP_SANITIZE:
    case FL_STEP_FORMAT: break;
    }
}

/* As corners: of integer boxes what torchvision's integer conversion gives, as floats. */
static void corners(const fl_boxes *boxes, uint32_t i, float out[4]) {
    if (!boxes->integer) {
        memcpy(out, (const float *)boxes->values + (size_t)i * 4, 4 * sizeof *out);
        to_xyxy(out, boxes->format);
        return;
    }
    int64_t b[4];
    memcpy(b, (const int64_t *)boxes->values + (size_t)i * 4, sizeof b);
    convert_integer(b, boxes->format, FL_BOXES_XYXY);
    for (int k = 0; k < 4; k++) out[k] = (float)b[k];
}

static bool centre_inside(const float b[4], float left, float top, float right, float bottom) {
    const float x = 0.5f * (b[0] + b[2]), y = 0.5f * (b[1] + b[3]);
    return left < x && x < right && top < y && y < bottom;
}

static bool is_sound(const float b[4], const fl_step *step) {
    const float width = b[2] - b[0], height = b[3] - b[1];
    if (!(width >= (float)step->min_size && height >= (float)step->min_size &&
          width * height >= (float)step->min_area))
        return false;
    for (int i = 0; i < 4; i++)
        if (!(b[i] >= 0 && b[i] <= (float)(i % 2 ? step->height : step->width))) return false;
    return true;
}

static void sanitize(fl_boxes *boxes, const fl_step *step) {
    for (uint32_t i = 0; i < boxes->count; i++) {
        float b[4];
        if (boxes->format >= FL_BOXES_XYWHR) {
            boxes->keep[i] &=
                fl_rotated_sound((const float *)boxes->values + (size_t)i * fl_boxes_columns(boxes->format),
                                 boxes->format, step);
            continue;
        }
        corners(boxes, i, b);
        boxes->keep[i] &= is_sound(b, step);
    }
}

static void convert(fl_boxes *boxes, fl_box_format to) {
    if (to == boxes->format) return;
    for (uint32_t i = 0; i < boxes->count; i++) {
        float *real = (float *)boxes->values + (size_t)i * 4;
        if (boxes->integer) convert_integer((int64_t *)boxes->values + (size_t)i * 4, boxes->format, to);
        else convert_float(real, boxes->format, to);
    }
    boxes->format = to;
}

void fl_boxes_step(fl_boxes *boxes, const fl_step *step) {
    const uint32_t columns = fl_boxes_columns(boxes->format);
    if (step->kind == FL_STEP_FORMAT) {
        convert(boxes, (fl_box_format)step->box_format);
        return;
    }
    if (step->kind == FL_STEP_SANITIZE) {
        sanitize(boxes, step);
        return;
    }
    for (uint32_t i = 0; i < boxes->count; i++) {
        float *real = (float *)boxes->values + (size_t)i * columns, b[4];
        int64_t *integer = (int64_t *)boxes->values + (size_t)i * columns;
        bool inside = true;
        if (step->kind == FL_STEP_IOU_CROP && boxes->format < FL_BOXES_XYWHR) {
            corners(boxes, i, b);
            inside = centre_inside(b, (float)step->x, (float)step->y, (float)(step->x + step->width),
                                   (float)(step->y + step->height));
        }
        if (boxes->format >= FL_BOXES_XYWHR) fl_rotated_step(real, boxes->format, step);
        else if (boxes->integer) step_integer(integer, boxes->format, step);
        else step_float(real, boxes->format, step);
        if (inside) continue;
        if (boxes->integer) memset(integer, 0, columns * sizeof *integer);
        else memset(real, 0, columns * sizeof *real);
    }
}

static float lesser(float a, float b) { return a < b ? a : b; }
static float greater(float a, float b) { return a > b ? a : b; }

bool fl_boxes_overlap(const fl_boxes *boxes, int64_t x, int64_t y, int64_t width, int64_t height,
                      double min_iou) {
    const float left = (float)x, top = (float)y, right = (float)(x + width), bottom = (float)(y + height);
    for (uint32_t i = 0; i < boxes->count; i++) {
        float b[4];
        if (!boxes->keep[i]) continue;
        corners(boxes, i, b);
        if (!centre_inside(b, left, top, right, bottom)) continue;
        const float across = lesser(b[2], right) - greater(b[0], left),
                    down = lesser(b[3], bottom) - greater(b[1], top);
        const float common = greater(across, 0) * greater(down, 0);
        const float all = (b[2] - b[0]) * (b[3] - b[1]) + (right - left) * (bottom - top) - common;
        if (common / all >= (float)min_iou) return true;
    }
    return false;
}
