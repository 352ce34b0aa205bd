/* Outside the rectangle codes are passed over, for their lengths and for the sums of DC differences; with an
 * index, reading starts anew in each row, at the mark next to the rectangle.
 *
 * NOTE [ baseline: an index by the way ]
 * Who reads from the first MCU on comes by all marks of an index up to the last row that is wanted. To note
 * them takes some hundredths of a decode, where a walk over all of the file (jpeg/entropy.h) takes nearly
 * half of one.
 * 1. The marks of whole rows are an index of these rows. A decode that needs more begins at the end of the
 *    last one, notes what follows, and goes on to the end of the image: an index grows once.
 * 2. That a row was read is all the proof that is needed: without the index another decode of the same bytes
 *    would read it too, and with the same success. What lies behind the rows that are wanted, and is read for
 *    the index alone, may be damaged: then no more can be known, and the decode succeeds as it would have
 *    done.
 */
#include "jpeg/baseline_rows.h"

#include <string.h>

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/baseline_blocks.h"
#include "jpeg/baseline_emit.h"
#include "jpeg/baseline_pair.h"
#include "jpeg/baseline_stream.h"

enum { PAIR_LEAST = 4 /* MCUs of a row that are worth two streams */ };

/* One block, made or passed over. */
FL_INLINE bool one_block(const fl_jpeg_task *t, fl_jpeg_batch *a, fl_jpeg_block_place *at, int *dc,
                         uint32_t i, fl_jpeg_bits *b) {
    uint8_t *out;
    if (!fl_jpeg_block_next(at, &out)) return fl_jpeg_stream_pass_block(t, dc, i, b);
    int16_t *coefs = a->coefs + 64 * (size_t)a->blocks;
    fl_jpeg_block_clear(coefs);
    if (!fl_jpeg_stream_dc(t, dc, i, b)) return false;
    const fl_jpeg_codes *ac = &t->tables->ac[t->frame->block_ac[i]];
    int count = 1;
    if (!at->dc_only) count = fl_jpeg_make_ac(ac, b, coefs, FL_JPEG_IN_NATURAL_ORDER);
    else if (!fl_jpeg_skip_ac(ac, b)) return false;
    if (count < 0) return false;
    coefs[0] = (int16_t)dc[at->component];
    a->jobs[at->component][a->pending[at->component]++] = (fl_jpeg_job){coefs, out, count};
    a->blocks++;
    return true;
}

FL_INLINE bool make_mcus(const fl_jpeg_task *t, fl_jpeg_stream *s, fl_jpeg_batch *a,
                         fl_jpeg_block_place *places, uint32_t count) {
    fl_jpeg_bits b = s->bits;
    const uint32_t blocks = t->frame->block_count;
    for (; count; count--) {
        for (uint32_t i = 0; i < blocks; i++)
            if (!one_block(t, a, &places[i], s->dc, i, &b)) return false;
        if (fl_jpeg_bits_at(&b) > s->plain_end) return false;
        if (++a->mcus == FL_JPEG_BATCH) fl_jpeg_batch_flush(t, a);
    }
    s->bits = b;
    return true;
}

/* MCUs from restart to restart: made, where places are given. */
FL_INLINE bool stretch(const fl_jpeg_task *t, fl_jpeg_stretch *of, fl_jpeg_block_place *places,
                       uint32_t count) {
    fl_jpeg_stream *s = &of->stream;
    while (count) {
        if (!fl_jpeg_stream_ready(t, s)) return false;
        uint32_t now = count < s->until_restart ? count : s->until_restart;
        if (!(places ? make_mcus(t, s, &of->batch, places, now) : fl_jpeg_stream_pass(t, s, now)))
            return false;
        if (t->frame->interval) s->until_restart -= now;
        count -= now;
    }
    return true;
}

/* The index's facts about a row of the rectangle. */
typedef struct route {
    fl_jpeg_cursor start; /* the last mark before the rectangle */
    fl_jpeg_cursor middle; /* where a second stream begins, inside the rectangle; `start`: there is none */
    fl_jpeg_cursor check; /* the last mark in the rectangle or at its end, or `start` */
    size_t end; /* coded bytes, from the first one, up to the first mark behind the rectangle */
} route;

/* The coded bytes up to a mark, and the one that it is in. 2: that may be a stuffed one. */
static size_t bytes_to(const fl_jpeg_task *t, const fl_jpeg_mark *mark) {
    const size_t size = (size_t)(t->end - t->at);
    return mark->bit / 8 + 2 < size ? (size_t)(mark->bit / 8 + 2) : size;
}

static route find_route(const fl_jpeg_task *t, uint32_t row) {
    const uint32_t left = t->mcu_columns.from, right = t->mcu_columns.to;
    fl_jpeg_cursor c = fl_jpeg_index_row(t->index, row);
    while (c.column + t->index->every <= left && fl_jpeg_index_next(&c)) {}
    route r = {.start = c, .middle = c, .check = c};
    bool more = true;
    while (c.column < right && (more = fl_jpeg_index_next(&c)))
        if (c.column <= right) r.check = c;
    if (!more && row + 1 < t->index->rows) c = fl_jpeg_index_row(t->index, row + 1), more = true;
    r.end = more ? bytes_to(t, &c.mark) : (size_t)(t->end - t->at);
    if (t->frame->interval || right - left < PAIR_LEAST) return r;
    const uint64_t half = r.start.mark.bit + (r.check.mark.bit - r.start.mark.bit) / 2;
    for (c = r.start; (c.column <= left || c.mark.bit < half) && fl_jpeg_index_next(&c);) {}
    if (c.column > left && c.column < right) r.middle = c;
    return r;
}

/* Goes to a mark, and makes plain no more than up to `end`. */
static bool enter(const fl_jpeg_task *t, fl_jpeg_stream *s, uint32_t row, const fl_jpeg_cursor *at,
                  size_t end) {
    if (at->mark.bit / 8 > end) return false;
    s->at = t->at + at->mark.bit / 8;
    s->end = t->at + end;
    fl_jpeg_stream_interval(t, s);
    fl_jpeg_refill(&s->bits);
    fl_jpeg_take(&s->bits, at->mark.bit % 8);
    for (int i = 0; i < 3; i++) s->dc[i] = at->mark.dc[i];
    if (t->frame->interval) {
        const uint64_t mcu = (uint64_t)row * t->frame->mcus_across + at->column;
        s->until_restart = t->frame->interval - (uint32_t)(mcu % t->frame->interval);
        s->restart = (uint8_t)(FL_JPEG_RST0 + (mcu / t->frame->interval & 7));
    }
    return true;
}

/* True if the stream is where the index has this mark. */
static bool is_at(const fl_jpeg_task *t, fl_jpeg_stream *s, const fl_jpeg_mark *mark) {
    if (!fl_jpeg_stream_ready(t, s)) return false;
    const uint64_t bit = (uint64_t)(s->bits.at - s->plain) * 8 - s->bits.left;
    /* zeros stuffed in before it: all of the interval's, but those behind it, where little is left */
    uint64_t stuffed = (uint64_t)(s->at - s->coded) - (uint64_t)(s->plain_end - s->plain);
    for (const uint8_t *at = s->plain + bit / 8; at < s->plain_end; at++) stuffed -= *at == 0xFF;
    if (mark->bit != ((uint64_t)(s->coded - t->at) + stuffed) * 8 + bit) return false;
    for (int i = 0; i < t->frame->count; i++)
        if (s->dc[i] != mark->dc[i]) return false;
    return true;
}

/* The halves of a row up to MCU `to`, side by side: NOTE [ baseline: two streams at a time ]. */
static bool both_halves(const fl_jpeg_task *t, fl_jpeg_stretch halves[2], const route *r, uint32_t row,
                        uint32_t to) {
    fl_jpeg_stretch *one = &halves[0], *two = &halves[1];
    const uint32_t left = t->mcu_columns.from, middle = r->middle.column;
    const size_t end = bytes_to(t, &r->middle.mark);
    if (!enter(t, &one->stream, row, &r->start, end)) return false;
    two->stream.plain = t->plain + (end - r->start.mark.bit / 8) + FL_JPEG_PAD;
    if (!enter(t, &two->stream, row, &r->middle, r->end) ||
        !fl_jpeg_stream_pass(t, &one->stream, left - r->start.column))
        return false;
    one->mcus = middle - left;
    two->mcus = to - middle;
    fl_jpeg_block_places(t, two->places, row, middle);
    return fl_jpeg_decode_pair(t, one, two) && is_at(t, &one->stream, &r->middle.mark);
}

/* One MCU row of the rectangle by the index. An index that leads elsewhere is found out at the next mark. */
FL_INLINE bool indexed_row(const fl_jpeg_task *t, fl_jpeg_stretch halves[2], uint32_t row) {
    const uint32_t left = t->mcu_columns.from, right = t->mcu_columns.to;
    const route r = find_route(t, row);
    const bool paired = r.middle.column != r.start.column, checked = r.check.column > r.middle.column;
    fl_jpeg_stretch *last = &halves[paired];
    uint32_t at = left;
    if (paired) {
        at = checked ? r.check.column : right;
        if (!both_halves(t, halves, &r, row, at)) return false;
    } else if (!enter(t, &last->stream, row, &r.start, r.end) ||
               !stretch(t, last, NULL, left - r.start.column)) {
        return false;
    }
    if (checked) {
        if (!stretch(t, last, last->places, r.check.column - at) || !is_at(t, &last->stream, &r.check.mark))
            return false;
        at = r.check.column;
    }
    return stretch(t, last, last->places, right - at);
}

/* Notes the mark of the MCU that comes. */
static bool note(const fl_jpeg_task *t, fl_jpeg_stream *s) {
    fl_jpeg_marks *m = t->marks;
    if (!fl_jpeg_stream_ready(t, s)) return false;
    if (m->coded != s->coded) m->coded = s->coded, m->counted = s->plain, m->stuffed = 0;
    const uint64_t bit = (uint64_t)(s->bits.at - s->plain) * 8 - s->bits.left;
    const uint8_t *end = s->plain + bit / 8, *at = m->counted;
    for (; (at = memchr(at, 0xFF, (size_t)(end - at))) != NULL; at++) m->stuffed++;
    m->counted = end;
    *m->next++ = (fl_jpeg_mark){((uint64_t)(s->coded - t->at) + m->stuffed) * 8 + bit,
                                {(int16_t)s->dc[0], (int16_t)s->dc[1], (int16_t)s->dc[2]}};
    return true;
}

/* MCUs of a row, from `column` on; their marks are noted, where any are. */
FL_INLINE bool noted(const fl_jpeg_task *t, fl_jpeg_stretch *of, fl_jpeg_block_place *places, uint32_t column,
                     uint32_t count) {
    const uint32_t every = t->marks ? t->marks->every : UINT32_MAX;
    while (count) {
        const uint32_t to_mark = every - column % every, now = count < to_mark ? count : to_mark;
        if (t->marks && to_mark == every && !note(t, &of->stream)) return false;
        if (!stretch(t, of, places, now)) return false;
        column += now;
        count -= now;
    }
    return true;
}

/* Goes to the first row that the index does not have. The row before it is read, since no mark behind would
 * tell that the index leads astray. */
static bool begin_reading(const fl_jpeg_task *t, fl_jpeg_stretch *of) {
    if (!t->index) {
        fl_jpeg_stream_begin(t, &of->stream);
        return true;
    }
    const uint32_t row = t->index->rows - 1;
    const fl_jpeg_cursor start = fl_jpeg_index_row(t->index, row);
    fl_jpeg_cursor c = start;
    while (fl_jpeg_index_next(&c)) {}
    return enter(t, &of->stream, row, &start, (size_t)(t->end - t->at)) && stretch(t, of, NULL, c.column) &&
           is_at(t, &of->stream, &c.mark) && stretch(t, of, NULL, t->frame->mcus_across - c.column);
}

/* Reads on for the marks alone, from the end of the rectangle in its last row. */
static void note_rest(const fl_jpeg_task *t, fl_jpeg_stretch *of) {
    fl_jpeg_marks *m = t->marks;
    const uint32_t across = t->frame->mcus_across, down = t->frame->mcus_down, right = t->mcu_columns.to;
    m->rows = t->mcu_rows.to - 1;
    if (noted(t, of, NULL, right, across - right)) {
        const uint32_t to = m->to_the_end ? down : t->mcu_rows.to;
        for (m->rows++; m->rows < to && noted(t, of, NULL, 0, across); m->rows++) {}
        m->last = m->rows < to || to == down;
    } else {
        m->last = true;
    }
}

/* All rows; the first half is what is not halved. */
FL_INLINE bool rows(fl_jpeg_task *t, fl_jpeg_stretch halves[2]) {
    const uint32_t across = t->frame->mcus_across, left = t->mcu_columns.from, right = t->mcu_columns.to,
                   known = t->index ? t->index->rows : 0;
    fl_jpeg_stretch *one = &halves[0];
    for (int i = 0; i < 2; i++) fl_jpeg_batch_empty(&halves[i].batch);
    one->stream.plain = t->plain;
    for (uint32_t row = t->mcu_rows.from; row < t->mcu_rows.to; row++) {
        const bool reads = row >= known;
        if (reads && (row == known || row == t->mcu_rows.from)) {
            if (!begin_reading(t, one)) return false;
            for (uint32_t passed = known; passed < row; passed++)
                if (!noted(t, one, NULL, 0, across)) return false;
        }
        fl_jpeg_block_places(t, one->places, row, left);
        if (!reads) {
            if (!indexed_row(t, halves, row)) return false;
        } else if (!noted(t, one, NULL, 0, left) || !noted(t, one, one->places, left, right - left)) {
            return false;
        }
        for (int i = 0; i < 2; i++) fl_jpeg_batch_flush(t, &halves[i].batch);
        fl_jpeg_emit_rows(t, row);
        if (reads && row + 1 < t->mcu_rows.to && !noted(t, one, NULL, right, across - right)) return false;
    }
    if (t->marks && t->mcu_rows.to > known) note_rest(t, one);
    return true;
}

#if defined(__x86_64__)
FL_BMI2 static bool rows_bmi2(fl_jpeg_task *t, fl_jpeg_stretch halves[2]) { return rows(t, halves); }
#endif

bool fl_jpeg_decode_rows(fl_jpeg_task *t) {
    fl_jpeg_stretch halves[2];
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return rows_bmi2(t, halves);
#endif
    return rows(t, halves);
}
