/* NOTE [ rotated boxes: torchvision's clamp ]
 * A box is four corners; each turn of four moves the corner that is farthest left to the front and cuts what
 * lies left of the canvas: edges are lines y = ax + b, their b are limited so that the box keeps its angle,
 * and the corners are the lines' intersections. Then the box and the canvas turn by 90 degrees. The order of
 * operations, the special cases and the comparisons are those of
 * torchvision.transforms.v2.functional.clamp_bounding_boxes, so that the results are.
 */
#include "engine/rotated.h"

#include <math.h>
#include <string.h>

enum { CORNERS = 4, VALUES = 8 };

static const float PI = 3.14159265358979323846f;

static float length(float dx, float dy) { return sqrtf(dx * dx + dy * dy); }

static void shift_centre(float b[5], float sign) {
    const float w = fabsf(b[2] / -2), h = fabsf(b[3] / -2), r = b[4] * PI / 180.0f, c = cosf(r), s = sinf(r);
    b[0] = b[0] + sign * (w * c) + sign * (h * s);
    b[1] = b[1] - sign * (w * s) + sign * (h * c);
}

static void to_corners(const float *box, fl_box_format format, float out[VALUES]) {
    if (format == FL_BOXES_XYXYXYXY) {
        memcpy(out, box, VALUES * sizeof *out);
        return;
    }
    float b[5];
    memcpy(b, box, sizeof b);
    if (format == FL_BOXES_CXCYWHR) shift_centre(b, -1);
    const float r = b[4] * PI / 180.0f, c = cosf(r), s = sinf(r), w = b[2], h = b[3];
    for (int i = 0; i < CORNERS; i++) out[2 * i] = b[0], out[2 * i + 1] = b[1];
    out[2] += w * c, out[3] -= w * s;
    out[4] += w * c + h * s, out[5] -= w * s - h * c;
    out[6] += h * s, out[7] += h * c;
}

static void from_corners(const float b[VALUES], fl_box_format format, float *box) {
    if (format == FL_BOXES_XYXYXYXY) {
        memcpy(box, b, VALUES * sizeof *b);
        return;
    }
    const float r = atan2f(b[1] - b[3], b[2] - b[0]);
    box[0] = b[0], box[1] = b[1];
    box[2] = length(b[2] - b[0], b[3] - b[1]);
    box[3] = length(b[4] - b[2], b[5] - b[3]);
    box[4] = r / PI * 180.0f;
    if (format == FL_BOXES_CXCYWHR) shift_centre(box, 1);
}

/* A parallelogram's rectangle: the ends of its longer diagonal stay. */
static void to_rectangle(float b[VALUES]) {
    const float x = (b[0] + b[4]) / 2, y = (b[1] + b[5]) / 2;
    const float wp = length(b[2] - b[0], b[3] - b[1]), hp = length(b[6] - b[0], b[7] - b[1]);
    const float r12 = atan2f(b[1] - b[3], b[2] - b[0]), r14 = atan2f(b[1] - b[7], b[6] - b[0]);
    const float between = r12 - r14, sign = between > PI / 2 ? -1 : 1;
    const float w = wp < hp ? wp * sinf(between) : wp + hp * cosf(between) * sign;
    const float h = wp > hp ? hp * sinf(between) : hp + wp * cosf(between) * sign;
    const float r = hp > wp ? r14 + PI / 2 : r12, c = cosf(r), s = sinf(r);
    const float wc = w / 2 * c, ws = w / 2 * s, hc = h / 2 * c, hs = h / 2 * s;
    b[0] = x - wc - hs, b[1] = y - hc + ws;
    b[2] = x + wc - hs, b[3] = y - hc - ws;
    b[4] = x + wc + hs, b[5] = y + hc - ws;
    b[6] = x - wc + hs, b[7] = y + hc + ws;
}

/* torch.clamp: NaN where any of the three is. */
static float clamp(float value, float low, float high) {
    if (value != value || low != low || high != high) return NAN;
    const float least = value < low ? low : value;
    return least > high ? high : least;
}

/* torch.isclose. */
static bool is_close(float a, float b) {
    if (a == b) return true;
    const float off = fabsf(a - b);
    return isfinite(off) && off <= 1e-8f + fabsf(1e-5f * b);
}

/* Rotates the list of corners so that the one of `first` leads. */
static void lead(float b[VALUES], int first) {
    float from[VALUES];
    memcpy(from, b, sizeof from);
    for (int i = 0; i < VALUES; i++) b[i] = from[(2 * first + i) % VALUES];
}

/* The corner farthest left, of those the uppermost; a NaN counts as the least, as in torch.min. */
static int leftmost(const float b[VALUES]) {
    float x = 0, y = 0, least = 0;
    for (int i = 0; i < CORNERS; i++) x = fmaxf(x, fabsf(b[2 * i])), y = fmaxf(y, fabsf(b[2 * i + 1]));
    int found = 0;
    for (int i = 0; i < CORNERS; i++) {
        const float rank = b[2 * i + 1] / y + b[2 * i] / x * 100;
        if (rank != rank) return i;
        if (i == 0 || rank < least) least = rank, found = i;
    }
    return found;
}

/* The lines through corners i and i + 1. */
static void lines(const float b[VALUES], float slope[CORNERS], float intercept[CORNERS]) {
    for (int i = 0; i < CORNERS; i++) {
        const int next = 2 * ((i + 1) % CORNERS);
        slope[i] = (b[next + 1] - b[2 * i + 1]) / (b[next] - b[2 * i]);
        intercept[i] = b[2 * i + 1] - slope[i] * b[2 * i];
    }
}

static void cut_intercepts(float b[CORNERS], const float whole[CORNERS], float height) {
    b[0] = clamp(clamp(b[1], b[0], b[2]), 0, height);
    b[3] = clamp(clamp(b[2], b[1], b[3]), 0, height);
    b[0] = clamp(b[0], whole[0], whole[2]);
    b[2] = clamp(b[2], whole[0], whole[2]);
    b[1] = clamp(b[1], whole[1], whole[3]);
    b[3] = clamp(b[3], whole[1], whole[3]);
}

/* Cuts what lies left of the canvas; `whole` is the box before any cut. */
static void cut_left(float b[VALUES], const float whole[VALUES], float height) {
    float slope[CORNERS], cut[CORNERS], other[CORNERS], limits[CORNERS], met[VALUES], old[VALUES];
    lines(b, slope, cut);
    lines(whole, other, limits);
    cut_intercepts(cut, limits, height);
    bool crossing = b[0] < 0;
    for (int i = 0; i < CORNERS; i++) {
        const int before = (i + CORNERS - 1) % CORNERS;
        met[2 * i] = -(cut[i] - cut[before]) / (slope[i] - slope[before]);
        met[2 * i + 1] = slope[i] * met[2 * i] + cut[i];
        if (met[2 * i] != met[2 * i] || met[2 * i + 1] != met[2 * i + 1]) crossing = false;
    }
    memcpy(old, b, sizeof old);
    const bool upright = is_close(old[1], old[3]) || is_close(old[5], old[7]);
    const bool outside = old[0] <= 0 && old[2] <= 0 && old[4] <= 0 && old[6] <= 0;
    if (crossing) memcpy(b, met, sizeof met);
    if (upright) {
        memcpy(b, old, sizeof old);
        for (int i = 0; i < VALUES; i += 6) b[i] = old[i] < 0 ? 0 : old[i];
    }
    if (outside || is_close(old[1], old[7]) || is_close(old[3], old[5]) ||
        (upright && is_close(old[0], old[2])))
        memset(b, 0, VALUES * sizeof *b);
}

static void turn(float b[VALUES], float width) {
    for (int i = 0; i < VALUES; i += 2) {
        const float x = b[i];
        b[i] = b[i + 1], b[i + 1] = width - x;
    }
}

static void clamp_corners(float b[VALUES], const fl_step *step) {
    float whole[VALUES], width = (float)step->width, height = (float)step->height;
    memcpy(whole, b, sizeof whole);
    for (int side = 0; side < 4; side++) {
        const int first = leftmost(b);
        lead(b, first), lead(whole, first);
        cut_left(b, whole, height);
        lead(b, first), lead(whole, first);
        turn(b, width), turn(whole, width);
        const float turned = width;
        width = height, height = turned;
    }
}

static void clamp_box(float *box, fl_box_format format, const fl_step *step) {
    float b[VALUES];
    to_corners(box, format, b);
    clamp_corners(b, step);
    from_corners(b, format, box);
}

static void resize(float *box, fl_box_format format, const fl_step *step) {
    float b[VALUES];
    const float by[2] = {(float)((double)step->width / (double)step->in_width),
                         (float)((double)step->height / (double)step->in_height)};
    to_corners(box, format, b);
    for (int i = 0; i < VALUES; i++) b[i] *= by[i % 2];
    to_rectangle(b);
    clamp_corners(b, step);
    from_corners(b, format, box);
}

/* axis 0: left and right. */
static void flip(float *b, fl_box_format format, int axis, float size) {
    if (format == FL_BOXES_XYXYXYXY) {
        static const int from[VALUES] = {2, 3, 0, 1, 6, 7, 4, 5};
        float old[VALUES];
        memcpy(old, b, sizeof old);
        for (int i = 0; i < VALUES; i++) b[i] = i % 2 == axis ? -(old[from[i]] - size) : old[from[i]];
        return;
    }
    if (format == FL_BOXES_XYWHR) {
        const float r = b[4] * PI / 180.0f;
        b[0] += b[2] * cosf(r);
        b[1] -= b[2] * sinf(r);
    }
    b[axis] = -(b[axis] - size);
    b[4] = axis ? -b[4] + 180 : -b[4];
}

void fl_rotated_step(float *box, fl_box_format format, const fl_step *step) {
    const float sign = step->kind == FL_STEP_PAD ? 1 : -1;
    switch (step->kind) {
    case FL_STEP_CROP:
    case FL_STEP_IOU_CROP:
    case FL_STEP_PAD:
        for (int i = 0; i < (format == FL_BOXES_XYXYXYXY ? VALUES : 2); i++)
            box[i] += sign * (float)(i % 2 ? step->y : step->x);
        if (format == FL_BOXES_XYXYXYXY && step->kind != FL_STEP_PAD) to_rectangle(box);
        clamp_box(box, format, step);
        break;
    case FL_STEP_RESIZE: resize(box, format, step); break;
    case FL_STEP_HFLIP: flip(box, format, 0, (float)step->width); break;
    case FL_STEP_VFLIP: flip(box, format, 1, (float)step->height); break;
    case FL_STEP_SANITIZE:
    case FL_STEP_FORMAT: break;
    }
}

bool fl_rotated_sound(const float *box, fl_box_format format, const fl_step *step) {
    float b[VALUES];
    to_corners(box, format, b);
    /* torchvision takes y2 - y3 and x3 - x4 for the second side */
    const float width = length(b[0] - b[2], b[1] - b[3]), height = length(b[3] - b[5], b[4] - b[6]);
    if (!(width >= (float)step->min_size && height >= (float)step->min_size &&
          width * height >= (float)step->min_area))
        return false;
    for (int i = 0; i < VALUES; i++)
        if (!(b[i] >= 0 && b[i] <= (float)(i % 2 ? step->height : step->width))) return false;
    return true;
}
