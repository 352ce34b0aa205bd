/* The resizer: checks what it is asked, makes the tables, and streams rows through the two passes.
 *
 * NOTE [ resize: rows stream, in either order ]
 * No plane of the intermediate image exists. In Pillow's order, rows are resampled horizontally only when the vertical pass comes to
 * them, two at a time, into a ring of a few rows that stays in L1; each output row is then combined from the ring and goes to the sink.
 * The vertical axis' first[] never decreases (a vertical mirror is done where the row is stored), so a ring of taps + 2 rows
 * never overwrites a row that is still wanted.
 * The vertical pass costs a quarter of the horizontal one. When the image gets lower it is cheaper to shrink the columns first
 * and to resample only as many rows as come out: the other order, a pair of output rows at a time. For bilinear this is free to choose:
 * its weights are not negative, so each order's roundings move the exact result by at most 1, and the two differ by at most 1 but
 * where both passes tie (1 pixel in some 10 million: 2; a 16-bit row between the passes would mend it). Bicubic clips what overshoots
 * between the passes, so it keeps Pillow's order. The choice depends on the box and the output, not on the window, so that a window
 * equals the same part of the whole.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fl_resize_rows.h"

struct fl_resizer {
    fl_axis across, down;
    void *ring;        /* row r of the source is at slot r % slots */
    void *spare[2]; /* rows with the source's columns: copies of rows whose end a kernel would read beyond; or vertically resampled */
    void *line[2]; /* finished rows that the sink does not take as they are */
    void *rows; /* pointers to the rows that one output row is made of */
    size_t ring_room, spare_room[2], line_room[2], rows_room;
};

/* One call's facts, so that the steps below take one argument. */
typedef struct job {
    fl_resizer *resizer;
    const fl_view *view;
    const fl_sink *sink;
    const fl_kernels *kernels;
    const fl_axis *across, *down;
    uint32_t x, at_y; /* the window's left column and top row in the sink; the column is already mirrored */
    size_t n; /* bytes of a row of the window */
    bool direct; /* the source's rows need no horizontal pass */
    bool wide; /* between the passes, FL_WIDE_BITS */
    bool in_place; /* the sink takes finished rows as they are */
    size_t slots, pitch; /* the ring: rows, bytes from row to row */
    uint32_t next; /* the first source row that is not in the ring yet */
    uint32_t last; /* the last source row that any output needs */
} job;

static const fl_kernels *best_kernels(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &fl_kernels_avx2;
#endif
    return &fl_kernels_scalar;
}

static atomic_bool scalar_only; /* written by tests; read once at the start of a resize */

const char *fl_resize_dispatch(int best) {
    atomic_store(&scalar_only, !best);
    return best ? best_kernels()->name : fl_kernels_scalar.name;
}

fl_code fl_resizer_create(fl_resizer **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return fl_fail(err, FL_ENOMEM, "resize: no memory for %zu bytes", sizeof **out);
    return FL_OK;
}

void fl_resizer_free(fl_resizer *resizer) {
    if (resizer == NULL) return;
    fl_axis_free(&resizer->across);
    fl_axis_free(&resizer->down);
    free(resizer->ring);
    for (int i = 0; i < 2; i++) {
        free(resizer->spare[i]);
        free(resizer->line[i]);
    }
    free(resizer->rows);
    free(resizer);
}

/* A box edge may be this far outside by rounding of the caller's arithmetic, in pixels; it is then moved inside. */
static const double EDGE = 1e-6;

/* Whether the part of the box that the window shows lies inside the view, along one side. Then every output has a pixel within
 * 1/2 of its centre, and its weights cannot sum to 0. Written so that a NaN fails. */
static bool sees(double start, double length, uint32_t out, uint32_t from, uint32_t count, uint32_t source) {
    if (!(length > 0.0)) return false;
    const double scale = length / out;
    return start + from * scale >= -EDGE && start + ((double)from + count) * scale <= source + EDGE;
}

static fl_code check(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink, fl_error *err) {
    enum { SIDE_MAX = 1 << 24 }; /* row offsets in bytes, and their sums, stay far below a uint32 */
    if (view->pixels == NULL || view->width == 0 || view->height == 0 || view->width > SIDE_MAX || view->height > SIDE_MAX ||
        view->stride < (size_t)view->width * 3)
        return fl_fail(err, FL_EARG, "resize: a view of %u x %u pixels, %zu bytes a row", view->width, view->height, view->stride);
    if (spec->out_width == 0 || spec->out_height == 0 || spec->out_width > SIDE_MAX || spec->out_height > SIDE_MAX)
        return fl_fail(err, FL_EARG, "resize: an output of %u x %u pixels", spec->out_width, spec->out_height);
    if (spec->filter != FL_BILINEAR && spec->filter != FL_BICUBIC) return fl_fail(err, FL_EARG, "resize: no filter %d", (int)spec->filter);
    const fl_box *window = &spec->window;
    if (window->width > spec->out_width || window->x > spec->out_width - window->width || window->height > spec->out_height ||
        window->y > spec->out_height - window->height)
        return fl_fail(err, FL_EARG, "resize: the window (%u, %u) + %u x %u is not inside the %u x %u output", window->x, window->y,
                       window->width, window->height, spec->out_width, spec->out_height);
    if (!(sees(spec->x, spec->width, spec->out_width, window->x, window->width, view->width) &&
          sees(spec->y, spec->height, spec->out_height, window->y, window->height, view->height)))
        return fl_fail(err, FL_EARG, "resize: the box (%g, %g) + %g x %g is not inside the %u x %u view", spec->x, spec->y, spec->width,
                       spec->height, view->width, view->height);
    if (window->width > sink->width || spec->at_x > sink->width - window->width || window->height > sink->height ||
        spec->at_y > sink->height - window->height)
        return fl_fail(err, FL_EARG, "resize: a window of %u x %u at (%u, %u) is not inside the %u x %u sink", window->width,
                       window->height, spec->at_x, spec->at_y, sink->width, sink->height);
    if (sink->data == NULL || (unsigned)sink->dtype > FL_BF16 || (unsigned)sink->layout > FL_CHW ||
        (sink->dtype != FL_U8 && sink->lut == NULL))
        return fl_fail(err, FL_EARG, "resize: a sink of dtype %d and layout %d without %s", (int)sink->dtype, (int)sink->layout,
                       sink->data == NULL ? "data" : "a table");
    return FL_OK;
}

static fl_axis_key key_of(double start, double length, uint32_t source, uint32_t out, const fl_resize_spec *spec) {
    fl_axis_key key = {
        .start = start, .length = length, .source = source, .out = out, .filter = spec->filter, .antialias = spec->antialias};
    const double over = key.start + key.length - source;
    if (over > 0.0 && over <= EDGE) key.length -= over;
    return key;
}

static fl_code build_axes(fl_resizer *resizer, const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink, fl_error *err) {
    fl_axis_key across = key_of(spec->x, spec->width, view->width, spec->out_width, spec);
    across.begin = spec->window.x;
    across.count = spec->window.width;
    across.mirror = sink->hflip;
    across.horizontal = true;
    fl_axis_key down = key_of(spec->y, spec->height, view->height, spec->out_height, spec);
    down.begin = spec->window.y;
    down.count = spec->window.height;
    fl_code code = fl_axis_build(&resizer->across, &across, err);
    return code != FL_OK ? code : fl_axis_build(&resizer->down, &down, err);
}

static fl_code reserve(job *job, fl_error *err) {
    fl_resizer *resizer = job->resizer;
    const size_t row = (size_t)job->view->width * 3, spare = job->across->reach > row ? job->across->reach : row;
    job->slots = (size_t)job->down->taps + 2;
    job->pitch = (job->n * (job->wide ? sizeof(int16_t) : 1) + 63) / 64 * 64;
    fl_code code = fl_scratch(&resizer->rows, &resizer->rows_room, job->down->taps, sizeof(void *), err);
    if (code == FL_OK && !job->direct) code = fl_scratch(&resizer->ring, &resizer->ring_room, job->slots, job->pitch, err);
    for (int i = 0; i < 2 && code == FL_OK; i++) {
        if (!job->direct) code = fl_scratch(&resizer->spare[i], &resizer->spare_room[i], spare, 1, err);
        if (code == FL_OK && !job->in_place) code = fl_scratch(&resizer->line[i], &resizer->line_room[i], job->n, 1, err);
    }
    return code;
}

/* Source row r, or a copy of it when a horizontal kernel would read beyond what the view owns. */
static const uint8_t *source_row(const job *job, uint32_t r, int spare) {
    const fl_view *view = job->view;
    const uint8_t *row = view->pixels + r * view->stride;
    const size_t bytes = (size_t)view->width * 3, reach = job->across->reach;
    const uint32_t below = view->height - 1 - r;
    if (reach <= below * view->stride + bytes + view->tail) return row;
    uint8_t *copy = job->resizer->spare[spare];
    memcpy(copy, row, bytes);
    memset(copy + bytes, 0, reach - bytes);
    return copy;
}

static void *ring_row(const job *job, uint32_t r) { return (char *)job->resizer->ring + r % job->slots * job->pitch; }

/* Brings the ring up to source row `upto`. */
static void advance(job *job, uint32_t upto) {
    while (job->next <= upto) {
        const uint32_t r = job->next, other = r < job->last && !job->wide ? r + 1 : r;
        if (job->wide) {
            fl_horizontal_wide(job->across, source_row(job, r, 0), ring_row(job, r));
        } else {
            const uint8_t *const src[2] = {source_row(job, r, 0), source_row(job, other, 1)};
            uint8_t *const dst[2] = {ring_row(job, r), ring_row(job, other)};
            job->kernels->horizontal(job->across, src, dst);
        }
        job->next = other + 1;
    }
}

/* Where finished output row i of the window is written: in the sink, or in line `spare` for store_row. */
static uint8_t *finished_row(const job *job, uint32_t y, int spare) {
    return job->in_place ? (uint8_t *)job->sink->data + ((size_t)y * job->sink->width + job->x) * 3 : job->resizer->line[spare];
}

static uint32_t sink_y(const job *job, uint32_t i) { return job->sink->vflip ? job->sink->height - 1 - job->at_y - i : job->at_y + i; }

static void store_row(const job *job, uint32_t y, const uint8_t *rgb) { fl_sink_row(job->sink, job->kernels, job->x, y, rgb, job->n / 3); }

static const int16_t *coef_of(const fl_axis *axis, uint32_t i) { return axis->coef + (size_t)i * axis->stride; }

/* Pillow's order. */
static void run_across_first(job *job) {
    const fl_axis *down = job->down;
    const void **rows = job->resizer->rows;
    const size_t left = job->direct ? (size_t)(job->across->key.start + job->across->key.begin) * 3 : 0;
    for (uint32_t i = 0; i < down->key.count; i++) {
        const uint32_t first = down->first[i], y = sink_y(job, i);
        if (!job->direct) {
            job->next = job->next > first ? job->next : first;
            advance(job, first + down->taps - 1);
        }
        for (uint32_t k = 0; k < down->taps; k++)
            rows[k] = job->direct ? job->view->pixels + (first + k) * job->view->stride + left : ring_row(job, first + k);
        if (down->identity) {
            store_row(job, y, rows[0]);
            continue;
        }
        uint8_t *line = finished_row(job, y, 0);
        if (job->wide) fl_vertical_wide(down, coef_of(down, i), (const int16_t *const *)rows, line, job->n);
        else job->kernels->vertical(down, coef_of(down, i), (const uint8_t *const *)rows, line, job->n);
        if (!job->in_place) store_row(job, y, line);
    }
}

/* The other order: only the columns that the horizontal pass looks at, then two rows across at once. */
static void run_down_first(const job *job) {
    const fl_axis *down = job->down, *across = job->across;
    const void **rows = job->resizer->rows;
    const size_t left = (size_t)across->low * 3, n = (size_t)(across->high - across->low) * 3;
    uint8_t *const spare[2] = {job->resizer->spare[0], job->resizer->spare[1]};
    if (across->reach > left + n) /* what kernels read there counts for nothing, but is to be defined */
        for (int j = 0; j < 2; j++) memset(spare[j] + left + n, 0, across->reach - left - n);
    for (uint32_t i = 0; i < down->key.count; i += 2) {
        const int m = down->key.count - i < 2 ? 1 : 2;
        uint8_t *line[2];
        for (int j = 0; j < m; j++) {
            for (uint32_t k = 0; k < down->taps; k++) rows[k] = job->view->pixels + (down->first[i + j] + k) * job->view->stride + left;
            job->kernels->vertical(down, coef_of(down, i + j), (const uint8_t *const *)rows, spare[j] + left, n);
            line[j] = finished_row(job, sink_y(job, i + j), j);
        }
        const uint8_t *const src[2] = {spare[0], spare[m - 1]};
        uint8_t *const dst[2] = {line[0], line[m - 1]};
        job->kernels->horizontal(across, src, dst);
        for (int j = 0; j < m && !job->in_place; j++) store_row(job, sink_y(job, i + j), line[j]);
    }
}

/* Whether shrinking the rows' number first saves more of the horizontal pass than it adds to the vertical one. */
static bool down_first(const fl_resize_spec *spec, const fl_axis *across, const fl_axis *down) {
    if (spec->filter != FL_BILINEAR || across->identity || down->identity) return false;
    return 4.0 * spec->out_width * (spec->height - spec->out_height) > spec->out_height * (spec->width - spec->out_width);
}

fl_code fl_resize(fl_resizer *resizer, const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink, fl_error *err) {
    fl_code code = check(view, spec, sink, err);
    if (code != FL_OK) return code;
    if (spec->window.width == 0 || spec->window.height == 0) return FL_OK;
    code = build_axes(resizer, view, spec, sink, err);
    if (code != FL_OK) return code;

    const fl_axis *across = &resizer->across, *down = &resizer->down;
    job job = {.resizer = resizer, .view = view, .sink = sink, .across = across, .down = down};
    job.kernels = atomic_load(&scalar_only) ? &fl_kernels_scalar : best_kernels();
    job.x = sink->hflip ? sink->width - spec->at_x - spec->window.width : spec->at_x;
    job.at_y = spec->at_y;
    job.n = (size_t)spec->window.width * 3;
    job.direct = across->identity && !sink->hflip;
    job.wide = spec->filter == FL_BICUBIC && !spec->antialias && !across->identity && !down->identity;
    job.in_place = sink->dtype == FL_U8 && sink->layout == FL_HWC;
    job.last = down->first[down->key.count - 1] + down->taps - 1;
    code = reserve(&job, err);
    if (code != FL_OK) return code;
    if (down_first(spec, across, down)) run_down_first(&job);
    else run_across_first(&job);
    return FL_OK;
}
