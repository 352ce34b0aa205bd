/* Outside the rectangle codes are passed over, for their lengths and for the sums of DC differences; with an
 * index, reading starts anew in each row, at the mark next to the rectangle. */
#include "jpeg/baseline_rows.h"

#include <string.h>

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/baseline_emit.h"
#include "jpeg/baseline_stream.h"

/* Blocks between entropy decoding and the inverse DCT. */
typedef struct batch {
    _Alignas(32) int16_t coefs[FL_JPEG_BATCH * FL_JPEG_MCU_BLOCKS * 64 + 64];
    fl_jpeg_job jobs[3][FL_JPEG_BATCH * 4];
    uint32_t pending[3], blocks, mcus;
} batch;

/* The blocks in one place of each MCU of a row. */
typedef struct place {
    uint8_t *out; /* where the next MCU's block goes; wanted ones are inside the plane */
    size_t step;
    uint32_t component;
    uint32_t column, across; /* the next MCU's block column, blocks of an MCU side by side */
    fl_jpeg_range wanted; /* block columns; none in rows that are not wanted */
    bool dc_only; /* its samples are made of the DC coefficient alone */
} place;

/* memset, a loop or larger vectors would become a call or a slow instruction for every block. */
typedef int16_t eight __attribute__((vector_size(16), may_alias));

FL_INLINE void clear(int16_t *coefs) {
    eight *at = (eight *)coefs;
    at[0] = at[1] = at[2] = at[3] = at[4] = at[5] = at[6] = at[7] = (eight){0};
}

static void flush(const fl_jpeg_task *t, batch *a) {
    static const uint8_t log2_side[9] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    for (int c = 0; c < t->frame->count; c++) {
        if (a->pending[c]) t->kernels->idct[log2_side[t->plane[c].side]](a->jobs[c], a->pending[c], t->plane[c].quant, t->plane[c].stride);
        a->pending[c] = 0;
    }
    a->blocks = a->mcus = 0;
}

static void set_places(const fl_jpeg_task *t, place *places, uint32_t mcu_row, uint32_t mcu) {
    for (uint32_t c = 0, i = 0; c < t->frame->count; c++) {
        const fl_jpeg_plane *p = &t->plane[c];
        for (uint32_t j = 0; j < p->h * p->v; j++, i++) {
            const uint32_t row = mcu_row * p->v + j / p->h, column = mcu * p->h + j % p->h;
            const bool wanted = row >= p->rows.from && row < p->rows.to;
            places[i] = (place){
                .out = fl_jpeg_plane_row(p, row * p->side) + (column * p->side - p->origin),
                .step = p->h * p->side,
                .component = c,
                .column = column,
                .across = p->h,
                .wanted = wanted ? p->columns : (fl_jpeg_range){0, 0},
                .dc_only = p->side == 1,
            };
        }
    }
}

/* One block, made or passed over. */
FL_INLINE bool one_block(const fl_jpeg_task *t, batch *a, place *at, int *dc, uint32_t i, fl_jpeg_bits *b) {
    const bool wanted = at->column >= at->wanted.from && at->column < at->wanted.to;
    uint8_t *out = at->out;
    at->column += at->across;
    at->out += at->step;
    if (!wanted) return fl_jpeg_stream_pass_block(t, dc, i, b);
    int16_t *coefs = a->coefs + 64 * (size_t)a->blocks;
    clear(coefs);
    if (!fl_jpeg_stream_dc(t, dc, i, b)) return false;
    const fl_jpeg_codes *ac = &t->tables->ac[t->frame->block_ac[i]];
    int count = 1;
    if (!at->dc_only) count = fl_jpeg_make_ac(ac, b, coefs);
    else if (!fl_jpeg_skip_ac(ac, b)) return false;
    if (count < 0) return false;
    coefs[0] = (int16_t)dc[at->component];
    a->jobs[at->component][a->pending[at->component]++] = (fl_jpeg_job){coefs, out, count};
    a->blocks++;
    return true;
}

FL_INLINE bool make_mcus(const fl_jpeg_task *t, fl_jpeg_stream *s, batch *a, place *places, uint32_t count) {
    fl_jpeg_bits b = s->bits;
    const uint32_t blocks = t->frame->block_count;
    for (; count; count--) {
        for (uint32_t i = 0; i < blocks; i++)
            if (!one_block(t, a, &places[i], s->dc, i, &b)) return false;
        if (fl_jpeg_bits_at(&b) > s->plain_end) return false;
        if (++a->mcus == FL_JPEG_BATCH) flush(t, a);
    }
    s->bits = b;
    return true;
}

/* MCUs in stretches from restart to restart: made, where places are given. */
FL_INLINE bool stretch(const fl_jpeg_task *t, fl_jpeg_stream *s, batch *a, place *places, uint32_t count) {
    while (count) {
        if (!fl_jpeg_stream_ready(t, s)) return false;
        uint32_t now = count < s->until_restart ? count : s->until_restart;
        if (!(places ? make_mcus(t, s, a, places, now) : fl_jpeg_stream_pass(t, s, now))) return false;
        if (t->frame->interval) s->until_restart -= now;
        count -= now;
    }
    return true;
}

/* Goes to the last mark before the rectangle in this row, and makes plain no more than up to the first mark behind it. `check` is the last mark in
 * the rectangle or at its end, or the same one. */
static bool seek(const fl_jpeg_task *t, fl_jpeg_stream *s, uint32_t row, fl_jpeg_cursor *start, fl_jpeg_cursor *check) {
    const size_t size = (size_t)(t->end - t->at);
    fl_jpeg_cursor c = fl_jpeg_index_row(t->index, row);
    while (c.column + t->index->every <= t->mcu_columns.from && fl_jpeg_index_next(&c)) {}
    *start = *check = c;
    bool more = true;
    while (c.column < t->mcu_columns.to && (more = fl_jpeg_index_next(&c)))
        if (c.column <= t->mcu_columns.to) *check = c;
    if (!more && row + 1 < t->index->rows) c = fl_jpeg_index_row(t->index, row + 1), more = true;
    const uint64_t end = more && c.mark.bit / 8 + 2 < size ? c.mark.bit / 8 + 2 : size; /* 2: a stuffed byte */
    if (start->mark.bit / 8 > end) return false;
    s->at = t->at + start->mark.bit / 8;
    s->end = t->at + end;
    fl_jpeg_stream_interval(t, s);
    fl_jpeg_refill(&s->bits);
    fl_jpeg_take(&s->bits, start->mark.bit % 8);
    for (int i = 0; i < 3; i++) s->dc[i] = start->mark.dc[i];
    if (t->frame->interval) {
        const uint64_t mcu = (uint64_t)row * t->frame->mcus_across + start->column;
        s->until_restart = t->frame->interval - (uint32_t)(mcu % t->frame->interval);
        s->restart = (uint8_t)(FL_JPEG_RST0 + (mcu / t->frame->interval & 7));
    }
    return true;
}

/* Whether the stream is where the index has this mark. */
static bool is_at(const fl_jpeg_task *t, fl_jpeg_stream *s, const fl_jpeg_mark *mark) {
    if (!fl_jpeg_stream_ready(t, s)) return false;
    const uint64_t bit = (uint64_t)(s->bits.at - t->plain) * 8 - s->bits.left;
    const uint8_t *end = t->plain + bit / 8, *at = t->plain;
    uint64_t stuffed = 0;
    for (; (at = memchr(at, 0xFF, (size_t)(end - at))) != NULL; at++) stuffed++;
    if (mark->bit != ((uint64_t)(s->coded - t->at) + stuffed) * 8 + bit) return false;
    for (int i = 0; i < t->frame->count; i++)
        if (s->dc[i] != mark->dc[i]) return false;
    return true;
}

/* One MCU row of the rectangle by the index. An index that leads elsewhere is found out at the next mark. */
FL_INLINE bool indexed_row(const fl_jpeg_task *t, fl_jpeg_stream *s, batch *a, place *places, uint32_t row) {
    const uint32_t left = t->mcu_columns.from, right = t->mcu_columns.to;
    fl_jpeg_cursor start, check;
    if (!seek(t, s, row, &start, &check) || !stretch(t, s, a, NULL, left - start.column)) return false;
    if (check.column == start.column) return stretch(t, s, a, places, right - left);
    return stretch(t, s, a, places, check.column - left) && is_at(t, s, &check.mark) && stretch(t, s, a, places, right - check.column);
}

FL_INLINE bool rows(fl_jpeg_task *t, fl_jpeg_stream *s, batch *a) {
    const uint32_t across = t->frame->mcus_across, left = t->mcu_columns.from, right = t->mcu_columns.to;
    place places[FL_JPEG_BLOCKS_MAX];
    if (!t->index) {
        fl_jpeg_stream_begin(t, s);
        for (uint32_t row = 0; row < t->mcu_rows.from; row++)
            if (!stretch(t, s, a, NULL, across)) return false;
    }
    for (uint32_t row = t->mcu_rows.from; row < t->mcu_rows.to; row++) {
        set_places(t, places, row, left);
        if (t->index) {
            if (!indexed_row(t, s, a, places, row)) return false;
        } else if (!stretch(t, s, a, NULL, left) || !stretch(t, s, a, places, right - left)) {
            return false;
        }
        flush(t, a);
        fl_jpeg_emit_rows(t, row);
        if (!t->index && row + 1 < t->mcu_rows.to && !stretch(t, s, a, NULL, across - right)) return false;
    }
    return true;
}

#if defined(__x86_64__)
FL_BMI2 static bool rows_bmi2(fl_jpeg_task *t, fl_jpeg_stream *s, batch *a) { return rows(t, s, a); }
#endif

bool fl_jpeg_decode_rows(fl_jpeg_task *t) {
    fl_jpeg_stream s;
    batch a;
    memset(a.pending, 0, sizeof a.pending);
    a.blocks = a.mcus = 0;
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return rows_bmi2(t, &s, &a);
#endif
    return rows(t, &s, &a);
}
