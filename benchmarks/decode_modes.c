#include "decode_modes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <turbojpeg.h>

#include "jpeg/baseline.h"
#include "jpeg/dct.h"
#include "jpeg/entropy.h"
#include "jpeg/libjpeg.h"
#include "resize/resize.h"

enum {
    FLOOR,
    CROP,
    CROP_UNMARKED,
    REGION,
    TURBOJPEG,
    FULL,
    FLOOR_CENTRE,
    CENTRE,
    WALK,
    INDEX,
    CROP_DCT,
    CENTRE_DCT,
    FULL_DCT,
    ENCODE_DCT
};
const char *const MODE_NAMES[MODES] = {"floor",    "crop",         "crop_unmarked", "region",    "turbojpeg",
                                       "full",     "floor_centre", "centre",        "walk",      "index",
                                       "crop_dct", "centre_dct",   "full_dct",      "encode_dct"};

struct worker {
    floor_decoder *floor;
    tjhandle turbo;
    fl_jpeg_baseline *baseline;
    fl_jpeg_entropy *entropy;
    fl_jpeg_dct *dct;
    fl_resizer *resizer;
    uint32_t target, every;
    uint8_t *sink; /* target x target */
    uint8_t *whole;
    size_t whole_size;
};

worker *worker_create(uint32_t target, uint32_t every) {
    fl_error err;
    worker *w = calloc(1, sizeof *w);
    if (!w || !(w->sink = malloc((size_t)target * target * 3))) floor_die("no memory", "decode");
    if (fl_jpeg_baseline_create(&w->baseline, &err) || fl_jpeg_entropy_create(&w->entropy, &err) ||
        fl_resizer_create(&w->resizer, &err) || fl_jpeg_dct_create(&w->dct, &err))
        floor_die(err.text, "decode");
    if (!(w->turbo = tjInitDecompress())) floor_die(tjGetErrorStr(), "TurboJPEG");
    w->floor = floor_create();
    w->target = target;
    w->every = every;
    return w;
}

void worker_free(worker *w) {
    floor_free(w->floor);
    tjDestroy(w->turbo);
    fl_jpeg_baseline_free(w->baseline);
    fl_jpeg_entropy_free(w->entropy);
    fl_jpeg_dct_free(w->dct);
    fl_resizer_free(w->resizer);
    free(w->sink);
    free(w->whole);
    free(w);
}

static void make_index(worker *w, const sample *s, const uint8_t **index, size_t *size) {
    const picture *p = s->file;
    uint32_t every = w->every ? w->every : FL_JPEG_INDEX_EVERY;
    size_t most = w->every ? SIZE_MAX : fl_jpeg_index_most(p->size);
    if (!fl_jpeg_entropy_index(w->entropy, p->bytes, p->size, every, most, index, size))
        floor_die("refused by fl_jpeg_entropy's walk", p->path);
}

/* As the pipeline does: the part of a side of `size` pixels that target columns from `from` on need, when the
 * side becomes `resized`. */
static void needed(uint32_t size, uint32_t resized, uint32_t from, uint32_t target, int eighths,
                   uint32_t *start, uint32_t *extent) {
    double scale = (double)size / resized;
    double margin = fmax(scale * eighths / 8.0, 1.0) * 8.0 / eighths + 2.0 * 8.0 / eighths;
    double low = fmax(floor(from * scale - margin), 0),
           high = fmin(ceil((from + target) * scale + margin), size);
    *start = (uint32_t)low, *extent = (uint32_t)(high - low);
}

/* What is left over beside the window on one side: half of it, rounded as torchvision does. */
static uint32_t centre_start(uint32_t resized, uint32_t target) {
    return (uint32_t)rint((resized - target) / 2.0);
}

void worker_prepare(worker *w, sample *s) {
    const picture *p = s->file;
    const uint8_t *index;
    make_index(w, s, &index, &s->index_size);
    if (!s->index_size || !(s->index = malloc(s->index_size))) floor_die("no index can be made", p->path);
    memcpy(s->index, index, s->index_size);
    const uint8_t *form;
    fl_error err;
    if (fl_jpeg_dct_encode(w->dct, p->bytes, p->size, UINT64_MAX, &form, &s->form_size, &err))
        s->form_size = 0;
    else if (!(s->form = malloc(s->form_size))) floor_die("no memory for an image", p->path);
    if (s->form) memcpy(s->form, form, s->form_size);
    uint32_t shorter = w->target * 8 / 7, side = p->width < p->height ? p->width : p->height;
    s->resized_width = (uint32_t)((uint64_t)p->width * shorter / side),
    s->resized_height = (uint32_t)((uint64_t)p->height * shorter / side);
    s->centre_eighths = fl_jpeg_scale(p->width, p->height, s->resized_width, s->resized_height);
    needed(p->width, s->resized_width, centre_start(s->resized_width, w->target), w->target,
           s->centre_eighths, &s->centre.x, &s->centre.width);
    needed(p->height, s->resized_height, centre_start(s->resized_height, w->target), w->target,
           s->centre_eighths, &s->centre.y, &s->centre.height);
}

/* What is read of a picture. */
typedef enum source { UNMARKED, MARKED, FORM } source;

static fl_view decode(worker *w, const sample *s, fl_box box, int eighths, source from) {
    fl_view view;
    uint32_t width, height;
    if (from == FORM) {
        if (!fl_jpeg_baseline_open(w->baseline, s->form, s->form_size, &width, &height) ||
            !fl_jpeg_baseline_decode(w->baseline, &box, eighths, NULL, 0, &view))
            floor_die("not in the DCT form, or refused", s->file->path);
        return view;
    }
    if (!fl_jpeg_baseline_open(w->baseline, s->file->bytes, s->file->size, &width, &height) ||
        !fl_jpeg_baseline_decode(w->baseline, &box, eighths, s->index, from == MARKED ? s->index_size : 0,
                                 &view))
        floor_die("refused by fl_jpeg_baseline", s->file->path);
    return view;
}

/* Resizes the box of the view that the spec names into the sink; the window starts where the spec says and is
 * as large as the sink. */
static void resize(worker *w, const fl_view *view, fl_resize_spec spec) {
    fl_error err;
    fl_sink sink = {
        .data = w->sink, .width = w->target, .height = w->target, .dtype = FL_U8, .layout = FL_HWC};
    spec.window.width = spec.window.height = w->target;
    spec.filter = FL_RESIZE_BILINEAR;
    spec.antialias = true;
    if (fl_resize(w->resizer, view, &spec, &sink, &err)) floor_die(err.text, "fl_resize");
}

static void crop(worker *w, const sample *s, source from) {
    const fl_box box = {s->file->box.x, s->file->box.y, s->file->box.width, s->file->box.height};
    int eighths = fl_jpeg_scale(box.width, box.height, w->target, w->target);
    fl_view view = decode(w, s, box, eighths, from);
    double scale = eighths / 8.0;
    resize(w, &view,
           (fl_resize_spec){.x = box.x * scale - floor(box.x * scale),
                            .y = box.y * scale - floor(box.y * scale),
                            .width = box.width * scale,
                            .height = box.height * scale,
                            .out_width = w->target,
                            .out_height = w->target});
}

static void centre(worker *w, const sample *s, source from) {
    fl_view view = decode(w, s, s->centre, s->centre_eighths, from);
    double scale = s->centre_eighths / 8.0;
    fl_box window = {centre_start(s->resized_width, w->target), centre_start(s->resized_height, w->target), 0,
                     0};
    resize(w, &view,
           (fl_resize_spec){.x = -floor(s->centre.x * scale),
                            .y = -floor(s->centre.y * scale),
                            .width = s->file->width * scale,
                            .height = s->file->height * scale,
                            .out_width = s->resized_width,
                            .out_height = s->resized_height,
                            .window = window});
}

/* No flags: the accurate DCT and fancy upsampling, as fl_jpeg_baseline's. */
static void turbojpeg(worker *w, const picture *p) {
    size_t need = (size_t)p->width * p->height * 3;
    if (need > w->whole_size) {
        free(w->whole);
        if (!(w->whole = malloc(w->whole_size = need))) floor_die("no memory for an image", "TurboJPEG");
    }
    if (tjDecompress2(w->turbo, p->bytes, (unsigned long)p->size, w->whole, (int)p->width, 0, (int)p->height,
                      TJPF_RGB, 0))
        floor_die(tjGetErrorStr2(w->turbo), p->path);
}

static fl_view full(worker *w, const sample *s, source from) {
    return decode(w, s, (fl_box){0, 0, s->file->width, s->file->height}, 8, from);
}

void worker_compare(worker *w, const sample *s) {
    turbojpeg(w, s->file);
    fl_view view = full(w, s, UNMARKED);
    size_t row = (size_t)s->file->width * 3;
    bool same = view.width == s->file->width && view.height == s->file->height;
    for (size_t y = 0; same && y < view.height; y++)
        same = !memcmp(view.pixels + y * view.stride, w->whole + y * row, row);
    if (!same) floor_die("fl_jpeg_baseline makes other pixels than TurboJPEG", s->file->path);
}

static void floor_centre(worker *w, const sample *s) {
    const floor_box box = {s->centre.x, s->centre.y, s->centre.width, s->centre.height};
    floor_decode(w->floor, s->file, FLOOR_REGION, &box, (unsigned)s->centre_eighths);
}

void worker_run(worker *w, const sample *s, int mode) {
    const picture *p = s->file;
    const uint8_t *index;
    size_t size;
    fl_error err;
    switch (mode) {
    case FLOOR: floor_decode(w->floor, p, FLOOR_REGION, &p->box, floor_scale(&p->box, w->target)); break;
    case CROP: crop(w, s, MARKED); break;
    case CROP_UNMARKED: crop(w, s, UNMARKED); break;
    case REGION: {
        fl_box box = {p->box.x, p->box.y, p->box.width, p->box.height};
        decode(w, s, box, fl_jpeg_scale(box.width, box.height, w->target, w->target), MARKED);
        break;
    }
    case TURBOJPEG: turbojpeg(w, p); break;
    case FULL: full(w, s, UNMARKED); break;
    case FLOOR_CENTRE: floor_centre(w, s); break;
    case CENTRE: centre(w, s, MARKED); break;
    case CROP_DCT: crop(w, s, FORM); break;
    case CENTRE_DCT: centre(w, s, FORM); break;
    case FULL_DCT: full(w, s, FORM); break;
    case ENCODE_DCT:
        if (fl_jpeg_dct_encode(w->dct, p->bytes, p->size, UINT64_MAX, &index, &size, &err))
            floor_die(err.text, p->path);
        break;
    case WALK:
        if (!fl_jpeg_entropy_sound(w->entropy, p->bytes, p->size))
            floor_die("refused by fl_jpeg_entropy's walk", p->path);
        break;
    default: make_index(w, s, &index, &size); break;
    }
}
