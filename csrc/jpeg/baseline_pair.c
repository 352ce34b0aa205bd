#include "jpeg/baseline_pair.h"

#include "common/cpu.h"

/* The next block of a stretch, of which only a part is left. */
typedef struct progress {
    fl_jpeg_stretch *of;
    const fl_jpeg_codes *ac; /* of the block in work */
    fl_jpeg_job *job; /* that of the block in work */
    uint32_t block, mcus; /* of the MCU; MCUs that are not done */
} progress;

typedef enum outcome { DAMAGED, GOES_ON, DONE } outcome;

/* The stretch's next block that has AC coefficients to make. */
FL_INLINE outcome next_block(const fl_jpeg_task *t, progress *p, fl_jpeg_making *r) {
    fl_jpeg_stretch *of = p->of;
    fl_jpeg_batch *batch = &of->batch;
    for (;;) {
        if (p->block == t->frame->block_count) {
            if (fl_jpeg_bits_at(&r->bits) > of->stream.plain_end) return DAMAGED;
            if (++batch->mcus == FL_JPEG_BATCH) fl_jpeg_batch_flush(t, batch);
            if (!--p->mcus) return DONE;
            p->block = 0;
        }
        const uint32_t i = p->block++;
        fl_jpeg_block_place *place = &of->places[i];
        uint8_t *out;
        if (!fl_jpeg_block_next(place, &out)) {
            if (!fl_jpeg_stream_pass_block(t, of->stream.dc, i, &r->bits)) return DAMAGED;
            continue;
        }
        const uint32_t component = place->component;
        r->block = batch->coefs + 64 * (size_t)batch->blocks++;
        fl_jpeg_block_clear(r->block);
        if (!fl_jpeg_stream_dc(t, of->stream.dc, i, &r->bits)) return DAMAGED;
        r->block[0] = (int16_t)of->stream.dc[component];
        p->ac = &t->tables->ac[t->frame->block_ac[i]];
        p->job = &batch->jobs[component][batch->pending[component]++];
        *p->job = (fl_jpeg_job){r->block, out, 1};
        if (!place->dc_only) break;
        if (!fl_jpeg_skip_ac(p->ac, &r->bits)) return DAMAGED;
    }
    r->make = p->ac->make;
    r->k = 1;
    return GOES_ON;
}

/* A turn of any kind, and where the block ends with it on to the next one. */
FL_INLINE outcome step(const fl_jpeg_task *t, progress *p, fl_jpeg_making *r) {
    const int count = fl_jpeg_make_any(p->ac, r, FL_JPEG_IN_NATURAL_ORDER);
    if (!count) return GOES_ON;
    if (count < 0) return DAMAGED;
    p->job->count = count;
    return next_block(t, p, r);
}

FL_INLINE outcome begin(const fl_jpeg_task *t, fl_jpeg_stretch *of, progress *p, fl_jpeg_making *r) {
    *p = (progress){.of = of, .mcus = of->mcus};
    *r = (fl_jpeg_making){.bits = of->stream.bits};
    return next_block(t, p, r);
}

/* Goes on with one alone when the other is done. */
FL_INLINE bool alone(const fl_jpeg_task *t, progress p, fl_jpeg_making r) {
    for (outcome now = GOES_ON; now == GOES_ON;) {
        bool more = true;
        fl_jpeg_refill(&r.bits);
        for (int i = 0; i < FL_JPEG_TURNS && more; i++) more = fl_jpeg_make_two(&r, FL_JPEG_IN_NATURAL_ORDER);
        if (!more) now = step(t, &p, &r);
        if (now == DAMAGED) return false;
    }
    p.of->stream.bits = r.bits;
    return true;
}

FL_INLINE bool pair(const fl_jpeg_task *t, fl_jpeg_stretch *one, fl_jpeg_stretch *two) {
    progress p, q;
    fl_jpeg_making a, b;
    outcome first = begin(t, one, &p, &a), second = begin(t, two, &q, &b);
    while (first == GOES_ON && second == GOES_ON) {
        fl_jpeg_refill(&a.bits);
        fl_jpeg_refill(&b.bits);
        for (int i = 0; i < FL_JPEG_TURNS; i++) {
            if (!fl_jpeg_make_two(&a, FL_JPEG_IN_NATURAL_ORDER)) {
                first = step(t, &p, &a);
                break;
            }
            if (!fl_jpeg_make_two(&b, FL_JPEG_IN_NATURAL_ORDER)) {
                second = step(t, &q, &b);
                break;
            }
        }
    }
    if (first == DAMAGED || second == DAMAGED) return false;
    if (first == DONE) one->stream.bits = a.bits;
    if (second == DONE) two->stream.bits = b.bits;
    if (first == second) return true;
    return alone(t, first == DONE ? q : p, first == DONE ? b : a);
}

#if defined(__x86_64__)
FL_BMI2 static bool pair_bmi2(const fl_jpeg_task *t, fl_jpeg_stretch *one, fl_jpeg_stretch *two) {
    return pair(t, one, two);
}
#endif

bool fl_jpeg_decode_pair(const fl_jpeg_task *t, fl_jpeg_stretch *one, fl_jpeg_stretch *two) {
#if defined(__x86_64__)
    if (fl_cpu_has(FL_CPU_BMI2)) return pair_bmi2(t, one, two);
#endif
    return pair(t, one, two);
}
