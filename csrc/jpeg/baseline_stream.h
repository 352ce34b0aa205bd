/* jpeg/baseline_stream: the coded data of a scan as a run of MCUs: restarts, DC predictors, and passing over
 * what is not wanted. */
#ifndef FL_JPEG_BASELINE_STREAM_H
#define FL_JPEG_BASELINE_STREAM_H

#include "jpeg/baseline_parts.h"
#include "jpeg/header.h"
#include "jpeg/huffman.h"
#include "jpeg/markers.h"

typedef struct fl_jpeg_stream {
    fl_jpeg_bits bits;
    const uint8_t *coded; /* those of this interval, and ... */
    const uint8_t *at, *end; /* ... those not yet made plain */
    uint8_t *plain; /* where they are made plain: room for all of them and FL_JPEG_PAD more */
    const uint8_t *plain_end;
    uint32_t until_restart;
    uint8_t restart; /* the next restart marker */
    int dc[3];
} fl_jpeg_stream;

static inline void fl_jpeg_stream_interval(const fl_jpeg_task *t, fl_jpeg_stream *s) {
    size_t size;
    s->coded = s->at;
    s->at = fl_jpeg_unstuff(s->at, s->end, s->plain, &size);
    s->bits = (fl_jpeg_bits){s->plain, 0, 0};
    s->plain_end = s->plain + size;
    s->until_restart = t->frame->interval ? t->frame->interval : UINT32_MAX;
    memset(s->dc, 0, sizeof s->dc);
}

/* At the first MCU. */
static inline void fl_jpeg_stream_begin(const fl_jpeg_task *t, fl_jpeg_stream *s) {
    s->at = t->at;
    s->end = t->end;
    s->restart = FL_JPEG_RST0;
    fl_jpeg_stream_interval(t, s);
}

/* To be called before an MCU: at the end of an interval passes over the restart marker, before which there
 * may be nothing but padding to a whole byte. */
static inline bool fl_jpeg_stream_ready(const fl_jpeg_task *t, fl_jpeg_stream *s) {
    if (s->until_restart) return true;
    ptrdiff_t rest = (s->plain_end - s->bits.at) * 8 + (ptrdiff_t)s->bits.left;
    if (rest < 0 || rest >= 8 || !fl_jpeg_marker_at(s->at, s->end, s->restart)) return false;
    s->at += 2;
    s->restart = (uint8_t)(FL_JPEG_RST0 + ((s->restart - FL_JPEG_RST0 + 1) & 7));
    fl_jpeg_stream_interval(t, s);
    return true;
}

FL_INLINE bool fl_jpeg_stream_dc(const fl_jpeg_task *t, int *dc, uint32_t block, fl_jpeg_bits *b) {
    int *sum = &dc[t->frame->block_component[block]];
    *sum += fl_jpeg_dc(&t->tables->dc[t->frame->block_dc[block]], b);
    return *sum == (int16_t)*sum; /* nor is it when there was no code */
}

FL_INLINE bool fl_jpeg_stream_pass_block(const fl_jpeg_task *t, int *dc, uint32_t block, fl_jpeg_bits *b) {
    return fl_jpeg_stream_dc(t, dc, block, b) &&
           fl_jpeg_skip_ac(&t->tables->ac[t->frame->block_ac[block]], b);
}

/* Passes over MCUs that end before the next restart. */
FL_INLINE bool fl_jpeg_stream_pass(const fl_jpeg_task *t, fl_jpeg_stream *s, uint32_t count) {
    fl_jpeg_bits b = s->bits;
    int dc[3] = {s->dc[0], s->dc[1], s->dc[2]};
    const uint32_t blocks = t->frame->block_count;
    for (; count; count--) {
        for (uint32_t i = 0; i < blocks; i++)
            if (!fl_jpeg_stream_pass_block(t, dc, i, &b)) return false;
        if (fl_jpeg_bits_at(&b) > s->plain_end) return false;
    }
    s->bits = b;
    memcpy(s->dc, dc, sizeof dc);
    return true;
}

#endif
