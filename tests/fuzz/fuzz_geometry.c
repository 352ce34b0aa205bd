/* Transform lists: whatever fl_geometry_resolve makes of one lies inside the image, has the size that
 * fl_geometry_size says for the same draw, or no more where that depends on boxes, with any boxes, and can be
 * rendered by fl_resize; its steps lead from the image's size to the window's; mask tables point into the
 * source, and show it where the window does. */
#include "engine/geometry.h"

#include <math.h>

#include "engine/objects.h"
#include "resize/resize.h"
#include "resize/sink.h"
#include "fuzz.h"

static uint32_t side(uint32_t most) {
    return below(16) ? 1 + below(most) : below(8) ? 1 : FL_IMAGE_SIDE_MAX - below(2);
}

static fl_op make_op(void) {
    fl_op op = {.kind = (fl_op_kind)(1 + below(below(64) ? 15 : 18)),
                .stream = (uint16_t)below(4),
                .filter = (int)below(2)};
    op.width = side(60), op.height = op.kind == FL_OP_RESIZE && below(2) ? 0 : side(60);
    op.max_size = below(2) ? 0 : op.width + below(60);
    op.scale[0] = unit(), op.scale[1] = op.scale[0] + (1 - op.scale[0]) * unit();
    op.ratio[0] = 0.05 + unit(), op.ratio[1] = op.ratio[0] + (below(2) ? unit() : 20 * unit());
    op.p = below(3) ? unit() : below(2);
    for (int i = 0; i < 4; i++) op.padding[i] = below(2) ? 0 : below(40);
    if (op.kind == FL_OP_ZOOM_OUT) op.scale[0] = 1 + unit(), op.scale[1] = op.scale[0] + unit();
    if (op.kind == FL_OP_RESIZE && !op.height && below(3) == 0 && op.max_size) op.width = 0;
    op.option_count = below(16) ? 1 + below(4) : below(40), op.trials = below(6),
    op.mask_fill = (uint16_t)noise();
    op.box_format = (fl_box_format)below(below(16) ? 3 : 7);
    for (uint32_t i = 0; i < FL_OPTIONS_MAX; i++)
        op.options[i] = op.kind == FL_OP_IOU_CROP ? 1.2 * unit() : side(60);
    op.min_size = 5 * unit(), op.min_area = 20 * unit();
    op.pad_if_needed = below(2), op.antialias = below(2), op.dct_scale = below(2), op.right = below(2),
    op.bottom = below(2);
    return op;
}

/* The box as a view, the visible window into a sink of the window's size. */
static void render(const fl_geometry *g) {
    static fl_resizer *resizer;
    fl_error err;
    if (!resizer) CHECK(fl_resizer_create(&resizer, &err) == FL_OK);
    const size_t bytes = (size_t)g->box.width * g->box.height * 3,
                 sink_bytes = (size_t)g->window.width * (size_t)g->window.height * 3;
    uint8_t *pixels = fuzz_allocate(bytes), *out = fuzz_allocate(sink_bytes);
    for (size_t i = 0; i < bytes; i++) pixels[i] = (uint8_t)noise();
    fl_view view = {
        .pixels = pixels, .stride = (size_t)g->box.width * 3, .width = g->box.width, .height = g->box.height};
    const uint32_t at_x = (uint32_t)(g->visible.x - g->window.x),
                   at_y = (uint32_t)(g->visible.y - g->window.y);
    const fl_box shown = {at_x, at_y, (uint32_t)g->visible.width, (uint32_t)g->visible.height};
    const fl_resize_spec spec = {
        .width = g->box.width,
        .height = g->box.height,
        .out_width = g->width,
        .out_height = g->height,
        .window = {(uint32_t)g->visible.x, (uint32_t)g->visible.y, shown.width, shown.height},
        .at_x = at_x,
        .at_y = at_y,
        .filter = (fl_resize_filter)g->filter,
        .antialias = g->antialias};
    const fl_sink sink = {.data = out,
                          .width = (uint32_t)g->window.width,
                          .height = (uint32_t)g->window.height,
                          .layout = (fl_layout)below(2),
                          .hflip = g->hflip,
                          .vflip = g->vflip};
    fl_resize_sink_fill(&sink, &shown, g->fill);
    CHECK(fl_resize(resizer, &view, &spec, &sink, &err) == FL_OK);
    FUZZ_INITIALIZED(out, sink_bytes); /* each pixel is the image's or the fill */
    fuzz_count("geometries rendered");
    free(pixels), free(out);
}

enum { BOXES_MAX = 6 };

/* Boxes of any format and type, some of numbers that no box has. */
static fl_boxes make_boxes(float *real, int64_t *integer, uint8_t *keep, uint32_t width, uint32_t height) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0};
    fl_boxes boxes = {.format = (fl_box_format)below(below(32) ? 6 : 8),
                      .integer = below(8) == 0,
                      .count = below(BOXES_MAX + 1),
                      .keep = keep};
    for (uint32_t i = 0; i < BOXES_MAX * 8; i++) {
        const double most = i % 2 ? height : width;
        real[i] = below(32) ? (float)((1.4 * unit() - 0.2) * most) : odd[below(6)];
        integer[i] = below(32) ? (int64_t)((1.4 * unit() - 0.2) * most) : (int64_t)noise64();
    }
    for (uint32_t i = 0; i < BOXES_MAX; i++) keep[i] = 1;
    boxes.values = boxes.integer ? (void *)integer : (void *)real;
    return boxes;
}

static void check_boxes(const fl_boxes *boxes, const fl_geometry *g) {
    const bool cut = g->step_count && g->steps[g->step_count - 1].kind <= FL_STEP_PAD;
    for (uint32_t i = 0; i < boxes->count; i++) {
        CHECK(boxes->keep[i] <= 1);
        const float *b = (const float *)boxes->values + (size_t)i * 4;
        if (!cut || boxes->integer || boxes->format != FL_BOXES_XYXY) continue;
        for (int k = 0; k < 4; k++)
            CHECK(isnan(b[k]) || (b[k] >= 0 && b[k] <= (float)(k % 2 ? g->window.height : g->window.width)));
        fuzz_count("boxes inside");
    }
}

static void check_steps(const fl_geometry *g, uint32_t width, uint32_t height) {
    int64_t w = width, h = height;
    CHECK(g->step_count <= FL_STEPS_MAX);
    for (uint32_t i = 0; i < g->step_count; i++) {
        CHECK(g->steps[i].in_width == w && g->steps[i].in_height == h);
        w = g->steps[i].width, h = g->steps[i].height;
    }
    CHECK(w == g->window.width && h == g->window.height);
    float points[6] = {unit(), unit(), 0, unit(), unit(), 2};
    const float zero[2] = {points[0], points[1]};
    fl_objects_points(g, FL_POINTS_KEYPOINTS, points, 2, 3);
    CHECK(points[0] == zero[0] && points[1] == zero[1] && points[5] == 2);
}

/* Where nothing was padded every entry points into the source; where all was, none is wanted. */
static void check_tables(const fl_geometry *g, uint32_t width, uint32_t height) {
    if (g->window.width > 4096 || g->window.height > 4096) return;
    int32_t *columns = fuzz_allocate((size_t)g->window.width * sizeof *columns),
            *rows = fuzz_allocate((size_t)g->window.height * sizeof *rows);
    fl_objects_mask(g, columns, rows);
    const bool whole =
        !g->padded && g->visible.width == g->window.width && g->visible.height == g->window.height;
    for (int64_t i = 0; i < g->window.width; i++)
        CHECK(columns[i] >= (whole ? 0 : -1) && columns[i] < (int64_t)width);
    for (int64_t i = 0; i < g->window.height; i++)
        CHECK(rows[i] >= (whole ? 0 : -1) && rows[i] < (int64_t)height);
    free(columns), free(rows);
}

static void check_geometry(const fl_geometry *g, uint32_t width, uint32_t height) {
    const fl_rect *v = &g->visible, *w = &g->window, *c = &g->canvas;
    check_steps(g, width, height);
    check_tables(g, width, height);
    CHECK(g->width && g->height && w->width > 0 && w->height > 0);
    CHECK((uint64_t)g->box.x + g->box.width <= width && (uint64_t)g->box.y + g->box.height <= height);
    CHECK(v->width >= 0 && v->height >= 0);
    if (!g->box.width || !g->box.height) {
        CHECK(g->padded);
        return;
    }
    CHECK(g->box.x >= c->x && g->box.y >= c->y && g->box.x + g->box.width <= c->x + c->width &&
          g->box.y + g->box.height <= c->y + c->height);
    if (!g->padded) CHECK(c->width == g->box.width && c->height == g->box.height);
    if (!v->width || !v->height) return; /* all padding */
    CHECK(v->x >= 0 && v->y >= 0 && v->x + v->width <= g->width && v->y + v->height <= g->height);
    CHECK(v->x >= w->x && v->y >= w->y && v->x + v->width <= w->x + w->width &&
          v->y + v->height <= w->y + w->height);
    if (!g->resized) CHECK(g->width == g->box.width && g->height == g->box.height);
    const uint64_t most = 1 << 14;
    if (!g->padded && (uint64_t)g->box.width * g->box.height <= most &&
        (uint64_t)(w->width * w->height) <= most && (uint64_t)g->width * g->height <= most)
        render(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fl_program program;
    static fl_geometry geometry;
    fl_error err;
    const unsigned expected = FUZZ_CODE(FL_EARG) | FUZZ_CODE(FL_EUNSUPPORTED) | FUZZ_CODE(FL_ELIMIT);
    draws_begin(data, size);
    program.count = below(256) ? 1 + below(5) : below(FL_OPS_MAX + 3);
    for (uint32_t i = 0; i < program.count && i < FL_OPS_MAX; i++) program.ops[i] = make_op();
    const uint32_t width = below(64) ? side(100) : 0, height = below(64) ? side(100) : FL_IMAGE_SIDE_MAX + 1;
    for (int i = 0; i < 4; i++) {
        const fl_key key = {noise64(), noise(), noise64()};
        float real[BOXES_MAX * 8];
        int64_t integer[BOXES_MAX * 8];
        uint8_t keep[BOXES_MAX];
        fl_boxes boxes = make_boxes(real, integer, keep, width, height);
        const fl_code code = fl_geometry_resolve(&program, width, height, key, &boxes, &geometry, &err);
        fuzz_known(code, &err, expected);
        if (!code) {
            check_geometry(&geometry, width, height);
            check_boxes(&boxes, &geometry);
            fuzz_count("geometries");
        }
        bool needs_boxes = false;
        for (uint32_t k = 0; k < program.count && k < FL_OPS_MAX; k++)
            needs_boxes |= program.ops[k].kind == FL_OP_IOU_CROP;
        uint32_t out_width = 0, out_height = 0;
        const fl_code sized = fl_geometry_size(&program, width, height, key, &out_width, &out_height, &err);
        fuzz_known(sized, &err, expected);
        if (code || sized) continue; /* boxes may be refused where the image is not */
        if (needs_boxes) CHECK(geometry.window.width <= out_width && geometry.window.height <= out_height);
        else CHECK(geometry.window.width == out_width && geometry.window.height == out_height);
    }
    return 0;
}
