/* The resizer: checks what it is asked, makes the tables, and streams rows through the two passes.
 *
 * NOTE [ resize: rows stream, in either order ]
 * No plane of the intermediate image exists. FL_RESIZE_QUAD makes four output rows of the source's columns,
 * and at once takes them across. In FL_RESIZE_LONG, Pillow's order, rows are resampled horizontally only when
 * the vertical pass comes to them, two at a time, into a ring of a few rows that stays in L1; each output row
 * is then combined from the ring and goes to the sink. The vertical axis' first[] never decreases (a vertical
 * mirror is done where the row is stored), so a ring of taps + 2 rows never overwrites a row that is still
 * wanted. Antialiased bicubic clips between the passes what overshoots, so its order counts, and is that of
 * every Pillow before 13. The choice depends on the box and the output, not on the window, so that a window
 * equals the same part of the whole.
 */
#include "resize/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "resize/axis.h"
#include "resize/sink.h"

struct fl_resizer {
    fl_resize_axis across, down;
    fl_resize_room room;
    /* FL_RESIZE_QUAD: quads of the columns in use. FL_RESIZE_LONG: a ring, row r of the source at slot r
     * % slots */
    fl_buffer between;
    fl_buffer spare[2]; /* copies of rows whose end a kernel would read beyond */
    fl_buffer rows; /* pointers to the rows that one output row is made of */
};

/* One call's facts, so that the steps below take one argument. */
typedef struct job {
    fl_resizer *resizer;
    const fl_view *view;
    const fl_resize_kernels *kernels;
    const fl_resize_axis *across, *down;
    fl_resize_rows rows; /* of the window, finished */
    size_t n; /* bytes of a row of the window */
    fl_resize_row_form form; /* of FL_RESIZE_LONG's rows between the passes */
    size_t slots, pitch; /* the ring: rows, bytes from row to row */
    uint32_t next; /* the first source row that is not in the ring yet */
    uint32_t last; /* the last source row that any output needs */
} job;

fl_code fl_resizer_create(fl_resizer **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return fl_fail(err, FL_ENOMEM, "resize: no memory for %zu bytes", sizeof **out);
    return FL_OK;
}

void fl_resizer_free(fl_resizer *resizer) {
    if (resizer == NULL) return;
    fl_resize_axis_free(&resizer->across);
    fl_resize_axis_free(&resizer->down);
    fl_buffer_free(&resizer->between);
    for (int i = 0; i < 2; i++) fl_buffer_free(&resizer->spare[i]);
    fl_resize_room_free(&resizer->room);
    fl_buffer_free(&resizer->rows);
    free(resizer);
}

/* True if the part of the box that the window shows lies inside the view, along one side. Then every output
 * has a pixel within 1/2 of its centre, and its weights cannot sum to 0. Written so that a NaN fails. */
static bool sees(double start, double length, uint32_t out, uint32_t from, uint32_t count, uint32_t source) {
    if (!(length > 0.0)) return false;
    const double scale = length / out;
    return start + from * scale >= -FL_RESIZE_EDGE &&
           start + ((double)from + count) * scale <= source + FL_RESIZE_EDGE;
}

fl_code fl_resize_check_out(uint32_t width, uint32_t height, const fl_box *window, fl_error *err) {
    if (width == 0 || height == 0 || width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX)
        return fl_fail(err, FL_EARG, "resize: an output of %u x %u pixels", width, height);
    if (window->width > width || window->x > width - window->width || window->height > height ||
        window->y > height - window->height)
        return fl_fail(err, FL_EARG, "resize: the window (%u, %u) + %u x %u is not inside the %u x %u output",
                       window->x, window->y, window->width, window->height, width, height);
    return FL_OK;
}

fl_code fl_resize_check_ends(const fl_view *view, const fl_sink *sink, fl_error *err) {
    if (view->pixels == NULL || view->width == 0 || view->height == 0 || view->width > FL_IMAGE_SIDE_MAX ||
        view->height > FL_IMAGE_SIDE_MAX || view->stride < view->width * fl_view_pixel(view))
        return fl_fail(err, FL_EARG, "resize: a view of %u x %u pixels, %zu bytes a row", view->width,
                       view->height, view->stride);
    if (fl_sink_pitch(sink) < sink->width || fl_sink_plane(sink) < fl_sink_pitch(sink) * sink->height)
        return fl_fail(err, FL_EARG,
                       "resize: a sink of %u x %u pixels with %u from row to row and %zu from plane to plane",
                       sink->width, sink->height, sink->pitch, sink->plane);
    if (sink->channels != view->channels || sink->depth != view->depth)
        return fl_fail(err, FL_EARG, "resize: a sink of %d channels of %d bytes for a view of %d of %d",
                       sink->channels, sink->depth, view->channels, view->depth);
    if (sink->data == NULL || (unsigned)sink->layout > FL_PATCHES || (unsigned)sink->dtype > FL_U16 ||
        (sink->dtype != FL_U8 && sink->dtype != FL_U16 && sink->lut == NULL))
        return fl_fail(err, FL_EARG, "resize: a sink of dtype %d and layout %d without %s", (int)sink->dtype,
                       (int)sink->layout, sink->data == NULL ? "data" : "a table");
    const fl_patches *p = &sink->patches;
    const uint64_t by = (uint64_t)p->side * p->merge;
    if (sink->layout == FL_PATCHES &&
        (!by || !p->frames || sink->channels || sink->width % by || sink->height % by))
        return fl_fail(err, FL_EARG, "resize: %u x %u pixels in %u x %u patches of %u pixels", sink->width,
                       sink->height, p->merge, p->merge, p->side);
    return FL_OK;
}

fl_code fl_resize_check(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink, fl_error *err) {
    const fl_box *window = &spec->window;
    fl_code code = fl_resize_check_ends(view, sink, err);
    if (!code) code = fl_resize_check_out(spec->out_width, spec->out_height, window, err);
    if (code) return code;
    if (spec->filter != FL_RESIZE_BILINEAR && spec->filter != FL_RESIZE_BICUBIC)
        return fl_fail(err, FL_EARG, "resize: no filter %d", (int)spec->filter);
    if (!(sees(spec->x, spec->width, spec->out_width, window->x, window->width, view->width) &&
          sees(spec->y, spec->height, spec->out_height, window->y, window->height, view->height)))
        return fl_fail(err, FL_EARG, "resize: the box (%g, %g) + %g x %g is not inside the %u x %u view",
                       spec->x, spec->y, spec->width, spec->height, view->width, view->height);
    if (window->width > sink->width || spec->at_x > sink->width - window->width ||
        window->height > sink->height || spec->at_y > sink->height - window->height)
        return fl_fail(err, FL_EARG, "resize: a window of %u x %u at (%u, %u) is not inside the %u x %u sink",
                       window->width, window->height, spec->at_x, spec->at_y, sink->width, sink->height);
    return FL_OK;
}

static void make_keys(const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink,
                      fl_resize_axis_key *across, fl_resize_axis_key *down) {
    fl_resize_axis_keys(view, spec, sink, across, down);
    across->horizontal = true;
    const bool quad = spec->filter == FL_RESIZE_BILINEAR &&
                      fl_resize_axis_width(across) <= FL_RESIZE_QUAD_TAPS &&
                      fl_resize_axis_width(down) <= FL_RESIZE_QUAD_TAPS;
    across->sum = down->sum = quad ? FL_RESIZE_QUAD : FL_RESIZE_LONG;
}

static void run_copy(const job *job, const fl_resize_axis_key *across, const fl_resize_axis_key *down) {
    const fl_view *view = job->view;
    const uint8_t *row = view->pixels + (size_t)(down->start + down->begin) * view->stride +
                         (size_t)(across->start + across->begin) * 3;
    for (uint32_t i = 0; i < down->count; i++, row += view->stride) {
        uint8_t *line = across->mirror ? fl_resize_rows_at(&job->rows, i, 0) : NULL;
        if (line) job->kernels->mirror(row, line, job->n / 3);
        fl_resize_rows_store(&job->rows, i, line ? line : row);
    }
}

static const int16_t *coef_of(const fl_resize_axis *axis, uint32_t i) {
    return axis->coef + (size_t)i * axis->stride;
}

static fl_code run_quads(const job *job, fl_error *err) {
    const fl_resize_axis *down = job->down, *across = job->across;
    fl_resizer *resizer = job->resizer;
    const size_t columns = across->high - across->low;
    const fl_code code =
        fl_resize_fit(&resizer->between, columns, FL_RESIZE_QUAD_LANES * sizeof(int16_t), err);
    if (code != FL_OK) return code;
    int16_t *quads = resizer->between.bytes;
    for (uint32_t i = 0; i < down->key.count; i += 4) {
        fl_resize_quad_rows rows = {.stride = job->view->stride, .taps = down->taps};
        uint8_t *line[4];
        for (uint32_t j = 0; j < 4; j++) { /* the last row stands in for those beyond it */
            const uint32_t at = i + j < down->key.count ? i + j : down->key.count - 1;
            rows.row[j] = job->view->pixels + down->first[at] * job->view->stride + (size_t)across->low * 3;
            rows.coef[j] = coef_of(down, at);
            line[j] = fl_resize_rows_at(&job->rows, at, (int)(at - i));
        }
        for (int j = 0; j < 4 && job->rows.in_place;
             j++) /* the batch is not in the cache: it is fetched while rows go down */
            for (size_t at = 0; at < job->n; at += 64) __builtin_prefetch(line[j] + at, 1);
        job->kernels->quad_down(&rows, quads, columns);
        job->kernels->quad_across(across, quads, line);
        for (uint32_t j = 0; j < 4 && i + j < down->key.count; j++)
            fl_resize_rows_store(&job->rows, i + j, line[j]);
    }
    return FL_OK;
}

/* Source row r, or a copy of it when a horizontal kernel would read beyond what the view owns. */
static const uint8_t *source_row(const job *job, uint32_t r, int spare) {
    const fl_view *view = job->view;
    const uint8_t *row = view->pixels + r * view->stride;
    const size_t bytes = (size_t)view->width * 3, reach = job->across->reach;
    const uint32_t below = view->height - 1 - r;
    if (reach <= below * view->stride + bytes + view->tail) return row;
    uint8_t *copy = job->resizer->spare[spare].bytes;
    memcpy(copy, row, bytes);
    memset(copy + bytes, 0, reach - bytes);
    return copy;
}

static void *ring_row(const job *job, uint32_t r) {
    return (char *)job->resizer->between.bytes + r % job->slots * job->pitch;
}

/* Brings the ring up to source row `upto`. */
static void advance(job *job, uint32_t upto) {
    while (job->next <= upto) {
        const uint32_t r = job->next, other = r < job->last ? r + 1 : r;
        const uint8_t *const src[2] = {source_row(job, r, 0), source_row(job, other, 1)};
        int16_t *const dst[2] = {ring_row(job, r), ring_row(job, other)};
        job->kernels->long_across(job->across, job->form, src, dst);
        job->next = other + 1;
    }
}

static fl_code reserve_ring(job *job, fl_error *err) {
    fl_resizer *resizer = job->resizer;
    const size_t row = (size_t)job->view->width * 3,
                 spare = job->across->reach > row ? job->across->reach : row;
    job->slots = (size_t)job->down->taps + 2;
    job->pitch = (job->n * sizeof(int16_t) + 63) / 64 * 64;
    fl_code code = fl_resize_fit(&resizer->rows, job->down->taps, sizeof(void *), err);
    if (code == FL_OK) code = fl_resize_fit(&resizer->between, job->slots, job->pitch, err);
    for (int i = 0; i < 2 && code == FL_OK; i++) code = fl_resize_fit(&resizer->spare[i], spare, 1, err);
    return code;
}

static fl_code run_long(job *job, fl_error *err) {
    const fl_resize_axis *down = job->down;
    const fl_code code = reserve_ring(job, err);
    if (code != FL_OK) return code;
    const void **rows = job->resizer->rows.bytes;
    job->last = down->first[down->key.count - 1] + down->taps - 1;
    for (uint32_t i = 0; i < down->key.count; i++) {
        const uint32_t first = down->first[i];
        job->next = job->next > first ? job->next : first;
        advance(job, first + down->taps - 1);
        for (uint32_t k = 0; k < down->taps; k++) rows[k] = ring_row(job, first + k);
        uint8_t *line = fl_resize_rows_at(&job->rows, i, 0);
        job->kernels->long_down(down, job->form, coef_of(down, i), (const int16_t *const *)rows, line,
                                job->n);
        fl_resize_rows_store(&job->rows, i, line);
    }
    return FL_OK;
}

/* Antialiased bicubic is clipped as Pillow's; what torch interpolates is not, and overshoots by less than
 * 64. */
static fl_resize_row_form form_of(const fl_resize_spec *spec, const fl_resize_axis_key *down) {
    const int bits = fl_resize_row_bits(down);
    return spec->antialias ? (fl_resize_row_form){bits, 0, 255 << bits}
                           : (fl_resize_row_form){bits, -32768, 32767};
}

fl_code fl_resize(fl_resizer *resizer, const fl_view *view, const fl_resize_spec *spec, const fl_sink *sink,
                  fl_error *err) {
    fl_code code = fl_resize_check(view, spec, sink, err);
    if (code != FL_OK) return code;
    if (view->channels || sink->dtype == FL_U16)
        return fl_fail(err, FL_EARG, "resize: planes, where RGB is meant");
    if (spec->window.width == 0 || spec->window.height == 0) return FL_OK;

    job job = {.resizer = resizer, .view = view, .across = &resizer->across, .down = &resizer->down};
    const fl_box at = {spec->at_x, spec->at_y, spec->window.width, spec->window.height};
    code = fl_resize_rows_start(&job.rows, sink, &at, &resizer->room, err);
    if (code != FL_OK) return code;
    job.kernels = job.rows.kernels;
    job.n = (size_t)spec->window.width * 3;
    fl_resize_axis_key across, down;
    make_keys(view, spec, sink, &across, &down);
    if (fl_resize_axis_copies(&across) && fl_resize_axis_copies(&down)) {
        run_copy(&job, &across, &down);
        return FL_OK;
    }
    code = fl_resize_axis_build(&resizer->across, &across, err);
    if (code == FL_OK) code = fl_resize_axis_build(&resizer->down, &down, err);
    if (code != FL_OK) return code;
    job.form = form_of(spec, &down);
    return across.sum == FL_RESIZE_QUAD ? run_quads(&job, err) : run_long(&job, err);
}
