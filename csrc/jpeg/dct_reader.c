#include "jpeg/dct_reader.h"

/* Where the segment that begins at `bit` ends. */
static void bound(fl_jpeg_dct_reader *r, uint64_t bit) {
    const fl_jpeg_dct_strip *s = r->strip;
    const bool final = r->segment + 1 >= s->form->segments;
    r->segment_end = final ? s->lane->blocks : (r->segment + 1) * s->lane->every;
    r->segment_bit = final ? s->end : bit + fl_jpeg_dct_step(s, r->segment);
}

bool fl_jpeg_dct_enter(fl_jpeg_dct_reader *r, const fl_jpeg_dct_kernels *kernels, const fl_jpeg_dct_strip *s,
                       uint32_t from, uint32_t to, const int16_t *dc) {
    uint64_t bit = s->ac;
    const uint32_t segment = from / s->lane->every, block = segment * s->lane->every;
    for (uint32_t i = 0; i < segment; i++) bit += fl_jpeg_dct_step(s, i);
    if (bit > s->end) return false;
    *r = (fl_jpeg_dct_reader){.strip = s, .to = to, .segment = segment};
    r->run = (fl_jpeg_dct_run){.at = s->at,
                               .bit = bit,
                               .end = s->end,
                               .lasts = s->lasts,
                               .block = block,
                               .count = from - block,
                               .orders = &s->form->orders[s->lane->component],
                               .dc = dc};
    bound(r, bit);
    return kernels->pass(&r->run);
}

bool fl_jpeg_dct_settle(fl_jpeg_dct_reader *r) {
    if (r->run.block < r->segment_end) return true;
    if (r->segment_end == r->strip->lane->blocks)
        return r->segment_bit - r->run.bit < 8; /* padding; the position is not beyond the end */
    if (r->run.bit != r->segment_bit) return false;
    r->segment++;
    bound(r, r->run.bit);
    return true;
}
