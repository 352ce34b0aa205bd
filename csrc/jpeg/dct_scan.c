/* Source of the rules: ITU-T T.81, annex F.1.2. */
#include "jpeg/dct_scan.h"

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/markers.h"

enum { BLOCK_MOST = 64 * 4 * 2 /* 31 bits a coefficient, each byte stuffed */, RESTART_MOST = 4 };

fl_jpeg_dct_rows fl_jpeg_dct_rows_in(const fl_jpeg_frame *f, int16_t *room) {
    fl_jpeg_dct_rows out = {0};
    for (int c = 0; c < f->count; c++) {
        const uint32_t h = f->count == 1 ? 1 : f->h[c], v = f->count == 1 ? 1 : f->v[c];
        out.across[c] = f->mcus_across * h;
        out.blocks[c] = room;
        room += (size_t)out.across[c] * v * 64;
    }
    return out;
}

/* A walk over the blocks of an MCU row in the order of the scan. */
typedef struct walk {
    int16_t *at[FL_JPEG_BLOCKS_MAX]; /* of MCU 0 */
    size_t step[FL_JPEG_BLOCKS_MAX];
} walk;

static walk walk_row(const fl_jpeg_frame *f, const fl_jpeg_dct_rows *rows) {
    walk w;
    for (uint32_t c = 0, i = 0; c < f->count; c++) {
        const uint32_t h = f->count == 1 ? 1 : f->h[c], v = f->count == 1 ? 1 : f->v[c];
        for (uint32_t j = 0; j < h * v; j++, i++) {
            w.at[i] = rows->blocks[c] + ((size_t)(j / h) * rows->across[c] + j % h) * 64;
            w.step[i] = (size_t)h * 64;
        }
    }
    return w;
}

void fl_jpeg_dct_scan_begin(fl_jpeg_dct_scan *s, const fl_jpeg_tables *tables, const fl_jpeg_frame *f,
                            bool ones) {
    *s = (fl_jpeg_dct_scan){.frame = f,
                            .kernels = fl_jpeg_dct_kernels_best(),
                            .ones = ones,
                            .until_restart = f->interval ? f->interval : UINT32_MAX,
                            .restart = FL_JPEG_RST0};
    for (int i = 0; i < 4; i++) {
        if (f->dcs >> i & 1) fl_jpeg_dct_number(&tables->dc[i], s->dc[i]);
        if (f->acs >> i & 1) fl_jpeg_dct_number(&tables->ac[i], s->ac[i]);
    }
}

size_t fl_jpeg_dct_scan_most(const fl_jpeg_frame *f) {
    return (size_t)fl_jpeg_dct_row_blocks(f) * BLOCK_MOST + (size_t)f->mcus_across * RESTART_MOST + 8;
}

uint8_t *fl_jpeg_dct_scan_end(fl_jpeg_dct_scan *s, uint8_t *out) {
    uint8_t last[1];
    return fl_jpeg_dct_stuff(last, fl_jpeg_dct_fill(&s->bits, &s->count, s->ones, last), out);
}

FL_INLINE uint8_t *write_block(fl_jpeg_dct_scan *s, uint32_t i, const int16_t *block, uint8_t *out) {
    const fl_jpeg_frame *f = s->frame;
    const fl_jpeg_dct_code *ac = s->ac[f->block_ac[i]];
    int *before = &s->before[f->block_component[i]];
    const int difference = block[0] - *before;
    uint64_t bits = s->bits;
    unsigned count = s->count, size = fl_jpeg_dct_bits_of(difference);
    *before = block[0];
    fl_jpeg_dct_code code = s->dc[f->block_dc[i]][size];
    if (!code.bits) return NULL;
    out = fl_jpeg_dct_put_value(&bits, &count, code, difference, size, out);
    uint8_t places[FL_JPEG_DCT_LIST];
    int16_t values[FL_JPEG_DCT_LIST];
    _Alignas(64) int16_t ordered[64];
    s->kernels->order(block, ordered);
    const unsigned n = s->kernels->list(ordered, places, values);
    unsigned next = 1; /* position behind the last coefficient */
    for (unsigned k = 0; k < n; k++) {
        unsigned run = places[k] - next;
        for (; run > 15; run -= 16) {
            if (!ac[FL_JPEG_ZEROS].bits) return NULL;
            out = fl_jpeg_dct_put(&bits, &count, ac[FL_JPEG_ZEROS].code, ac[FL_JPEG_ZEROS].bits, out);
        }
        size = fl_jpeg_dct_bits_of(values[k]);
        code = ac[run << 4 | size];
        if (!code.bits) return NULL;
        out = fl_jpeg_dct_put_value(&bits, &count, code, values[k], size, out);
        next = places[k] + 1u;
    }
    if (next < 64) {
        if (!ac[0].bits) return NULL;
        out = fl_jpeg_dct_put(&bits, &count, ac[0].code, ac[0].bits, out);
    }
    s->bits = bits;
    s->count = count;
    return out;
}

FL_INLINE uint8_t *write_row(fl_jpeg_dct_scan *s, const fl_jpeg_dct_rows *rows, uint8_t *plain,
                             uint8_t *out) {
    const fl_jpeg_frame *f = s->frame;
    walk w = walk_row(f, rows);
    uint8_t *at = plain;
    for (uint32_t mcu = 0; mcu < f->mcus_across; mcu++) {
        if (!s->until_restart) {
            out = fl_jpeg_dct_stuff(plain, fl_jpeg_dct_fill(&s->bits, &s->count, s->ones, at), out);
            at = plain;
            *out++ = 0xFF;
            *out++ = s->restart;
            s->restart = (uint8_t)(FL_JPEG_RST0 + ((s->restart - FL_JPEG_RST0 + 1) & 7));
            s->until_restart = f->interval;
            memset(s->before, 0, sizeof s->before);
        }
        if (f->interval) s->until_restart--;
        for (uint32_t i = 0; i < f->block_count; i++) {
            if (!(at = write_block(s, i, w.at[i], at))) return NULL;
            w.at[i] += w.step[i];
        }
    }
    return fl_jpeg_dct_stuff(plain, at, out);
}

#if defined(__x86_64__)
FL_BMI2 static uint8_t *write_row_bmi2(fl_jpeg_dct_scan *s, const fl_jpeg_dct_rows *rows, uint8_t *plain,
                                       uint8_t *out) {
    return write_row(s, rows, plain, out);
}
#endif

uint8_t *fl_jpeg_dct_scan_row(fl_jpeg_dct_scan *s, const fl_jpeg_dct_rows *rows, uint8_t *plain,
                              uint8_t *out) {
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return write_row_bmi2(s, rows, plain, out);
#endif
    return write_row(s, rows, plain, out);
}
