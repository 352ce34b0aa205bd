#include "resize/resize_planes.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "resize/axis.h"

struct fl_resize_planes {
    fl_resize_axis across, down;
    fl_buffer weights[2]; /* float32 of each axis */
    fl_buffer source; /* the columns in use of a source row, as floats */
    fl_buffer ring; /* rows that went across: row r of the source at slot r % slots */
    fl_buffer sum; /* an output row */
    fl_buffer line; /* the same, rounded */
};

/* One call's facts. */
typedef struct job {
    fl_resize_planes *planes;
    const fl_view *view;
    const fl_sink *sink;
    const fl_resize_axis *across, *down;
    const float *across_weight, *down_weight;
    float most; /* the largest value */
    bool clips; /* between the passes */
    uint32_t x, at_y; /* the window's left column and top row in the sink; the column is already mirrored */
    size_t n; /* values of a row of the window */
    size_t slots, pitch; /* the ring: rows, floats from row to row */
    uint32_t next; /* the first source row that is not in the ring yet */
} job;

fl_code fl_resize_planes_create(fl_resize_planes **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? FL_OK : fl_fail(err, FL_ENOMEM, "resize: no memory for %zu bytes", sizeof **out);
}

void fl_resize_planes_free(fl_resize_planes *planes) {
    if (!planes) return;
    fl_resize_axis_free(&planes->across);
    fl_resize_axis_free(&planes->down);
    for (int i = 0; i < 2; i++) fl_buffer_free(&planes->weights[i]);
    fl_buffer_free(&planes->source);
    fl_buffer_free(&planes->ring);
    fl_buffer_free(&planes->sum);
    fl_buffer_free(&planes->line);
    free(planes);
}

/* ---- the sink ---- */

/* n values `from_step` apart to places `step` apart, through a table if there is one. */
#define STORE(NAME, TYPE)                                                                                    \
    static void NAME(const uint16_t *from, size_t from_step, TYPE *to, size_t step, const TYPE *lut,         \
                     size_t n) {                                                                             \
        if (lut)                                                                                             \
            for (size_t i = 0; i < n; i++) to[i * step] = lut[from[i * from_step]];                          \
        else                                                                                                 \
            for (size_t i = 0; i < n; i++) to[i * step] = (TYPE)from[i * from_step];                         \
    }
STORE(store_bytes, uint8_t)
STORE(store_halves, uint16_t)
STORE(store_words, uint32_t) /* the bits of a float: copied, never calculated with */
#undef STORE

/* n pixels at (x, y) of the stored image. */
static void store_row(const fl_sink *sink, uint32_t x, uint32_t y, const uint16_t *values, size_t n) {
    const size_t channels = sink->channels, at = y * fl_sink_pitch(sink) + x, plane = fl_sink_plane(sink);
    const size_t levels = sink->depth == 1 ? 1 << 8 : 1 << 16, step = sink->layout == FL_HWC ? channels : 1;
    for (size_t c = 0; c < channels; c++) {
        const size_t to = sink->layout == FL_HWC ? at * channels + c : plane * c + at;
        if (sink->dtype == FL_U8)
            store_bytes(values + c, channels, (uint8_t *)sink->data + to, step, NULL, n);
        else if (sink->dtype == FL_F32)
            store_words(values + c, channels, (uint32_t *)sink->data + to, step,
                        (const uint32_t *)sink->lut + c * levels, n);
        else
            store_halves(values + c, channels, (uint16_t *)sink->data + to, step,
                         sink->dtype == FL_U16 ? NULL : (const uint16_t *)sink->lut + c * levels, n);
    }
}

enum { FILL_PIXELS = 64, CHANNELS_MAX = 4 };

static void fill_run(const fl_sink *sink, const uint16_t *line, uint32_t y, uint32_t from, uint32_t to) {
    for (uint32_t x = from; x < to; x += FILL_PIXELS)
        store_row(sink, x, y, line, to - x < FILL_PIXELS ? to - x : FILL_PIXELS);
}

void fl_resize_planes_fill(const fl_sink *sink, const fl_box *keep, const uint16_t *values) {
    uint16_t line[FILL_PIXELS * CHANNELS_MAX];
    for (size_t i = 0; i < (size_t)FILL_PIXELS * sink->channels; i++) line[i] = values[i % sink->channels];
    const uint32_t left = sink->hflip ? sink->width - keep->x - keep->width : keep->x;
    const uint32_t top = sink->vflip ? sink->height - keep->y - keep->height : keep->y;
    for (uint32_t y = 0; y < sink->height; y++) {
        const bool beside = y >= top && y - top < keep->height;
        fill_run(sink, line, y, 0, beside ? left : sink->width);
        if (beside) fill_run(sink, line, y, left + keep->width, sink->width);
    }
}

/* ---- the passes ---- */

static uint32_t sink_y(const job *job, uint32_t i) {
    return job->sink->vflip ? job->sink->height - 1 - job->at_y - i : job->at_y + i;
}

static void load(const uint8_t *from, uint32_t depth, float *to, size_t n) {
    if (depth == 1) {
        for (size_t i = 0; i < n; i++) to[i] = (float)from[i];
    } else {
        for (size_t i = 0; i < n; i++) to[i] = (float)fl_bytes_le16(from + 2 * i);
    }
}

static inline __attribute__((always_inline)) void across(const fl_resize_axis *axis, const float *weight,
                                                         const float *row, float *out, uint32_t channels) {
    for (uint32_t i = 0; i < axis->key.count; i++, weight += axis->taps, out += channels) {
        const float *at = row + (size_t)(axis->first[i] - axis->low) * channels;
        float sum[CHANNELS_MAX] = {0};
        for (uint32_t k = 0; k < axis->taps; k++, at += channels)
            for (uint32_t c = 0; c < channels; c++) sum[c] += weight[k] * at[c];
        for (uint32_t c = 0; c < channels; c++) out[c] = sum[c];
    }
}

/* Brings the ring up to source row `upto`. */
static void advance(job *job, uint32_t upto) {
    const fl_view *view = job->view;
    const fl_resize_axis *axis = job->across;
    const size_t pixel = fl_view_pixel(view), columns = axis->high - axis->low;
    float *source = job->planes->source.bytes;
    for (; job->next <= upto; job->next++) {
        float *out = (float *)job->planes->ring.bytes + job->next % job->slots * job->pitch;
        load(view->pixels + job->next * view->stride + axis->low * pixel, view->depth, source,
             columns * view->channels);
        switch (view->channels) {
        case 1: across(axis, job->across_weight, source, out, 1); break;
        case 2: across(axis, job->across_weight, source, out, 2); break;
        case 3: across(axis, job->across_weight, source, out, 3); break;
        default: across(axis, job->across_weight, source, out, 4);
        }
        for (size_t j = 0; j < job->n && job->clips; j++)
            out[j] = out[j] < 0 ? 0 : out[j] > job->most ? job->most : out[j];
    }
}

/* Output row i from the ring, rounded to nearest, ties to even. */
static void combine(const job *job, uint32_t i) {
    const fl_resize_axis *axis = job->down;
    const float *weight = job->down_weight + (size_t)i * axis->taps;
    float *restrict sum = job->planes->sum.bytes;
    uint16_t *restrict line = job->planes->line.bytes;
    for (uint32_t k = 0; k < axis->taps; k++) {
        const float *restrict row =
            (const float *)job->planes->ring.bytes + (axis->first[i] + k) % job->slots * job->pitch,
                              w = weight[k];
        if (!k)
            for (size_t j = 0; j < job->n; j++) sum[j] = w * row[j];
        else
            for (size_t j = 0; j < job->n; j++) sum[j] += w * row[j];
    }
    const float whole = 0x1.8p23f; /* leaves no room for a fraction */
    for (size_t j = 0; j < job->n; j++) {
        const float value = sum[j] < 0 ? 0 : sum[j] > job->most ? job->most : sum[j];
        line[j] = (uint16_t)((value + whole) - whole);
    }
}

static fl_code weights_of(const fl_resize_axis *axis, fl_buffer *buffer, const float **out, fl_error *err) {
    const size_t n = (size_t)axis->key.count * axis->taps;
    const fl_code code = fl_resize_fit(buffer, n, sizeof(float), err);
    if (code) return code;
    float *weight = buffer->bytes;
    for (size_t i = 0; i < n; i++) weight[i] = (float)axis->weight[i];
    *out = weight;
    return FL_OK;
}

static fl_code reserve(job *job, fl_error *err) {
    fl_resize_planes *planes = job->planes;
    job->slots = job->down->taps;
    job->pitch = job->n;
    fl_code code = weights_of(job->across, &planes->weights[0], &job->across_weight, err);
    if (!code) code = weights_of(job->down, &planes->weights[1], &job->down_weight, err);
    if (!code)
        code = fl_resize_fit(&planes->source,
                             (size_t)(job->across->high - job->across->low) * job->view->channels,
                             sizeof(float), err);
    if (!code) code = fl_resize_fit(&planes->ring, job->slots * job->pitch, sizeof(float), err);
    return code ? code : fl_resize_fit(&planes->sum, job->n, sizeof(float), err);
}

static fl_code run(job *job, fl_error *err) {
    const fl_code code = reserve(job, err);
    if (code) return code;
    const fl_resize_axis *down = job->down;
    for (uint32_t i = 0; i < down->key.count; i++) {
        const uint32_t first =
            down->first[i]; /* never decreases: a vertical mirror is done where the row is stored */
        job->next = job->next > first ? job->next : first;
        advance(job, first + down->taps - 1);
        combine(job, i);
        store_row(job->sink, job->x, sink_y(job, i), job->planes->line.bytes, job->n / job->view->channels);
    }
    return FL_OK;
}

static void run_copy(const job *job, const fl_resize_axis_key *across, const fl_resize_axis_key *down) {
    const fl_view *view = job->view;
    const size_t pixel = fl_view_pixel(view), channels = view->channels;
    const uint8_t *row = view->pixels + (size_t)(down->start + down->begin) * view->stride +
                         (size_t)(across->start + across->begin) * pixel;
    uint16_t *line = job->planes->line.bytes;
    for (uint32_t i = 0; i < down->count; i++, row += view->stride) {
        for (uint32_t j = 0; j < across->count; j++) {
            const uint8_t *at = row + (across->mirror ? across->count - 1 - j : j) * pixel;
            for (size_t c = 0; c < channels; c++)
                line[j * channels + c] = view->depth == 1 ? at[c] : fl_bytes_le16(at + 2 * c);
        }
        store_row(job->sink, job->x, sink_y(job, i), line, across->count);
    }
}

fl_code fl_resize_planes_run(fl_resize_planes *planes, const fl_view *view, const fl_resize_spec *spec,
                             const fl_sink *sink, fl_error *err) {
    fl_code code = fl_resize_check(view, spec, sink, err);
    if (code) return code;
    if (!view->channels || view->channels > CHANNELS_MAX || view->depth < 1 || view->depth > 2 ||
        (sink->dtype == FL_U8 && view->depth != 1) || (sink->dtype == FL_U16 && view->depth != 2))
        return fl_fail(err, FL_EARG, "resize: %d channels of %d bytes into dtype %d", view->channels,
                       view->depth, (int)sink->dtype);
    if (!spec->window.width || !spec->window.height) return FL_OK;

    job job = {
        .planes = planes, .view = view, .sink = sink, .across = &planes->across, .down = &planes->down};
    job.x = sink->hflip ? sink->width - spec->at_x - spec->window.width : spec->at_x;
    job.at_y = spec->at_y;
    job.n = (size_t)spec->window.width * view->channels;
    job.most = view->depth == 1 ? 255 : 65535;
    job.clips = view->depth == 1 && spec->antialias && spec->filter == FL_RESIZE_BICUBIC;
    code = fl_resize_fit(&planes->line, job.n, sizeof(uint16_t), err);
    if (code) return code;
    fl_resize_axis_key across, down;
    fl_resize_axis_keys(view, spec, sink, &across, &down);
    if (fl_resize_axis_copies(&across) && fl_resize_axis_copies(&down)) {
        run_copy(&job, &across, &down);
        return FL_OK;
    }
    code = fl_resize_axis_build(&planes->across, &across, err);
    if (!code) code = fl_resize_axis_build(&planes->down, &down, err);
    return code ? code : run(&job, err);
}
