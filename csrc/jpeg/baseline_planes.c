#include "jpeg/baseline_planes.h"

#include "jpeg/baseline_emit.h"
#include "jpeg/dct_reader.h"

enum {
    CHUNK = 16 /* blocks between two turns of the inverse DCT */,
    SPLIT_LEAST = 8 /* blocks of a row that are worth two runs */
};

/* The wanted blocks of a strip: where their samples go, and their DC coefficients. */
typedef struct lane {
    const fl_jpeg_plane *plane;
    fl_jpeg_dct_strip strip;
    fl_jpeg_range columns;
    uint8_t *row; /* of the plane, at column 0 of the image: may lie before the plane */
    int16_t *dc;
} lane;

/* A run of blocks with room for a chunk. */
typedef struct maker {
    const lane *of;
    fl_jpeg_dct_reader reader;
    uint8_t counts[CHUNK];
    _Alignas(64) int16_t coefs[CHUNK * 64 + 64];
} maker;

size_t fl_jpeg_planes_room(const fl_jpeg_dct_form *form, uint32_t mcus) {
    return (size_t)form->lanes * mcus * 2 * sizeof(int16_t); /* 2: blocks of an MCU side by side, at most */
}

static void transform(const fl_jpeg_task *t, const fl_jpeg_plane *p, const fl_jpeg_job *jobs, size_t n) {
    static const uint8_t log2_side[9] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    if (n) t->kernels->idct[log2_side[p->side]](jobs, n, p->quant, p->stride);
}

static uint8_t *samples_at(const lane *l, uint32_t column) {
    return l->row + ((size_t)column * l->plane->side - l->plane->origin);
}

/* Samples that are made of DC coefficients. */
static void make_dc(const fl_jpeg_task *t, const lane *l) {
    fl_jpeg_job jobs[CHUNK];
    size_t n = 0;
    for (uint32_t column = l->columns.from; column < l->columns.to; column++) {
        jobs[n++] = (fl_jpeg_job){l->dc + (column - l->columns.from), samples_at(l, column), 1};
        if (n == CHUNK || column + 1 == l->columns.to) transform(t, l->plane, jobs, n), n = 0;
    }
}

static bool enter(const fl_jpeg_dct_kernels *kernels, maker *m, const lane *l, uint32_t from, uint32_t to) {
    m->of = l;
    return fl_jpeg_dct_enter(&m->reader, kernels, &l->strip, from, to, l->dc + (from - l->columns.from));
}

/* The blocks made last, which are `count`. */
static bool finish(const fl_jpeg_task *t, maker *m, uint32_t count) {
    fl_jpeg_job jobs[CHUNK];
    const uint32_t first = m->reader.run.block - count;
    for (uint32_t i = 0; i < count; i++)
        jobs[i] = (fl_jpeg_job){m->coefs + 64 * i, samples_at(m->of, first + i), m->counts[i]};
    transform(t, m->of->plane, jobs, count);
    return fl_jpeg_dct_settle(&m->reader);
}

/* Two runs side by side until both are done. */
static bool make_both(const fl_jpeg_task *t, const fl_jpeg_dct_kernels *kernels, maker m[2]) {
    for (;;) {
        uint32_t count[2];
        for (int i = 0; i < 2; i++) {
            fl_jpeg_dct_run *run = &m[i].reader.run;
            count[i] = m[i].of ? fl_jpeg_dct_next(&m[i].reader, CHUNK) : 0;
            run->coefs = m[i].coefs;
            run->counts = m[i].counts;
        }
        if (!count[0] && !count[1]) return true;
        if (!kernels->make(&m[0].reader.run, &m[1].reader.run)) return false;
        for (int i = 0; i < 2; i++)
            if (count[i] && !finish(t, &m[i], count[i])) return false;
    }
}

/* The entry point next to the middle, or columns.to when there is none in between. */
static uint32_t middle_of(const lane *l) {
    const uint32_t every = l->strip.lane->every, from = l->columns.from, to = l->columns.to;
    const uint32_t middle = (from + (to - from) / 2 + every / 2) / every * every;
    return to - from >= SPLIT_LEAST && middle > from && middle < to ? middle : to;
}

/* One or two lanes of the same blocks. */
static bool make_lanes(const fl_jpeg_task *t, const fl_jpeg_dct_kernels *kernels, const lane *lanes,
                       uint32_t count, maker m[2]) {
    const fl_jpeg_range columns = lanes[0].columns;
    const uint32_t middle = count == 1 ? middle_of(&lanes[0]) : columns.to;
    if (!enter(kernels, &m[0], &lanes[0], columns.from, middle)) return false;
    m[1].of = NULL;
    m[1].reader.run.count = 0;
    if (count == 2 && !enter(kernels, &m[1], &lanes[1], columns.from, columns.to)) return false;
    if (count == 1 && middle < columns.to && !enter(kernels, &m[1], &lanes[0], middle, columns.to))
        return false;
    return make_both(t, kernels, m);
}

/* A row's lanes whose AC planes are read, of luma or of chroma. */
static bool collect(const fl_jpeg_task *t, const fl_jpeg_dct_form *form, uint32_t mcu_row, bool chroma,
                    lane *lanes, uint32_t *count) {
    const uint32_t mcus = t->mcu_columns.to - t->mcu_columns.from;
    *count = 0;
    for (uint32_t i = 0; i < form->lanes; i++) {
        const fl_jpeg_dct_lane *of = &form->lane[i];
        const fl_jpeg_plane *p = &t->plane[of->component];
        const uint32_t row = mcu_row * p->v + of->row;
        if ((of->component > 0) != chroma || row < p->rows.from || row >= p->rows.to) continue;
        lane *l = &lanes[*count];
        *l = (lane){.plane = p,
                    .columns = p->columns,
                    .row = fl_jpeg_plane_row(p, row * p->side),
                    .dc = (int16_t *)(void *)t->plain + (size_t)i * mcus * 2};
        if (!fl_jpeg_dct_find(form, mcu_row, i, &l->strip) ||
            !fl_jpeg_dct_dc(&l->strip, p->columns.from, p->columns.to, l->dc))
            return false;
        if (p->side == 1) make_dc(t, l);
        else ++*count;
    }
    return true;
}

bool fl_jpeg_decode_planes(fl_jpeg_task *t, const fl_jpeg_dct_form *form) {
    const fl_jpeg_dct_kernels *kernels = fl_jpeg_dct_kernels_best();
    maker m[2];
    for (uint32_t row = t->mcu_rows.from; row < t->mcu_rows.to; row++) {
        for (int chroma = 0; chroma < (t->frame->count == 1 ? 1 : 2); chroma++) {
            lane lanes[2];
            uint32_t count;
            if (!collect(t, form, row, chroma, lanes, &count)) return false;
            if (count && !make_lanes(t, kernels, lanes, count, m)) return false;
        }
        fl_jpeg_emit_rows(t, row);
    }
    return true;
}
