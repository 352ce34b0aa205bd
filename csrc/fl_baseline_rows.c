/* Entropy decoding of a rectangle of MCUs. Outside of it codes are passed over, for their lengths and for the sums of DC differences. */
#include "fl_baseline_parts.h"

typedef struct stream {
    fl_bits bits;
    const uint8_t *plain_end;
    uint32_t until_restart;
    uint8_t restart; /* the next restart marker */
    int dc[3];
    _Alignas(32) int16_t coefs[FL_BATCH * FL_MCU_BLOCKS * 64 + 64];
    fl_job jobs[3][FL_BATCH * 4];
    uint32_t pending[3], blocks, mcus;
} stream;

static bool begin_interval(fl_task *t, stream *s) {
    size_t size;
    t->at = fl_scan_unstuff(t->at, t->end, t->plain, &size);
    s->bits = (fl_bits){t->plain, 0, 0};
    s->plain_end = t->plain + size;
    s->until_restart = t->frame->interval ? t->frame->interval : UINT32_MAX;
    memset(s->dc, 0, sizeof s->dc);
    return true;
}

/* Between two intervals there is nothing but padding to a whole byte and the marker that is due. */
static bool restart(fl_task *t, stream *s) {
    ptrdiff_t rest = (s->plain_end - s->bits.at) * 8 + (ptrdiff_t)s->bits.left;
    if (rest < 0 || rest >= 8 || !fl_scan_marker(t->at, t->end, s->restart)) return false;
    t->at += 2;
    s->restart = (uint8_t)(FL_RST0 + ((s->restart - FL_RST0 + 1) & 7));
    return begin_interval(t, s);
}

static void flush(fl_task *t, stream *s) {
    static const uint8_t log2_side[9] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    for (int c = 0; c < t->frame->count; c++) {
        if (s->pending[c]) t->kernels->idct[log2_side[t->plane[c].side]](s->jobs[c], s->pending[c], t->plane[c].quant, t->plane[c].stride);
        s->pending[c] = 0;
    }
    s->blocks = s->mcus = 0;
}

/* memset would be a call, or a slow instruction, for every block. */
typedef int16_t sixteen __attribute__((vector_size(32), may_alias));

FL_INLINE bool add_dc(const fl_task *t, int *dc, uint32_t block, fl_bits *b) {
    int sum = dc[t->frame->block_component[block]] + fl_dc(&t->tables->dc[t->frame->block_dc[block]], b);
    dc[t->frame->block_component[block]] = sum;
    return sum == (int16_t)sum; /* also when there was no code */
}

FL_INLINE bool pass_mcus(const fl_task *t, stream *s, uint32_t count) {
    fl_bits b = s->bits;
    const uint32_t blocks = t->frame->block_count;
    for (; count; count--) {
        for (uint32_t i = 0; i < blocks; i++)
            if (!add_dc(t, s->dc, i, &b) || !fl_skip_ac(&t->tables->ac[t->frame->block_ac[i]], &b)) return false;
        if (fl_bits_at(&b) > s->plain_end) return false;
    }
    s->bits = b;
    return true;
}

/* A block that is wanted: its coefficients, and where its samples will go. */
FL_INLINE bool make_block(const fl_task *t, stream *s, fl_bits *b, uint32_t i, uint32_t c, uint32_t column, uint32_t row) {
    const fl_plane *p = &t->plane[c];
    int16_t *coefs = s->coefs + 64 * (size_t)s->blocks;
    for (int j = 0; j < 4; j++) ((sixteen *)coefs)[j] = (sixteen){0};
    if (!add_dc(t, s->dc, i, b)) return false;
    const fl_codes *ac = &t->tables->ac[t->frame->block_ac[i]];
    int count = 1;
    if (p->side > 1) count = fl_make_ac(ac, b, coefs);
    else if (!fl_skip_ac(ac, b)) return false;
    if (count < 0) return false;
    coefs[0] = (int16_t)s->dc[c];
    uint8_t *out = fl_plane_row(p, row * p->side) + ((size_t)column * p->side - p->origin);
    s->jobs[c][s->pending[c]++] = (fl_job){coefs, out, count};
    s->blocks++;
    return true;
}

FL_INLINE bool make_mcus(fl_task *t, stream *s, uint32_t mcu_row, uint32_t from, uint32_t to) {
    fl_bits b = s->bits;
    for (uint32_t mcu = from; mcu < to; mcu++) {
        uint32_t i = 0;
        for (uint32_t c = 0; c < t->frame->count; c++) {
            const fl_plane *p = &t->plane[c];
            for (uint32_t y = 0; y < p->v; y++) {
                const uint32_t row = mcu_row * p->v + y;
                for (uint32_t x = 0; x < p->h; x++, i++) {
                    const uint32_t column = mcu * p->h + x;
                    if (column >= p->columns.from && column < p->columns.to && row >= p->rows.from && row < p->rows.to) {
                        if (!make_block(t, s, &b, i, c, column, row)) return false;
                    } else if (!add_dc(t, s->dc, i, &b) || !fl_skip_ac(&t->tables->ac[t->frame->block_ac[i]], &b)) {
                        return false;
                    }
                }
            }
        }
        if (fl_bits_at(&b) > s->plain_end) return false;
        if (++s->mcus == FL_BATCH) flush(t, s);
    }
    s->bits = b;
    return true;
}

/* MCUs from..to of a row, wanted or not, in stretches from restart to restart. */
FL_INLINE bool stretch(fl_task *t, stream *s, bool wanted, uint32_t mcu_row, uint32_t from, uint32_t to) {
    while (from < to) {
        if (s->until_restart == 0 && !restart(t, s)) return false;
        uint32_t count = to - from < s->until_restart ? to - from : s->until_restart;
        if (!(wanted ? make_mcus(t, s, mcu_row, from, from + count) : pass_mcus(t, s, count))) return false;
        if (t->frame->interval) s->until_restart -= count;
        from += count;
    }
    return true;
}

FL_INLINE bool rows(fl_task *t, stream *s) {
    const uint32_t across = t->frame->mcus_across, left = t->mcu_columns.from, right = t->mcu_columns.to;
    for (uint32_t row = 0; row < t->mcu_rows.to; row++) {
        if (row < t->mcu_rows.from) {
            if (!stretch(t, s, false, row, 0, across)) return false;
            continue;
        }
        if (!stretch(t, s, false, row, 0, left) || !stretch(t, s, true, row, left, right)) return false;
        flush(t, s);
        fl_emit(t, row);
        if (row + 1 < t->mcu_rows.to && !stretch(t, s, false, row, right, across)) return false;
    }
    return true;
}

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2"))) static bool rows_bmi2(fl_task *t, stream *s) { return rows(t, s); }
#endif

bool fl_decode_rows(fl_task *t) {
    stream s;
    s.restart = FL_RST0;
    memset(s.pending, 0, sizeof s.pending);
    s.blocks = s.mcus = 0;
    if (!begin_interval(t, &s)) return false;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("bmi2")) return rows_bmi2(t, &s);
#endif
    return rows(t, &s);
}
