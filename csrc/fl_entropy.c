/* The walk of fl_entropy.h. Source of the rules: ITU-T T.81, F.2 (sequential decoding). */
#include "fl_entropy.h"

#include <stdlib.h>

#include "fl_huff.h"

struct fl_entropy {
    fl_tables tables;
    uint8_t *plain; /* coded data of one restart interval, stuffing removed, FL_PAD zeros behind */
    size_t room;
};

fl_code fl_entropy_create(fl_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_entropy_free(fl_entropy *entropy) {
    if (entropy) free(entropy->plain);
    free(entropy);
}

/* MCUs that lie between two markers, with nothing behind them but padding to a whole byte. */
static bool walk_interval(const fl_entropy *e, const fl_frame *f, uint32_t mcus, size_t size) {
    fl_bits b = {e->plain, 0, 0};
    const uint8_t *end = e->plain + size;
    for (uint32_t mcu = 0; mcu < mcus; mcu++) {
        for (int i = 0; i < f->block_count; i++) {
            if (fl_dc(&e->tables.dc[f->block_dc[i]], &b) == FL_NO_DC) return false;
            if (!fl_skip_ac(&e->tables.ac[f->block_ac[i]], &b)) return false;
        }
        if (fl_bits_at(&b) > end) return false;
    }
    ptrdiff_t rest = (end - b.at) * 8 + (ptrdiff_t)b.left;
    return rest >= 0 && rest < 8;
}

static bool walk_scan(fl_entropy *e, const fl_frame *f, const uint8_t *at, const uint8_t *end) {
    size_t need = (size_t)(end - at) + FL_PAD;
    if (need > e->room) {
        free(e->plain);
        e->plain = malloc(need);
        e->room = e->plain ? need : 0;
        if (!e->plain) return false;
    }
    uint32_t left = f->mcus_across * f->mcus_down;
    for (uint8_t restart = FL_RST0;; restart = (uint8_t)(FL_RST0 + ((restart - FL_RST0 + 1) & 7))) {
        uint32_t mcus = f->interval && f->interval < left ? f->interval : left;
        size_t size;
        at = fl_scan_unstuff(at, end, e->plain, &size);
        if (!walk_interval(e, f, mcus, size)) return false;
        left -= mcus;
        if (!fl_scan_marker(at, end, left ? restart : FL_EOI)) return false;
        if (!left) return true;
        at += 2;
    }
}

bool fl_entropy_sound(fl_entropy *e, const uint8_t *bytes, size_t size) {
    fl_frame f;
    return fl_scan_open(&e->tables, &f, bytes, size) && walk_scan(e, &f, bytes + f.data, bytes + size);
}
