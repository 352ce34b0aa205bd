/* Transform lists: whatever fl_geometry_resolve makes of one lies inside the image, has the size that fl_geometry_size says for every random
 * draw, and can be rendered by fl_resize. */
#include "engine/geometry.h"
#include "resize/resize.h"
#include "resize/sink.h"
#include "fuzz.h"

static uint32_t side(uint32_t most) { return below(16) ? 1 + below(most) : below(8) ? 1 : FL_IMAGE_SIDE_MAX - below(2); }

static fl_op make_op(void) {
    fl_op op = {.kind = (fl_op_kind)(1 + below(below(64) ? 6 : 9)), .stream = (uint16_t)below(4), .filter = (int)below(2)};
    op.width = side(60), op.height = op.kind == FL_OP_RESIZE && below(2) ? 0 : side(60);
    op.max_size = below(2) ? 0 : op.width + below(60);
    op.scale[0] = unit(), op.scale[1] = op.scale[0] + (1 - op.scale[0]) * unit();
    op.ratio[0] = 0.05 + unit(), op.ratio[1] = op.ratio[0] + (below(2) ? unit() : 20 * unit());
    op.p = below(3) ? unit() : below(2);
    for (int i = 0; i < 4; i++) op.padding[i] = below(2) ? 0 : below(40);
    op.pad_if_needed = below(2), op.antialias = below(2), op.dct_scale = below(2);
    return op;
}

/* The box as a view, the visible window into a sink of the window's size. */
static void render(const fl_geometry *g) {
    static fl_resizer *resizer;
    fl_error err;
    if (!resizer) CHECK(fl_resizer_create(&resizer, &err) == FL_OK);
    const size_t bytes = (size_t)g->box.width * g->box.height * 3, sink_bytes = (size_t)g->window.width * (size_t)g->window.height * 3;
    uint8_t *pixels = fuzz_allocate(bytes), *out = fuzz_allocate(sink_bytes);
    for (size_t i = 0; i < bytes; i++) pixels[i] = (uint8_t)noise();
    fl_view view = {pixels, (size_t)g->box.width * 3, g->box.width, g->box.height, 0};
    const uint32_t at_x = (uint32_t)(g->visible.x - g->window.x), at_y = (uint32_t)(g->visible.y - g->window.y);
    const fl_box shown = {at_x, at_y, (uint32_t)g->visible.width, (uint32_t)g->visible.height};
    const fl_resize_spec spec = {.width = g->box.width,
                                 .height = g->box.height,
                                 .out_width = g->width,
                                 .out_height = g->height,
                                 .window = {(uint32_t)g->visible.x, (uint32_t)g->visible.y, shown.width, shown.height},
                                 .at_x = at_x,
                                 .at_y = at_y,
                                 .filter = (fl_resize_filter)g->filter,
                                 .antialias = g->antialias};
    const fl_sink sink = {out, (uint32_t)g->window.width, (uint32_t)g->window.height, FL_U8, (fl_layout)below(2), NULL, g->hflip, g->vflip};
    fl_resize_sink_fill(&sink, &shown, g->fill);
    CHECK(fl_resize(resizer, &view, &spec, &sink, &err) == FL_OK);
    FUZZ_INITIALIZED(out, sink_bytes); /* each pixel is the image's or the fill */
    fuzz_count("geometries rendered");
    free(pixels), free(out);
}

static void check_geometry(const fl_geometry *g, uint32_t width, uint32_t height) {
    const fl_rect *v = &g->visible, *w = &g->window;
    CHECK(g->box.width && g->box.height && g->width && g->height && w->width > 0 && w->height > 0);
    CHECK((uint64_t)g->box.x + g->box.width <= width && (uint64_t)g->box.y + g->box.height <= height);
    CHECK(v->width >= 0 && v->height >= 0);
    if (!v->width || !v->height) return; /* all padding */
    CHECK(v->x >= 0 && v->y >= 0 && v->x + v->width <= g->width && v->y + v->height <= g->height);
    CHECK(v->x >= w->x && v->y >= w->y && v->x + v->width <= w->x + w->width && v->y + v->height <= w->y + w->height);
    if (!g->resized) CHECK(g->width == g->box.width && g->height == g->box.height);
    const uint64_t most = 1 << 14;
    if ((uint64_t)g->box.width * g->box.height <= most && (uint64_t)(w->width * w->height) <= most &&
        (uint64_t)g->width * g->height <= most)
        render(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_program program = {0};
    fl_geometry geometry;
    fl_error err;
    uint32_t out_width, out_height;
    draws_begin(data, size);
    program.count = below(256) ? 1 + below(5) : below(FL_OPS_MAX + 3);
    for (uint32_t i = 0; i < program.count && i < FL_OPS_MAX; i++) program.ops[i] = make_op();
    const uint32_t width = below(64) ? side(100) : 0, height = below(64) ? side(100) : FL_IMAGE_SIDE_MAX + 1;
    const fl_code code = fl_geometry_size(&program, width, height, &out_width, &out_height, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_EARG) | FUZZ_CODE(FL_EUNSUPPORTED));
    for (int i = 0; i < 4; i++) {
        const fl_key key = {noise64(), noise(), noise64()};
        const fl_code one = fl_geometry_resolve(&program, width, height, key, &geometry, &err);
        fuzz_known(one, &err, FUZZ_CODE(FL_EARG) | FUZZ_CODE(FL_EUNSUPPORTED));
        /* No draw decides whether a list fits, but where a resize follows a random crop with padding, which the plan refuses before. */
        CHECK(one == code || one == FL_EUNSUPPORTED || code == FL_EUNSUPPORTED);
        if (one || code) continue;
        CHECK(geometry.window.width == out_width && geometry.window.height == out_height);
        check_geometry(&geometry, width, height);
        fuzz_count("geometries");
    }
    return 0;
}
