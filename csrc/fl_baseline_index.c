/* The entropy index: one pass over the coded data. */
#include "fl_baseline_index.h"

#include "fl_baseline_stream.h"

/* Follows the coded bytes beside the plain ones that were made of them. */
typedef struct follower {
    const uint8_t *coded, *plain;
} follower;

static void follow(follower *f, const uint8_t *plain) {
    while (f->plain < plain) {
        f->coded += *f->coded == 0xFF ? 2 : 1;
        f->plain++;
    }
}

bool fl_index_make(const fl_task *t, uint32_t every, fl_mark *marks) {
    fl_stream s;
    const uint8_t *coded = t->at; /* where this interval starts */
    fl_stream_begin(t, &s);
    follower f = {coded, t->plain};
    for (uint32_t row = 0; row < t->frame->mcus_down; row++) {
        for (uint32_t column = 0; column < t->frame->mcus_across; column++) {
            if (s.until_restart == 0) {
                coded = s.at + 2;
                if (!fl_stream_ready(t, &s)) return false;
                f = (follower){coded, t->plain};
            }
            if (column % every == 0) {
                const ptrdiff_t used = (s.bits.at - t->plain) * 8 - (ptrdiff_t)s.bits.left; /* bits */
                follow(&f, t->plain + used / 8);
                *marks++ =
                    (fl_mark){(uint32_t)(f.coded - t->at), (uint8_t)(used % 8), {(int16_t)s.dc[0], (int16_t)s.dc[1], (int16_t)s.dc[2]}};
            }
            if (!fl_stream_pass(t, &s, 1)) return false;
            if (t->frame->interval) s.until_restart--;
        }
    }
    return true;
}
