/* NOTE [ resize: rows stream, in either order ] holds here too: across first, rows wait in a ring; down
 * first, four output rows of the source's columns are made and at once taken across. */
#include "resize/exact.h"

#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/simd.h"
#include "resize/axis.h"
#include "resize/exact_avx2.h"
#include "resize/exact_scalar.h"
#include "resize/resize.h"
#include "resize/sink.h"

enum { ROWS = FL_RESIZE_EXACT_ROWS, TAIL = FL_RESIZE_EXACT_TAIL, NO_PIXEL = UINT32_MAX };
_Static_assert((int)ROWS == (int)FL_RESIZE_LINES, "rows that go across together are finished together");

struct fl_resize_exact {
    fl_resize_exact_axis across, down;
    fl_resize_room room;
    fl_buffer between; /* across first: a ring, row r of the image at slot r % slots; down first: ROWS rows */
    fl_buffer spare; /* copies of ROWS rows whose end a kernel would read beyond */
    fl_buffer taps; /* pointers to the rows that one output row is made of */
    fl_buffer columns; /* nearest: the pixel that each output is */
};

/* One call's facts. */
typedef struct job {
    fl_resize_exact *exact;
    const fl_view *view;
    const fl_resize_exact_spec *spec;
    const fl_resize_exact_kernels *kernels;
    const fl_resize_exact_axis *across, *down;
    fl_resize_rows rows; /* of the window, finished */
    uint32_t channels;
    size_t source_bytes; /* of the columns in use of a source row */
    size_t slots, pitch; /* the ring: rows, bytes from row to row */
    uint32_t next; /* the first source row that is not in the ring yet */
} job;

fl_code fl_resize_exact_create(fl_resize_exact **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? FL_OK : fl_fail(err, FL_ENOMEM, "resize: no memory for %zu bytes", sizeof **out);
}

void fl_resize_exact_free(fl_resize_exact *exact) {
    if (!exact) return;
    fl_resize_exact_axis_free(&exact->across);
    fl_resize_exact_axis_free(&exact->down);
    fl_buffer_free(&exact->between);
    fl_buffer_free(&exact->spare);
    fl_resize_room_free(&exact->room);
    fl_buffer_free(&exact->taps);
    fl_buffer_free(&exact->columns);
    free(exact);
}

/* ---- Pillow's decisions ---- */

/* Written so that a NaN fails. */
static bool inside(float begin, float end, uint32_t size) {
    return begin >= 0.0f && end <= (float)size && end - begin >= 0.0f;
}

static fl_code check_spec(const fl_resize_exact_spec *spec, fl_error *err) {
    const fl_code code = fl_resize_check_out(spec->out_width, spec->out_height, &spec->window, err);
    if (code) return code;
    if (!spec->image_width || !spec->image_height || spec->image_width > FL_IMAGE_SIDE_MAX ||
        spec->image_height > FL_IMAGE_SIDE_MAX)
        return fl_fail(err, FL_EARG, "resize: an image of %u x %u pixels", spec->image_width,
                       spec->image_height);
    if ((unsigned)spec->filter > FL_RESIZE_EXACT_MKS2021 || (unsigned)spec->order > FL_RESIZE_BY_SHRINK)
        return fl_fail(err, FL_EARG, "resize: no filter %d or no order %d", (int)spec->filter,
                       (int)spec->order);
    if (!inside(spec->left, spec->right, spec->image_width) ||
        !inside(spec->top, spec->bottom, spec->image_height))
        return fl_fail(err, FL_EARG, "resize: the box (%g, %g, %g, %g) is not inside the %u x %u image",
                       spec->left, spec->top, spec->right, spec->bottom, spec->image_width,
                       spec->image_height);
    return FL_OK;
}

static bool equals(float begin, float end, uint32_t out) {
    return begin == (float)(uint32_t)begin && end - begin == (float)out;
}

static bool crops(const fl_resize_exact_spec *spec) {
    return equals(spec->left, spec->right, spec->out_width) &&
           equals(spec->top, spec->bottom, spec->out_height);
}

static bool goes_across_first(const fl_resize_exact_spec *spec) {
    if (spec->order != FL_RESIZE_BY_SHRINK) return spec->order == FL_RESIZE_ACROSS_FIRST;
    const int64_t narrower = (int64_t)spec->image_width - spec->out_width,
                  lower = (int64_t)spec->image_height - spec->out_height;
    return !(lower > 0 && lower > 2 * narrower);
}

static fl_resize_exact_key key_of(float begin, float end, uint32_t source, uint32_t out,
                                  const fl_resize_exact_spec *spec) {
    const bool left_out = out == source && begin == 0.0f && end == (float)out;
    return (fl_resize_exact_key){.begin = begin,
                                 .end = end,
                                 .source = source,
                                 .out = out,
                                 .filter = spec->filter,
                                 .copies = left_out || crops(spec)};
}

static void make_keys(const fl_resize_exact_spec *spec, bool mirror, fl_resize_exact_key *across,
                      fl_resize_exact_key *down) {
    *across = key_of(spec->left, spec->right, spec->image_width, spec->out_width, spec);
    across->from = spec->window.x;
    across->count = spec->window.width;
    across->mirror = mirror;
    *down = key_of(spec->top, spec->bottom, spec->image_height, spec->out_height, spec);
    down->from = spec->window.y;
    down->count = spec->window.height;
}

/* ---- nearest ---- */

/* Writes the pixel that each wanted output is, or NO_PIXEL, where `out` is not NULL; and their range. */
static void nearest(const fl_resize_exact_key *key, uint32_t *out, uint32_t *low, uint32_t *high) {
    const float length = key->end - key->begin;
    const double step = (double)length / key->out;
    double at = key->begin + step * 0.5;
    *low = UINT32_MAX, *high = 0;
    for (uint32_t i = 0; i < key->from + key->count; i++, at += step) {
        if (i < key->from) continue;
        const uint32_t pixel = at < key->source ? (uint32_t)at : NO_PIXEL, entry = i - key->from;
        if (out) out[key->mirror ? key->count - 1 - entry : entry] = pixel;
        if (pixel == NO_PIXEL) continue;
        *low = pixel < *low ? pixel : *low;
        *high = pixel >= *high ? pixel + 1 : *high;
    }
    if (!*high) *low = 0;
}

static void range_of(const fl_resize_exact_key *key, uint32_t *low, uint32_t *high) {
    if (key->filter == FL_RESIZE_EXACT_NEAREST && !key->copies) nearest(key, NULL, low, high);
    else fl_resize_exact_range(key, low, high);
}

fl_code fl_resize_exact_reads(const fl_resize_exact_spec *spec, fl_box *box, fl_error *err) {
    *box = (fl_box){0, 0, 0, 0};
    const fl_code code = check_spec(spec, err);
    if (code || !spec->window.width || !spec->window.height) return code;
    fl_resize_exact_key across, down;
    make_keys(spec, false, &across, &down);
    uint32_t right, bottom;
    range_of(&across, &box->x, &right);
    range_of(&down, &box->y, &bottom);
    box->width = right - box->x;
    box->height = bottom - box->y;
    return FL_OK;
}

/* ---- rows of the source ---- */

/* The first pixel in use of the image's row r. */
static const uint8_t *row_of(const job *job, uint32_t r, uint32_t column) {
    const size_t y = (size_t)(job->spec->image_y + r), x = (size_t)(job->spec->image_x + column);
    return job->view->pixels + y * job->view->stride + x * job->channels;
}

/* The same, or a copy of it when a kernel would read beyond what the view owns. */
static const uint8_t *source_row(const job *job, uint32_t r, int spare) {
    const fl_view *view = job->view;
    const uint8_t *row = row_of(job, r, job->across->low);
    const size_t before = (size_t)(row - view->pixels);
    const size_t owned = (view->height - 1) * view->stride + (size_t)view->width * job->channels + view->tail;
    if (before + job->source_bytes + TAIL <= owned) return row;
    uint8_t *copy = (uint8_t *)job->exact->spare.bytes + (size_t)spare * (job->source_bytes + TAIL);
    memcpy(copy, row, job->source_bytes);
    memset(copy + job->source_bytes, 0, TAIL);
    return copy;
}

static void go_across(const job *job, const uint8_t *const *src, uint8_t *const *dst) {
    if (job->channels == 1) job->kernels->across_grey(job->across, src, dst);
    else job->kernels->across(job->across, src, dst);
}

static const int16_t *coef_of(const fl_resize_exact_axis *axis, uint32_t i) {
    return axis->coef + (size_t)i * 2 * axis->taps;
}

/* Output row i of the source's columns in use. */
static void go_down(const job *job, uint32_t i, uint8_t *dst) {
    const fl_resize_exact_axis *down = job->down;
    const uint8_t **taps = job->exact->taps.bytes;
    for (uint32_t k = 0; k < down->taps; k++) {
        const uint32_t r = down->first[i] + k;
        taps[k] = row_of(job, r < down->high ? r : down->high - 1, job->across->low);
    }
    job->kernels->down(coef_of(down, i), down->taps, taps, dst, job->source_bytes);
}

/* ---- ways through the passes ---- */

static void run_down(const job *job) {
    for (uint32_t i = 0; i < job->down->key.count; i++) {
        uint8_t *line = fl_resize_rows_at(&job->rows, i, 0);
        go_down(job, i, line);
        fl_resize_rows_store(&job->rows, i, line);
    }
}

static size_t made_pitch(const job *job) { return (job->source_bytes + TAIL + 63) / 64 * 64; }

/* Output row i of the source's columns in use, as row j of `between`. */
static const uint8_t *made_row(const job *job, uint32_t i, uint32_t j, bool make) {
    uint8_t *row = (uint8_t *)job->exact->between.bytes + j * made_pitch(job);
    if (make) go_down(job, i, row);
    return row;
}

/* ROWS output rows at a time, made of rows that are the source's or, down first, were just made. The last
 * stands in for those beyond it. */
static fl_code run_across(const job *job, bool down_first, fl_error *err) {
    const fl_resize_exact_axis *down = job->down;
    const fl_code code = down_first ? fl_resize_fit(&job->exact->between, ROWS, made_pitch(job), err) : FL_OK;
    if (code) return code;
    for (uint32_t i = 0; i < down->key.count; i += ROWS) {
        const uint8_t *src[ROWS];
        uint8_t *line[ROWS];
        for (uint32_t j = 0; j < ROWS; j++) {
            const uint32_t at = i + j < down->key.count ? i + j : down->key.count - 1;
            src[j] = down_first ? made_row(job, at, at - i, at == i + j)
                                : source_row(job, down->first[at], (int)(at - i));
            line[j] = fl_resize_rows_at(&job->rows, at, (int)(at - i));
        }
        go_across(job, src, line);
        for (uint32_t j = 0; j < ROWS && i + j < down->key.count; j++)
            fl_resize_rows_store(&job->rows, i + j, line[j]);
    }
    return FL_OK;
}

static uint8_t *ring_row(const job *job, uint32_t r) {
    return (uint8_t *)job->exact->between.bytes + r % job->slots * job->pitch;
}

/* Brings the ring up to source row `upto`. */
static void advance(job *job, uint32_t upto) {
    while (job->next <= upto) {
        const uint8_t *src[ROWS];
        uint8_t *dst[ROWS];
        for (uint32_t j = 0; j < ROWS; j++) {
            const uint32_t r = job->next + j < job->down->high ? job->next + j : job->down->high - 1;
            src[j] = source_row(job, r, (int)j);
            dst[j] = ring_row(job, r);
        }
        go_across(job, src, dst);
        job->next += ROWS;
    }
}

static fl_code run_across_first(job *job, fl_error *err) {
    const fl_resize_exact_axis *down = job->down;
    const size_t n = (size_t)job->rows.n * job->channels;
    job->slots = (size_t)down->taps + ROWS;
    job->pitch = (n + 63) / 64 * 64;
    const fl_code code = fl_resize_fit(&job->exact->between, job->slots, job->pitch, err);
    if (code) return code;
    const uint8_t **taps = job->exact->taps.bytes;
    for (uint32_t i = 0; i < down->key.count; i++) {
        const uint32_t first = down->first[i],
                       last = first + down->taps < down->high ? first + down->taps - 1 : down->high - 1;
        job->next = job->next > first ? job->next : first;
        advance(job, last);
        for (uint32_t k = 0; k < down->taps; k++)
            taps[k] = ring_row(job, first + k < last ? first + k : last);
        uint8_t *line = fl_resize_rows_at(&job->rows, i, 0);
        job->kernels->down(coef_of(down, i), down->taps, taps, line, n);
        fl_resize_rows_store(&job->rows, i, line);
    }
    return FL_OK;
}

static void run_black(const job *job) {
    for (uint32_t i = 0; i < job->spec->window.height; i++) {
        uint8_t *line = fl_resize_rows_at(&job->rows, i, 0);
        memset(line, 0, (size_t)job->rows.n * job->channels);
        fl_resize_rows_store(&job->rows, i, line);
    }
}

static void mirror(const job *job, const uint8_t *row, uint8_t *line) {
    if (job->channels == 3) job->rows.kernels->mirror(row, line, job->rows.n);
    else
        for (uint32_t i = 0; i < job->rows.n; i++) line[i] = row[job->rows.n - 1 - i];
}

static void run_copy(const job *job, uint32_t left, uint32_t top) {
    for (uint32_t i = 0; i < job->spec->window.height; i++) {
        const uint8_t *row = row_of(job, top + i, left);
        uint8_t *line = job->rows.sink->hflip ? fl_resize_rows_at(&job->rows, i, 0) : NULL;
        if (line) mirror(job, row, line);
        fl_resize_rows_store(&job->rows, i, line ? line : row);
    }
}

FL_INLINE void pick(const uint8_t *row, const uint32_t *columns, uint8_t *line, uint32_t n, size_t channels) {
    for (uint32_t i = 0; i < n; i++, line += channels)
        for (size_t c = 0; c < channels; c++)
            line[c] = columns[i] == NO_PIXEL ? 0 : row[columns[i] * channels + c];
}

static void pick_rows(const job *job, const uint32_t *columns, uint32_t left, const uint32_t *lines) {
    for (uint32_t i = 0; i < job->spec->window.height; i++) {
        uint8_t *line = fl_resize_rows_at(&job->rows, i, 0);
        if (lines[i] == NO_PIXEL) memset(line, 0, (size_t)job->rows.n * job->channels);
        else if (job->channels == 3) pick(row_of(job, lines[i], left), columns, line, job->rows.n, 3);
        else pick(row_of(job, lines[i], left), columns, line, job->rows.n, 1);
        fl_resize_rows_store(&job->rows, i, line);
    }
}

/* ---- the whole ---- */

static fl_code check_part(const job *job, const fl_box *reads, fl_error *err) {
    const fl_resize_exact_spec *spec = job->spec;
    const int64_t x = spec->image_x + reads->x, y = spec->image_y + reads->y;
    if (x >= 0 && y >= 0 && x + reads->width <= job->view->width && y + reads->height <= job->view->height)
        return FL_OK;
    return fl_fail(err, FL_EARG,
                   "resize: the view of %u x %u pixels lacks some of (%u, %u) + %u x %u of the image that "
                   "begins at (%lld, %lld)",
                   job->view->width, job->view->height, reads->x, reads->y, reads->width, reads->height,
                   (long long)spec->image_x, (long long)spec->image_y);
}

static fl_code run_nearest(job *job, const fl_resize_exact_key *across, const fl_resize_exact_key *down,
                           fl_error *err) {
    fl_code code =
        fl_resize_fit(&job->exact->columns, (size_t)across->count + down->count, sizeof(uint32_t), err);
    if (code) return code;
    uint32_t *columns = job->exact->columns.bytes, *lines = columns + across->count, right, bottom;
    fl_box reads;
    nearest(across, columns, &reads.x, &right);
    nearest(down, lines, &reads.y, &bottom);
    reads.width = right - reads.x;
    reads.height = bottom - reads.y;
    code = check_part(job, &reads, err);
    if (code) return code;
    for (uint32_t i = 0; i < across->count; i++) columns[i] -= columns[i] == NO_PIXEL ? 0 : reads.x;
    pick_rows(job, columns, reads.x, lines);
    return FL_OK;
}

static fl_code run_passes(job *job, const fl_resize_exact_key *across, const fl_resize_exact_key *down,
                          fl_error *err) {
    fl_resize_exact *exact = job->exact;
    fl_code code = fl_resize_exact_axis_build(&exact->across, across, err);
    if (!code) code = fl_resize_exact_axis_build(&exact->down, down, err);
    if (code) return code;
    job->across = &exact->across;
    job->down = &exact->down;
    const fl_box reads = {exact->across.low, exact->down.low, exact->across.high - exact->across.low,
                          exact->down.high - exact->down.low};
    code = check_part(job, &reads, err);
    if (code) return code;
    if (!reads.width || !reads.height) {
        run_black(job);
        return FL_OK;
    }
    job->source_bytes = (size_t)reads.width * job->channels;
    code = fl_resize_fit(&exact->taps, exact->down.taps, sizeof(void *), err);
    if (!code) code = fl_resize_fit(&exact->spare, ROWS, job->source_bytes + TAIL, err);
    if (code) return code;
    if (down->copies) return run_across(job, false, err);
    if (across->copies && !across->mirror) {
        run_down(job);
        return FL_OK;
    }
    const bool across_first = goes_across_first(job->spec) && !across->copies;
    return across_first ? run_across_first(job, err) : run_across(job, true, err);
}

fl_code fl_resize_exact_run(fl_resize_exact *exact, const fl_view *view, const fl_resize_exact_spec *spec,
                            const fl_sink *sink, fl_error *err) {
    fl_code code = fl_resize_check_ends(view, sink, err);
    if (!code) code = check_spec(spec, err);
    if (code) return code;
    const fl_box *window = &spec->window;
    if (!(view->channels == 0 || (view->channels == 1 && view->depth == 1)) || sink->dtype == FL_U16)
        return fl_fail(err, FL_EARG, "resize: planes, where RGB or grey of 8 bits is meant");
    if (sink->width != window->width || sink->height != window->height)
        return fl_fail(err, FL_EARG, "resize: a window of %u x %u pixels does not fill the %u x %u sink",
                       window->width, window->height, sink->width, sink->height);
    if (spec->image_x < -(int64_t)FL_IMAGE_SIDE_MAX || spec->image_x > FL_IMAGE_SIDE_MAX ||
        spec->image_y < -(int64_t)FL_IMAGE_SIDE_MAX || spec->image_y > FL_IMAGE_SIDE_MAX)
        return fl_fail(err, FL_EARG, "resize: an image that begins at (%lld, %lld) of the view",
                       (long long)spec->image_x, (long long)spec->image_y);
    if (!window->width || !window->height) return FL_OK;

    job job = {.exact = exact, .view = view, .spec = spec, .channels = view->channels ? 1 : 3};
    job.kernels = fl_cpu_has(FL_CPU_AVX2) ? fl_resize_exact_avx2() : &fl_resize_exact_scalar;
    code = fl_resize_rows_start(&job.rows, sink, &(fl_box){0, 0, window->width, window->height}, &exact->room,
                                err);
    if (code) return code;
    fl_resize_exact_key across, down;
    make_keys(spec, sink->hflip, &across, &down);
    if (crops(spec)) {
        const fl_box reads = {(uint32_t)spec->left + window->x, (uint32_t)spec->top + window->y,
                              window->width, window->height};
        code = check_part(&job, &reads, err);
        if (!code) run_copy(&job, reads.x, reads.y);
        return code;
    }
    return spec->filter == FL_RESIZE_EXACT_NEAREST ? run_nearest(&job, &across, &down, err)
                                                   : run_passes(&job, &across, &down, err);
}
