#include "engine/objects.h"

#include <math.h>

static void step_point(const fl_step *step, float end, float *point) {
    switch (step->kind) {
    case FL_STEP_CROP:
    case FL_STEP_IOU_CROP: point[0] -= (float)step->x, point[1] -= (float)step->y; break;
    case FL_STEP_PAD: point[0] += (float)step->x, point[1] += (float)step->y; break;
    case FL_STEP_RESIZE:
        point[0] *= (float)((double)step->width / (double)step->in_width);
        point[1] *= (float)((double)step->height / (double)step->in_height);
        break;
    case FL_STEP_HFLIP: point[0] = -(point[0] - ((float)step->width - end)); break;
    case FL_STEP_VFLIP: point[1] = -(point[1] - ((float)step->height - end)); break;
    case FL_STEP_SANITIZE:
    case FL_STEP_FORMAT: break;
    }
}

void fl_objects_points(const fl_geometry *g, fl_points_kind kind, float *points, size_t count,
                       uint32_t columns) {
    const float end = kind == FL_POINTS_KEYPOINTS ? 1 : 0;
    for (uint32_t i = 0; i < g->step_count; i++)
        for (size_t k = 0; k < count; k++)
            if (columns < 3 || points[k * columns + 2] != 0)
                step_point(&g->steps[i], end, points + k * columns);
}

void fl_objects_exchange(float *points, size_t objects, uint32_t count, uint32_t columns,
                         const uint32_t *pairs, uint32_t pair_count) {
    for (size_t i = 0; i < objects; i++) {
        float *of = points + i * count * columns;
        for (uint32_t k = 0; k < pair_count; k++) {
            float *a = of + (size_t)pairs[2 * k] * columns, *b = of + (size_t)pairs[2 * k + 1] * columns;
            for (uint32_t c = 0; c < columns; c++) {
                const float kept = a[c];
                a[c] = b[c], b[c] = kept;
            }
        }
    }
}

/* torch's rule of "nearest", which is not "nearest-exact": floor(i * (in / out)) in float32. */
static int64_t nearest(int64_t i, int64_t in, int64_t out) {
    if (in == out) return i;
    if (out == 2 * in) return i / 2;
    const int64_t found = (int64_t)floorf((float)i * ((float)in / (float)out));
    return found < in ? found : in - 1;
}

/* Along one axis: where output i of a step comes from, -1 beyond the canvas before it. */
static int64_t before(const fl_step *step, int axis, int64_t i) {
    const int64_t in = axis ? step->in_height : step->in_width, out = axis ? step->height : step->width,
                  from = axis ? step->y : step->x;
    int64_t at = i;
    switch (step->kind) {
    case FL_STEP_CROP:
    case FL_STEP_IOU_CROP: at = i + from; break;
    case FL_STEP_PAD: at = i - from; break;
    case FL_STEP_RESIZE: return nearest(i, in, out);
    case FL_STEP_HFLIP: return axis ? i : out - 1 - i;
    case FL_STEP_VFLIP: return axis ? out - 1 - i : i;
    case FL_STEP_SANITIZE:
    case FL_STEP_FORMAT: return i;
    }
    return at >= 0 && at < in ? at : -1;
}

static void table(const fl_geometry *g, int axis, int64_t count, int32_t *out) {
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (uint32_t k = g->step_count; k > 0 && at >= 0; k--) at = before(&g->steps[k - 1], axis, at);
        out[i] = (int32_t)at;
    }
}

void fl_objects_mask(const fl_geometry *g, int32_t *columns, int32_t *rows) {
    table(g, 0, g->window.width, columns);
    table(g, 1, g->window.height, rows);
}
