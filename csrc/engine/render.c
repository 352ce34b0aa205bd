#include "engine/render.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "engine/augment.h"
#include "engine/erase.h"
#include "jpeg/libjpeg.h"
#include "resize/axis.h"
#include "resize/halve.h"
#include "resize/resize_planes.h"
#include "resize/resize.h"
#include "resize/sink.h"

enum { HALVES = 3 /* from 8/8 to 1/8 */ };

/* One part of one image: what its program drew, and where it goes. */
typedef struct planned {
    fl_geometry g;
    fl_sink sink;
    fl_box shown; /* what is not padding, in the sink; may be empty */
    int eighths; /* the scale that its geometry allows: NOTE [ render: several views of one image ] */
    fl_box source; /* what it needs of the image; empty: it is all padding */
    fl_rect canvas; /* where padding came before the resize: what it needs of the canvas; else empty */
} planned;

struct fl_renderer {
    void *states[FL_DECODERS_MOST]; /* of the decoders, each made for its first image */
    int opened; /* the decoder of the image in work; -1: its pixels were given */
    fl_view given;
    fl_image_form form; /* of the image in work */
    int64_t opening_ns; /* that its decoder took to open it */
    fl_resizer *resizer;
    fl_resize_planes *planes_resizer; /* made for the first image of other than 8-bit RGB */
    fl_buffer halves[HALVES]; /* of the image in work */
    fl_buffer canvas; /* of the part in work, where padding comes before its resize */
    fl_augmenter augmenter;
    planned parts[FL_PARTS_MAX]; /* of the image in work */
};

/* The pixels that an image's parts are resampled from: `box` of it, scaled by eighths / 8. */
typedef struct decoded {
    fl_view view;
    fl_box box;
    int eighths;
} decoded;

fl_code fl_renderer_create(fl_renderer **out, fl_error *err) {
    *out = NULL;
    fl_renderer *renderer = calloc(1, sizeof *renderer);
    if (!renderer) return fl_fail(err, FL_ENOMEM, "no memory for a decoder (%zu bytes)", sizeof *renderer);
    const fl_code code = fl_resizer_create(&renderer->resizer, err);
    if (code) {
        fl_renderer_free(renderer);
        return code;
    }
    *out = renderer;
    return FL_OK;
}

void fl_renderer_free(fl_renderer *renderer) {
    if (!renderer) return;
    fl_augment_free(&renderer->augmenter);
    fl_buffer_free(&renderer->canvas);
    for (int i = 0; i < HALVES; i++) fl_buffer_free(&renderer->halves[i]);
    fl_resize_planes_free(renderer->planes_resizer);
    fl_resizer_free(renderer->resizer);
    for (int i = 0; fl_decoder_at(i); i++)
        if (renderer->states[i]) fl_decoder_at(i)->free(renderer->states[i]);
    free(renderer);
}

/* Opens an image by its decoder, which is made for the first of its kind. */
static fl_code open_by(fl_renderer *renderer, int place, const fl_stored *image, uint64_t max_pixels,
                       fl_error *err) {
    const fl_decoder *decoder = fl_decoder_at(place);
    fl_code code = renderer->states[place] ? FL_OK : decoder->create(&renderer->states[place], err);
    if (!code) code = decoder->open(renderer->states[place], image, max_pixels, &renderer->form, err);
    if (!code && renderer->form.channels && !renderer->planes_resizer)
        code = fl_resize_planes_create(&renderer->planes_resizer, err);
    return code;
}

fl_code fl_renderer_open(fl_renderer *renderer, const fl_stored *image, uint64_t max_pixels,
                         fl_image_form *form, fl_error *err) {
    const int64_t start = fl_clock_ns();
    renderer->opened = fl_decoder_find(image->kind);
    renderer->opening_ns = 0;
    renderer->form = (fl_image_form){.width = 0};
    if (renderer->opened < 0)
        return fl_fail(err, FL_EUNSUPPORTED, "its image is of kind %u, which this version cannot decode",
                       (unsigned)image->kind);
    const fl_code code = open_by(renderer, renderer->opened, image, max_pixels, err);
    renderer->opening_ns = fl_clock_ns() - start;
    *form = renderer->form;
    return code;
}

void fl_renderer_give(fl_renderer *renderer, const fl_view *image) {
    renderer->opened = -1, renderer->opening_ns = 0;
    renderer->given = *image;
    renderer->form = (fl_image_form){
        .width = image->width, .height = image->height, .channels = image->channels, .depth = image->depth};
}

fl_code fl_renderer_whole(fl_renderer *renderer, fl_view *image, fl_error *err) {
    const int64_t start = fl_clock_ns(), opening = renderer->opening_ns;
    const fl_decoder *decoder = fl_decoder_at(renderer->opened);
    fl_box whole = {0, 0, renderer->form.width, renderer->form.height};
    const fl_code code = decoder->decode(renderer->states[renderer->opened], &whole, 8, image, err);
    if (!code) fl_renderer_give(renderer, image);
    renderer->opening_ns = opening + fl_clock_ns() - start;
    return code;
}

int64_t fl_renderer_opening_ns(const fl_renderer *renderer) { return renderer->opening_ns; }

/* The part of the box whose pixels the visible window needs: all of it when nothing is resampled away, else
 * the window's span and the filter's reach. */
static void needed(double scale, uint32_t size, int64_t from, int64_t length, int eighths, double reach,
                   uint32_t *start, uint32_t *extent) {
    double shrink =
        fmax(scale * eighths / 8.0, 1.0) * 8.0 / eighths; /* one filter radius, in full-size pixels */
    double margin = reach * shrink + 2.0 * 8.0 / eighths;
    double low = floor((double)from * scale - margin), high = ceil((double)(from + length) * scale + margin);
    if (low < 0) low = 0;
    if (high > size) high = size;
    *start = (uint32_t)low, *extent = (uint32_t)high - (uint32_t)low;
}

/* Part of its canvas that a part needs when the canvas is decoded at eighths / 8: in the canvas's own
 * pixels. */
static fl_box part_of(const fl_geometry *g, int eighths) {
    double reach = g->filter == FL_RESIZE_BICUBIC ? 2.0 : 1.0;
    const uint32_t width = (uint32_t)g->canvas.width, height = (uint32_t)g->canvas.height;
    fl_box part;
    needed((double)width / g->width, width, g->visible.x, g->visible.width, eighths, reach, &part.x,
           &part.width);
    needed((double)height / g->height, height, g->visible.y, g->visible.height, eighths, reach, &part.y,
           &part.height);
    return part;
}

/* Part of the image that a part needs when the image is decoded at eighths / 8. */
static fl_box source_of(const fl_geometry *g, int eighths) {
    if (g->resized) {
        const fl_box part = part_of(g, eighths);
        return (fl_box){g->box.x + part.x, g->box.y + part.y, part.width, part.height};
    }
    return (fl_box){(uint32_t)g->visible.x, (uint32_t)g->visible.y, (uint32_t)g->visible.width,
                    (uint32_t)g->visible.height};
}

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* Plans the part of its padded canvas that a part needs, in the image's pixels, and the image's part in that,
 * which may be nothing. */
static void plan_canvas(planned *part) {
    const fl_geometry *g = &part->g;
    const fl_box need = part_of(g, 8);
    const fl_rect canvas = {g->canvas.x + need.x, g->canvas.y + need.y, need.width, need.height};
    const int64_t x0 = greater(canvas.x, g->box.x), y0 = greater(canvas.y, g->box.y);
    const int64_t x1 = lesser(canvas.x + canvas.width, (int64_t)g->box.x + g->box.width);
    const int64_t y1 = lesser(canvas.y + canvas.height, (int64_t)g->box.y + g->box.height);
    part->canvas = canvas;
    if (x0 < x1 && y0 < y1)
        part->source = (fl_box){(uint32_t)x0, (uint32_t)y0, (uint32_t)(x1 - x0), (uint32_t)(y1 - y0)};
}

static int scale_of(const fl_geometry *g) {
    if (!g->resized || g->padded || !g->antialias || !g->dct_scale) return 8;
    return fl_jpeg_scale(g->box.width, g->box.height, g->width, g->height);
}

/* Fills a sink around `keep`. A colour of three is one of all channels, where these are not three:
 * fastload/transforms sees to it. */
static void fill(const fl_sink *sink, const fl_box *keep, const uint8_t colour[3]) {
    const uint16_t values[4] = {colour[0], colour[1], colour[2], colour[2]};
    if (sink->channels) fl_resize_planes_fill(sink, keep, values);
    else fl_resize_sink_fill(sink, keep, colour);
}

/* Checks that nothing but the image goes into patches: padding and what erases know only lines. */
static fl_code check_patches(const fl_geometry *g, const fl_sink *sink, const fl_program *program,
                             fl_error *err) {
    bool erases = false;
    if (sink->layout != FL_PATCHES) return FL_OK;
    for (uint32_t i = 0; i < program->count; i++) erases = erases || program->ops[i].kind == FL_OP_ERASE;
    if (erases || g->visible.width != g->window.width || g->visible.height != g->window.height)
        return fl_fail(err, FL_EUNSUPPORTED, "its patches would show padding, or a square that is erased");
    return FL_OK;
}

/* Resolves a part's geometry. */
static fl_code plan(planned *part, const fl_part *from, uint32_t width, uint32_t height, fl_key key,
                    fl_boxes *boxes, const fl_target *target, uint32_t row, fl_error *err) {
    fl_geometry *g = &part->g;
    fl_code code = fl_geometry_resolve(&from->program, width, height, key, boxes, g, err);
    if (!code) code = fl_target_fit(target, row, (uint32_t)g->window.width, (uint32_t)g->window.height, err);
    if (code) return code;
    fl_target_clear_margin(target, row);
    fl_sink sink = fl_target_sink(target, row);
    sink.hflip = g->hflip, sink.vflip = g->vflip;
    if ((code = check_patches(g, &sink, &from->program, err))) return code;
    part->sink = sink;
    part->eighths = 8;
    part->source = (fl_box){0, 0, 0, 0};
    part->canvas = (fl_rect){0, 0, 0, 0};
    part->shown = (fl_box){0, 0, 0, 0};
    if (g->visible.width && g->visible.height)
        part->shown = (fl_box){(uint32_t)(g->visible.x - g->window.x), (uint32_t)(g->visible.y - g->window.y),
                               (uint32_t)g->visible.width, (uint32_t)g->visible.height};
    if (part->shown.width && g->padded) plan_canvas(part);
    else if (part->shown.width) part->source = source_of(g, 8);
    return FL_OK;
}

static fl_box join(fl_box a, fl_box b) {
    if (!a.width) return b;
    uint32_t x0 = a.x < b.x ? a.x : b.x, y0 = a.y < b.y ? a.y : b.y;
    uint32_t ax = a.x + a.width, bx = b.x + b.width, ay = a.y + a.height, by = b.y + b.height;
    return (fl_box){x0, y0, (ax > bx ? ax : bx) - x0, (ay > by ? ay : by) - y0};
}

/* The box from whole blocks of 8 pixels on: there a half, a quarter and an eighth begin with a whole pixel,
 * too. */
static fl_box from_block(fl_box box) {
    const uint32_t x = box.x % 8, y = box.y % 8;
    return (fl_box){box.x - x, box.y - y, box.width + x, box.height + y};
}

/* The scale that each part needs, and the largest of them. See NOTE [ render: several views of one image
 * ]. */
static int plan_scale(fl_renderer *renderer, uint32_t count) {
    int most = 1;
    for (uint32_t i = 0; i < count; i++) {
        planned *part = &renderer->parts[i];
        if (!part->source.width) continue;
        part->eighths = scale_of(&part->g);
        if (part->eighths > most) most = part->eighths;
    }
    return most;
}

/* The box that holds what all parts need at the scale of each; empty: they need nothing. */
static fl_box plan_box(fl_renderer *renderer, uint32_t count, int eighths) {
    fl_box box = {0, 0, 0, 0};
    bool halved = false;
    for (uint32_t i = 0; i < count; i++) {
        planned *part = &renderer->parts[i];
        if (!part->source.width) continue;
        if (!part->canvas.width) part->source = source_of(&part->g, part->eighths);
        box = join(box, part->source);
        halved = halved || part->eighths < eighths;
    }
    return box.width && halved ? from_block(box) : box;
}

/* Checks that the targets have the stored form: a lie of the record would be written beyond them. */
static fl_code check_form(const fl_renderer *renderer, uint32_t count, fl_error *err) {
    const uint32_t channels = renderer->form.channels, depth = renderer->form.depth;
    for (uint32_t i = 0; i < count; i++) {
        const fl_sink *sink = &renderer->parts[i].sink;
        if (sink->channels != channels || sink->depth != depth)
            return fl_fail(err, FL_ERECORD, "its pixels have %u channels of %u bytes, its field %u of %u",
                           channels ? channels : 3, channels ? depth : 1, sink->channels ? sink->channels : 3,
                           sink->channels ? sink->depth : 1);
    }
    return FL_OK;
}

/* Decodes what the parts need. An empty box: they need nothing. */
static fl_code decode(fl_renderer *renderer, uint32_t count, decoded *out, fl_rendered *report,
                      fl_error *err) {
    const fl_decoder *decoder = fl_decoder_at(renderer->opened);
    void *state = renderer->states[renderer->opened];
    const int64_t start = fl_clock_ns();
    out->eighths = decoder->scales ? plan_scale(renderer, count) : 8;
    out->box = plan_box(renderer, count, out->eighths);
    const fl_code code =
        out->box.width ? decoder->decode(state, &out->box, out->eighths, &out->view, err) : FL_OK;
    fl_decode_notes notes = {.warnings = 0};
    if (out->box.width && decoder->notes) decoder->notes(state, &notes);
    report->warnings = notes.warnings, report->fell_back = notes.fell_back;
    report->decode_at = start - renderer->opening_ns;
    report->decode_ns = (uint64_t)(fl_clock_ns() - report->decode_at);
    return code;
}

/* The decoded image, levels[0], at a part's own scale: a half, or a half of that, each made once. */
static fl_code at_scale(fl_renderer *renderer, decoded levels[HALVES + 1], int eighths, const decoded **out,
                        fl_error *err) {
    fl_code code = FL_OK;
    int level = 0;
    for (; levels[level].eighths > eighths && !code; level++) {
        decoded *half = &levels[level + 1];
        if (half->view.pixels) continue;
        *half = (decoded){.box = levels[level].box, .eighths = levels[level].eighths / 2};
        code = fl_resize_halve(&levels[level].view, &renderer->halves[level], &half->view, err);
    }
    *out = &levels[level];
    return code;
}

/* The view of `source` in what was decoded, and its origin in scaled pixels of the image. */
static fl_view inside(const decoded *from, fl_box source, double *left, double *top) {
    double s = from->eighths / 8.0;
    *left = floor(source.x * s), *top = floor(source.y * s);
    uint32_t x = (uint32_t)(*left - floor(from->box.x * s)), y = (uint32_t)(*top - floor(from->box.y * s));
    fl_view view = from->view;
    const size_t pixel = fl_view_pixel(&view);
    view.pixels += y * view.stride + x * pixel;
    view.width = (uint32_t)(ceil((source.x + source.width) * s) - *left);
    view.height = (uint32_t)(ceil((source.y + source.height) * s) - *top);
    view.tail +=
        (from->view.height - y - view.height) * view.stride + (from->view.width - x - view.width) * pixel;
    return view;
}

/* The most pixels of a canvas that is made in memory: those of the largest image that is decoded without
 * being asked to. */
static const int64_t CANVAS_PIXELS = 1 << 28;

/* Makes what a part needs of its padded canvas: its colour, and the image's pixels in that. */
static fl_code make_canvas(fl_renderer *renderer, const planned *part, const decoded *from, fl_view *out,
                           fl_error *err) {
    const fl_rect *c = &part->canvas;
    if (c->width > CANVAS_PIXELS / c->height)
        return fl_fail(err, FL_ELIMIT, "its transform resizes a padded canvas of %lld x %lld pixels",
                       (long long)c->width, (long long)c->height);
    const uint8_t channels = part->sink.channels, depth = part->sink.depth;
    const size_t pixel = channels ? (size_t)channels * depth : 3;
    fl_code code = fl_resize_fit(&renderer->canvas, (size_t)c->width * (size_t)c->height, pixel, err);
    if (code) return code;
    const fl_sink sink = {.data = renderer->canvas.bytes,
                          .width = (uint32_t)c->width,
                          .height = (uint32_t)c->height,
                          .dtype = depth == 2 ? FL_U16 : FL_U8,
                          .layout = FL_HWC,
                          .channels = channels,
                          .depth = depth};
    fl_box keep = {0, 0, 0, 0};
    if (part->source.width)
        keep = (fl_box){(uint32_t)(part->source.x - c->x), (uint32_t)(part->source.y - c->y),
                        part->source.width, part->source.height};
    fill(&sink, &keep, part->g.canvas_fill);
    *out = (fl_view){.pixels = sink.data,
                     .stride = sink.width * pixel,
                     .width = sink.width,
                     .height = sink.height,
                     .channels = channels,
                     .depth = depth};
    if (!keep.width) return FL_OK;
    double left, top;
    const fl_view view = inside(from, part->source, &left, &top);
    for (uint32_t y = 0; y < keep.height; y++)
        memcpy((uint8_t *)sink.data + (keep.y + y) * out->stride + keep.x * pixel,
               view.pixels + y * view.stride, keep.width * pixel);
    return FL_OK;
}

/* Resamples a part's window from what it needs of its canvas, or of the image, into a sink. */
static fl_code resample(fl_renderer *renderer, const planned *part, decoded levels[HALVES + 1],
                        const fl_sink *sink, fl_error *err) {
    const fl_geometry *g = &part->g;
    fl_view view;
    fl_resize_spec spec = {
        .out_width = g->width,
        .out_height = g->height,
        .window = {(uint32_t)g->visible.x, (uint32_t)g->visible.y, (uint32_t)g->visible.width,
                   (uint32_t)g->visible.height},
        .at_x = (uint32_t)(g->visible.x - g->window.x),
        .at_y = (uint32_t)(g->visible.y - g->window.y),
        .filter = (fl_resize_filter)g->filter,
        .antialias = g->antialias,
    };
    if (part->canvas.width) {
        const fl_code code = make_canvas(renderer, part, &levels[0], &view, err);
        if (code) return code;
        spec.x = (double)(g->canvas.x - part->canvas.x), spec.y = (double)(g->canvas.y - part->canvas.y);
        spec.width = (double)g->canvas.width, spec.height = (double)g->canvas.height;
    } else {
        const decoded *from;
        const fl_code code = at_scale(renderer, levels, part->eighths, &from, err);
        if (code) return code;
        double left, top, s = from->eighths / 8.0;
        view = inside(from, part->source, &left, &top);
        spec.x = g->box.x * s - left, spec.y = g->box.y * s - top;
        spec.width = g->box.width * s, spec.height = g->box.height * s;
        if (!g->resized) { /* the view is the window's own pixels */
            spec.x = spec.y = 0;
            spec.width = spec.out_width = view.width, spec.height = spec.out_height = view.height;
            spec.window = (fl_box){0, 0, view.width, view.height};
        }
    }
    if (view.channels) return fl_resize_planes_run(renderer->planes_resizer, &view, &spec, sink, err);
    return fl_resize(renderer->resizer, &view, &spec, sink, err);
}

/* Makes a part's window in a sink: padding, and what is resampled. */
static fl_code draw(fl_renderer *renderer, const planned *part, decoded levels[HALVES + 1],
                    const fl_sink *sink, fl_error *err) {
    const fl_box *shown = &part->shown;
    if (shown->width != sink->width || shown->height != sink->height) fill(sink, shown, part->g.fill);
    if (!part->source.width && !part->canvas.width) return FL_OK;
    return resample(renderer, part, levels, sink, err);
}

/* The same in memory of the augmenter's, as bytes; then its program's ops, then into its row. */
static fl_code draw_augmented(fl_renderer *renderer, const planned *part, const fl_program *program,
                              fl_key key, decoded levels[HALVES + 1], fl_error *err) {
    fl_augmenter *augmenter = &renderer->augmenter;
    const uint32_t width = part->sink.width, height = part->sink.height;
    if (part->sink.channels)
        return fl_fail(err, FL_EUNSUPPORTED, "colours of an image of %u channels", part->sink.channels);
    fl_code code = fl_augment_begin(augmenter, width, height, err);
    if (code) return code;
    const fl_sink bytes = {.data = augmenter->image.bytes,
                           .width = width,
                           .height = height,
                           .dtype = FL_U8,
                           .layout = FL_HWC,
                           .hflip = part->sink.hflip,
                           .vflip = part->sink.vflip};
    code = draw(renderer, part, levels, &bytes, err);
    if (!code) code = fl_augment_run(augmenter, program, key, width, height, err);
    if (code) return code;
    const fl_view view = {
        .pixels = augmenter->image.bytes, .stride = (size_t)width * 3, .width = width, .height = height};
    const fl_resize_spec copy = {.width = width,
                                 .height = height,
                                 .out_width = width,
                                 .out_height = height,
                                 .window = {0, 0, width, height},
                                 .antialias = true};
    fl_sink row = part->sink;
    row.hflip = part->g.late_hflip, row.vflip = part->g.late_vflip;
    return fl_resize(renderer->resizer, &view, &copy, &row, err);
}

fl_code fl_render(fl_renderer *renderer, const fl_part *parts, uint32_t count, fl_key key, fl_boxes *boxes,
                  const fl_target *targets, uint32_t row, fl_rendered *report, fl_error *err) {
    const uint32_t width = renderer->form.width, height = renderer->form.height;
    fl_code code = FL_OK;
    *report = (fl_rendered){.decode_ns = 0};
    if (count > FL_PARTS_MAX) return fl_fail(err, FL_EARG, "%u parts of one image", count);
    for (uint32_t i = 0; i < count && !code; i++)
        code =
            plan(&renderer->parts[i], &parts[i], width, height, key, i ? NULL : boxes, &targets[i], row, err);
    if (!code) code = check_form(renderer, count, err);
    if (code) return code;
    decoded levels[HALVES + 1] = {{.box = {0, 0, width, height}, .eighths = 8}};
    if (renderer->opened < 0) levels[0].view = renderer->given;
    else code = decode(renderer, count, &levels[0], report, err);
    int64_t start = fl_clock_ns();
    if (!code) report->resize_at = start;
    for (uint32_t i = 0; i < count && !code; i++) {
        const planned *part = &renderer->parts[i];
        code = fl_augment_needed(&parts[i].program)
                   ? draw_augmented(renderer, part, &parts[i].program, key, levels, err)
                   : draw(renderer, part, levels, &part->sink, err);
        if (!code) code = fl_erase_run(&parts[i].program, key, &part->sink, err);
    }
    report->resize_ns = (uint64_t)(fl_clock_ns() - start);
    return code;
}

const fl_geometry *fl_renderer_geometry(const fl_renderer *renderer) { return &renderer->parts[0].g; }
