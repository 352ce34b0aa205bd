#include "jpeg/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "common/cpu.h"
#include "jpeg/baseline_avx2.h"
#include "jpeg/baseline_neon.h"
#include "jpeg/baseline_parts.h"
#include "jpeg/baseline_planes.h"
#include "jpeg/baseline_rows.h"
#include "jpeg/baseline_scalar.h"
#include "jpeg/dct_form.h"
#include "jpeg/huffman.h"
#include "jpeg/markers.h"

static const fl_buffer_rule RULE = {.least = 1 << 16, .keep = 64 << 20};
enum { LEARN_MOST = 1 << 18 /* MCUs of an image whose marks are noted */ };

struct fl_jpeg_baseline {
    fl_jpeg_tables tables;
    fl_jpeg_frame frame;
    const uint8_t *bytes;
    size_t size;
    bool opened;
    bool formed; /* `form` is the file's: it is no JPEG, but one in the DCT form */
    fl_jpeg_dct_form form;
    bool learns; /* decodes note marks */
    fl_jpeg_marks marks; /* of the last decode; none: rows is 0 */
    fl_buffer plain, planes, pixels, noted /* of fl_jpeg_mark */, index;
};

fl_code fl_jpeg_baseline_create(fl_jpeg_baseline **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "no memory for a JPEG decoder (%zu bytes)", sizeof **out);
    return FL_OK;
}

void fl_jpeg_baseline_free(fl_jpeg_baseline *baseline) {
    if (!baseline) return;
    fl_buffer_free(&baseline->plain);
    fl_buffer_free(&baseline->planes);
    fl_buffer_free(&baseline->pixels);
    fl_buffer_free(&baseline->noted);
    fl_buffer_free(&baseline->index);
    free(baseline);
}

static const fl_jpeg_kernels *best_kernels(void) {
    if (fl_cpu_has(FL_CPU_AVX2)) return fl_jpeg_kernels_avx2();
    if (fl_cpu_has(FL_CPU_NEON)) return fl_jpeg_kernels_neon();
    return &fl_jpeg_kernels_scalar;
}

static bool open_form(fl_jpeg_baseline *b, const uint8_t *bytes, size_t size) {
    fl_jpeg_dct_form *form = &b->form;
    return fl_jpeg_dct_open(form, bytes, size) && fl_jpeg_dct_frame(form, &b->tables, &b->frame) &&
           fl_jpeg_dct_lay_out(form, &b->frame);
}

bool fl_jpeg_baseline_open(fl_jpeg_baseline *b, const uint8_t *bytes, size_t size, uint32_t *width,
                           uint32_t *height) {
    fl_jpeg_frame *f = &b->frame;
    b->opened = b->learns = false;
    b->marks.rows = 0;
    if (!bytes) return false;
    b->formed = fl_jpeg_dct_is(bytes, size);
    if (b->formed ? !open_form(b, bytes, size)
                  : !fl_jpeg_header_read(&b->tables, f, bytes, size) || !fl_jpeg_header_usual(f))
        return false;
    b->bytes = bytes;
    b->size = size;
    *width = f->width;
    *height = f->height;
    return b->opened = true;
}

uint32_t fl_jpeg_baseline_components(const fl_jpeg_baseline *b) { return b->frame.count; }

size_t fl_jpeg_baseline_end(const fl_jpeg_baseline *b) {
    if (!b->opened || b->formed) return 0;
    const uint8_t *at = b->bytes + b->frame.data, *end = b->bytes + b->size;
    while (at < end && (at = memchr(at, 0xFF, (size_t)(end - at))) && end - at >= 2) {
        if (at[1] == FL_JPEG_EOI) return (size_t)(at + 2 - b->bytes);
        if (at[1] != 0 && (at[1] < FL_JPEG_RST0 || at[1] > FL_JPEG_RST7)) return 0;
        at += 2;
    }
    return 0;
}

static bool fit(fl_buffer *buffer, size_t size) { return fl_buffer_fit(buffer, size, 1, RULE); }

static uint32_t divide_up(uint64_t a, uint32_t b) { return (uint32_t)((a + b - 1) / b); }

static uint32_t at_most(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The samples that pixels from..to take: each pixel its own, and under interpolation the neighbour on its far
 * side. */
static fl_jpeg_range samples_for(uint32_t from, uint32_t to, uint32_t cover, bool fancy, uint32_t limit) {
    fl_jpeg_range r = {from / cover, (to - 1) / cover + 1};
    if (cover == 2 && fancy) {
        if (r.from) r.from--;
        r.to++;
    }
    r.to = at_most(r.to, limit);
    return r;
}

/* One component at this scale. libjpeg gives chroma a larger inverse DCT instead of upsampling, where that
 * works in both directions. */
static void lay_out(fl_jpeg_task *t, int c, uint32_t eighths, fl_jpeg_range *rows) {
    const fl_jpeg_frame *f = t->frame;
    fl_jpeg_plane *p = &t->plane[c];
    const uint32_t h_max = f->count == 1 ? 1 : f->h[0], v_max = f->count == 1 ? 1 : f->v[0];
    p->h = c ? 1 : h_max;
    p->v = c ? 1 : v_max;
    p->side = eighths;
    while (p->side < 8 && h_max * eighths % (p->h * p->side * 2) == 0 &&
           v_max * eighths % (p->v * p->side * 2) == 0)
        p->side *= 2;
    p->across = h_max * eighths / (p->h * p->side);
    p->down = v_max * eighths / (p->v * p->side);
    p->width = divide_up((uint64_t)f->width * p->h * p->side, h_max * 8);
    p->height = divide_up((uint64_t)f->height * p->v * p->side, v_max * 8);
    p->sample_columns = samples_for(t->x0, t->x1, p->across, t->fancy, p->width);
    *rows = samples_for(t->y0, t->y1, p->down, t->fancy, p->height);
    p->columns = (fl_jpeg_range){p->sample_columns.from / p->side, divide_up(p->sample_columns.to, p->side)};
    p->rows = (fl_jpeg_range){rows->from / p->side, divide_up(rows->to, p->side)};
    for (int i = 0; i < 64; i++) p->quant[fl_jpeg_natural[i]] = (int16_t)f->quantiser[f->quant[c]][i];

    fl_jpeg_range mcu_columns = {p->columns.from / p->h, divide_up(p->columns.to, p->h)};
    fl_jpeg_range mcu_rows = {p->rows.from / p->v, divide_up(p->rows.to, p->v)};
    if (c == 0) t->mcu_columns = mcu_columns, t->mcu_rows = mcu_rows;
    if (mcu_columns.from < t->mcu_columns.from) t->mcu_columns.from = mcu_columns.from;
    if (mcu_columns.to > t->mcu_columns.to) t->mcu_columns.to = mcu_columns.to;
    if (mcu_rows.from < t->mcu_rows.from) t->mcu_rows.from = mcu_rows.from;
    if (mcu_rows.to > t->mcu_rows.to) t->mcu_rows.to = mcu_rows.to;
}

/* Places for two MCU rows of each component and for a row of upsampled chroma. */
static bool fit_planes(fl_jpeg_baseline *b, fl_jpeg_task *t) {
    const uint32_t mcus = t->mcu_columns.to - t->mcu_columns.from;
    size_t need = 0, at[3] = {0};
    for (int c = 0; c < t->frame->count; c++) {
        fl_jpeg_plane *p = &t->plane[c];
        p->origin = t->mcu_columns.from * p->h * p->side;
        p->stride = ((size_t)mcus * p->h * p->side + 2 * FL_JPEG_MARGIN + 63) / 64 * 64;
        p->mask = 2 * p->v * p->side - 1;
        at[c] = need + FL_JPEG_MARGIN;
        need += p->stride * (p->mask + 1);
    }
    const size_t row = ((size_t)(t->x1 - t->x0) + 2 * FL_JPEG_MARGIN + 63) / 64 * 64;
    if (!fit(&b->planes, need + 2 * row)) return false;
    for (int c = 0; c < t->frame->count; c++) t->plane[c].samples = (uint8_t *)b->planes.bytes + at[c];
    for (int c = 0; c < 2; c++)
        t->chroma[c] = (uint8_t *)b->planes.bytes + need + (size_t)c * row + FL_JPEG_MARGIN / 2;
    return true;
}

static bool inside(const fl_box *box, const fl_jpeg_frame *f) {
    return box->width && box->height && (uint64_t)box->x + box->width <= f->width &&
           (uint64_t)box->y + box->height <= f->height;
}

void fl_jpeg_baseline_learn(fl_jpeg_baseline *b) { b->learns = true; }

/* Marks in each row. */
static uint32_t marks_across(const fl_jpeg_baseline *b) {
    return (b->frame.mcus_across - 1) / b->marks.every + 1;
}

static uint32_t learn_every(const fl_jpeg_frame *f) {
    return FL_JPEG_LEARN_PIXELS / (8 * (f->count == 1 ? 1 : (uint32_t)f->h[0]));
}

/* Begins to note marks, behind those of the task's index; where there is nothing to learn, or no memory, none
 * are noted. */
static void begin_marks(fl_jpeg_baseline *b, fl_jpeg_task *t) {
    const fl_jpeg_frame *f = &b->frame;
    const fl_jpeg_index *index = t->index;
    t->marks = NULL;
    b->marks = (fl_jpeg_marks){.every = index ? index->every : learn_every(f), .to_the_end = index};
    if (!b->learns || b->formed || (uint64_t)f->mcus_across * f->mcus_down > LEARN_MOST ||
        (index && (index->last || t->mcu_rows.to <= index->rows)) ||
        !fl_buffer_fit(&b->noted, (size_t)marks_across(b) * f->mcus_down, sizeof(fl_jpeg_mark), RULE))
        return;
    t->marks = &b->marks;
    b->marks.first = b->marks.next = b->noted.bytes;
    b->marks.known = index ? index->rows : 0;
    for (uint32_t row = 0; index && row < index->rows; row++) {
        fl_jpeg_cursor c = fl_jpeg_index_row(index, row);
        do *b->marks.next++ = c.mark;
        while (fl_jpeg_index_next(&c));
    }
}

/* The densest index of the first `rows` of the noted rows, of at most `most` bytes. */
static bool write_learnt(fl_jpeg_baseline *b, uint32_t rows, bool last, size_t most, size_t *size) {
    const fl_jpeg_marks *m = &b->marks;
    const uint32_t across = marks_across(b);
    for (uint64_t thin = 1; m->every * thin <= UINT8_MAX;) {
        const size_t need =
            fl_jpeg_index_write_first(m->first, m->every, across, rows, last, (uint32_t)thin, NULL);
        if (!need) return false;
        if (need > most) { /* every second mark of them takes more than half of the bytes */
            thin += most ? (need / most - 1) * thin + 1 : UINT8_MAX;
            continue;
        }
        if (!fit(&b->index, need)) return false;
        *size =
            fl_jpeg_index_write_first(m->first, m->every, across, rows, last, (uint32_t)thin, b->index.bytes);
        return true;
    }
    return false;
}

void fl_jpeg_baseline_learnt(fl_jpeg_baseline *b, size_t most, const uint8_t **index, size_t *size) {
    const fl_jpeg_marks *m = &b->marks;
    *size = 0;
    if (m->rows && !write_learnt(b, m->rows, m->last, most, size) && m->known)
        write_learnt(b, m->known, true, most, size);
    *index = b->index.bytes;
}

bool fl_jpeg_baseline_decode(fl_jpeg_baseline *b, const fl_box *box, int eighths, const uint8_t *index_bytes,
                             size_t index_size, fl_view *view) {
    const fl_jpeg_frame *f = &b->frame;
    b->marks.rows = 0;
    if (!b->opened || !inside(box, f) || (eighths != 1 && eighths != 2 && eighths != 4 && eighths != 8))
        return false;
    const uint32_t e = (uint32_t)eighths;
    fl_jpeg_index index;
    fl_jpeg_task t = {.tables = &b->tables, .frame = f, .kernels = best_kernels()};
    if (index_size && !b->formed &&
        fl_jpeg_index_open(&index, index_bytes, index_size, f->mcus_across, f->mcus_down))
        t.index = &index;
    t.fancy = eighths > 1; /* so libjpeg: without context there is no interpolation */
    t.x0 = box->x * e / 8;
    t.y0 = box->y * e / 8;
    t.x1 = at_most(divide_up((uint64_t)(box->x + box->width) * e, 8), divide_up((uint64_t)f->width * e, 8));
    t.y1 = at_most(divide_up((uint64_t)(box->y + box->height) * e, 8), divide_up((uint64_t)f->height * e, 8));
    for (int c = 0; c < f->count; c++) {
        fl_jpeg_range rows;
        lay_out(&t, c, e, &rows);
    }
    const size_t width = t.x1 - t.x0, height = t.y1 - t.y0, bytes = width * height * 3;
    /* Two streams at a time have the coded bytes, and up to two that both have. */
    const size_t plain = b->formed ? fl_jpeg_planes_room(&b->form, t.mcu_columns.to - t.mcu_columns.from)
                                   : b->size - f->data + 2 * (FL_JPEG_PAD + 2);
    if (!b->formed) t.at = b->bytes + f->data, t.end = b->bytes + b->size;
    if (!fit(&b->plain, plain) || !fit(&b->pixels, bytes + FL_JPEG_SLACK) || !fit_planes(b, &t)) return false;
    t.plain = b->plain.bytes;
    t.pixels = b->pixels.bytes;
    t.emitted = t.y0;
    const fl_jpeg_task again = t;
    begin_marks(b, &t);
    if (b->formed) {
        if (!fl_jpeg_decode_planes(&t, &b->form)) return false;
    } else if (!fl_jpeg_decode_rows(&t)) {
        if (!t.index) return false;
        t = again;
        t.index = NULL;
        begin_marks(b, &t);
        if (!fl_jpeg_decode_rows(&t)) return false;
    }
    *view = (fl_view){.pixels = t.pixels,
                      .stride = width * 3,
                      .width = (uint32_t)width,
                      .height = (uint32_t)height,
                      .tail = b->pixels.room - bytes};
    return true;
}
