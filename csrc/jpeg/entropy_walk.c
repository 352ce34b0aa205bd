/* Source of the rules: ITU-T T.81, annex F.2 (sequential decoding).
 *
 * NOTE [ entropy: streams ]
 * One walk waits for its own table look-ups. So three go at once: one from the start, whose word counts, and
 * two guesses that begin in the middle as if an MCU began there. Huffman codes fall into step by themselves
 * (T. J. Ferguson, J. H. Rabinowitz, "Self-synchronizing Huffman codes", 1984), here within a few MCUs. Each
 * stream notes where its MCUs start. Where the walk that counts starts an MCU at the very bit where a guess
 * started one, all that follows is the same, and it goes on as that guess. A guess that meets damage forgets
 * its notes and begins again, so what lies between two of its notes is sound. Nothing depends on guesses
 * falling into step, but time.
 *
 * Each stream also notes the DC coefficients' steps from block to block. Put end to end, the pieces of
 * streams that proved the data are what an index is made of (note_marks): it costs the few instructions of
 * noting, not another walk.
 */
#include "jpeg/entropy_walk.h"

#include "jpeg/huffman.h"

#define likely(x) __builtin_expect((x), 1)

/* (sum - 1) & ODD is 0 where a sum of fl_jpeg_step is 64 or 130 .. 192: the block ends with the step's
 * last symbol */
enum { ODD = 0x140 };
enum { TOGETHER = 8 }; /* double steps of each stream between looks at where they are; at most as many MCUs */
/* bytes: more than they take, 160 bits each, and what a refill has read ahead */
enum { AHEAD = TOGETHER * 20 + 8 };
enum { SHORT = 4096 }; /* bytes of an interval that are not worth two guesses */

static const uint64_t NOWHERE = UINT64_MAX;

typedef struct fl_jpeg_walk {
    fl_jpeg_bits b;
    const fl_jpeg_step *ac; /* of the block's coefficients; NULL: damaged */
    uint32_t block; /* of the MCU */
    uint32_t k; /* coefficients of the block so far, at least the first */
    uint32_t mcus; /* whole ones so far */
    uint32_t begun; /* blocks */
    uint32_t mask; /* of an index into starts and steps: all ones, or 0 when only the last is of use */
    uint64_t *starts; /* bit position of each MCU's start, that after the last included */
    int16_t *steps; /* of the DC coefficient at each block */
} fl_jpeg_walk;

/* MCUs from, from + 1, ... of a walk's numbering. */
typedef struct fl_jpeg_piece {
    const fl_jpeg_walk *walk;
    uint32_t from, count;
} fl_jpeg_piece;

/* The coded data of a walk. */
typedef struct fl_jpeg_coded {
    const fl_jpeg_mcu *mcu;
    const uint8_t *start, *end;
    bool guess; /* damage begins anew instead of ending the walk */
} fl_jpeg_coded;

FL_INLINE void note_start(fl_jpeg_walk *w, const fl_jpeg_coded *coded) {
    w->starts[w->mcus & w->mask] = (uint64_t)(w->b.at - coded->start) * 8 - w->b.left;
}

FL_INLINE bool begin_block(fl_jpeg_walk *w, const fl_jpeg_mcu *mcu) {
    const int step = fl_jpeg_dc(mcu->dc[w->block], &w->b);
    if (!likely(step != FL_JPEG_NO_DC)) return false;
    w->steps[w->begun++ & w->mask] = (int16_t)step;
    w->k = 1;
    w->ac = mcu->ac[w->block]->walk;
    return true;
}

FL_INLINE bool next_block(fl_jpeg_walk *w, const fl_jpeg_coded *coded) {
    if (++w->block == coded->mcu->blocks) {
        w->block = 0;
        w->mcus++;
        note_start(w, coded);
    }
    return begin_block(w, coded->mcu);
}

/* State of a walk that met damage. By value, here and below, or the callers would keep their walks in
 * memory. */
static __attribute__((noinline)) fl_jpeg_walk damaged(fl_jpeg_walk w, const fl_jpeg_coded *coded) {
    w.ac = NULL;
    if (!coded->guess) return w;
    fl_jpeg_refill(&w.b);
    fl_jpeg_take(&w.b, 1);
    w.block = w.mcus = w.begun = 0;
    note_start(&w, coded);
    if (begin_block(&w, coded->mcu)) return w;
    w.starts[0] = NOWHERE; /* no MCU started: it falls into step from the middle of one */
    w.k = w.begun = 1;
    w.ac = coded->mcu->ac[0]->walk;
    return w;
}

/* One symbol, where the window's step does not fit. */
static __attribute__((noinline)) fl_jpeg_walk single(fl_jpeg_walk w, const fl_jpeg_coded *coded) {
    int run = 0, value;
    const bool found = fl_jpeg_find_symbol(coded->mcu->ac[w.block], true, &w.b, &run, &value);
    w.k = run == FL_JPEG_RUN_EOB ? FL_JPEG_BLOCK : w.k + (unsigned)run;
    /* a run over the block's end: libjpeg is silent, but let it decide */
    if (!found || w.k > FL_JPEG_BLOCK || (w.k == FL_JPEG_BLOCK && !next_block(&w, coded)))
        return damaged(w, coded);
    return w;
}

/* Two steps, which one refill has bits for, or less to the end of a block. Takes at most 160 bits. */
FL_INLINE void two_steps(fl_jpeg_walk *w, const fl_jpeg_coded *coded) {
    fl_jpeg_refill(&w->b);
    for (int i = 0; i < 2; i++) {
        const fl_jpeg_step step = w->ac[w->b.bits >> (64 - FL_JPEG_WALK)];
        const uint32_t k = w->k + (step >> 8);
        if (k < FL_JPEG_BLOCK) {
            fl_jpeg_take(&w->b, step & 63);
            w->k = k;
        } else if (likely(((k - 1) & ODD) == 0)) { /* the last symbol of the window ends the block */
            fl_jpeg_take(&w->b, step & 63);
            if (!likely(next_block(w, coded))) *w = damaged(*w, coded);
            return;
        } else {
            *w = single(*w, coded);
            return;
        }
    }
}

/* On to the start of MCU `upto`. False for damage, or when the data end before. */
static bool walk_to(fl_jpeg_walk *given, const fl_jpeg_coded *coded, uint32_t upto) {
    fl_jpeg_walk w = *given; /* a copy, that lives in registers */
    while (w.mcus < upto && w.b.at <= coded->end + 8 && w.ac) two_steps(&w, coded);
    *given = w;
    return w.mcus >= upto; /* what it met behind that is nobody's: the data may end there */
}

static fl_jpeg_walk begin(const fl_jpeg_coded *coded, const uint8_t *at, uint64_t *starts, int16_t *steps,
                          uint32_t mask) {
    fl_jpeg_walk w = {.b = {at, 0, 0}, .mask = mask, .starts = starts, .steps = steps};
    note_start(&w, coded);
    return begin_block(&w, coded->mcu) ? w : damaged(w, coded);
}

/* All streams side by side, until one of them is near the end: what lies beyond would be damage. */
static void walk_together(fl_jpeg_walk w[FL_JPEG_STREAMS], const fl_jpeg_coded *given, uint32_t mcus) {
    const fl_jpeg_coded coded = *given;
    const uint8_t *end = coded.end - AHEAD;
    fl_jpeg_walk x = w[0], y = w[1], z = w[2];
    while (x.b.at < end && y.b.at < end && z.b.at < end && x.mcus < mcus && y.mcus < mcus && z.mcus < mcus) {
        for (int i = 0; i < TOGETHER; i++) {
            two_steps(&x, &coded);
            two_steps(&y, &coded);
            two_steps(&z, &coded);
        }
    }
    w[0] = x, w[1] = y, w[2] = z;
}

/* True if `walk`, from its MCU `*from` on, starts an MCU where `guess` did; *from and *there are then its
 * numbers. It may walk further. */
static bool meet(fl_jpeg_walk *walk, const fl_jpeg_coded *coded, uint32_t most, const fl_jpeg_walk *guess,
                 uint32_t *from, uint32_t *there) {
    uint32_t j = 0;
    for (uint32_t i = *from; j <= guess->mcus; i++) {
        if (i > walk->mcus && (i > most || !walk_to(walk, coded, i))) return false;
        while (j <= guess->mcus && guess->starts[j] < walk->starts[i]) j++;
        if (j <= guess->mcus && guess->starts[j] == walk->starts[i]) {
            *from = i, *there = j;
            return j <= i; /* always, unless it noted more starts than there can be */
        }
    }
    return false;
}

static bool ends_rightly(const fl_jpeg_walk *w, uint32_t mcus, size_t size) {
    const uint64_t end = w->starts[mcus & w->mask];
    return end <= size * 8 && size * 8 - end < 8; /* nothing but padding to a whole byte */
}

/* The pieces that follow one another from the first MCU to the last go to `pieces`, one or more. */
static bool walk_streams(fl_jpeg_walk_room *room, fl_jpeg_coded coded, uint32_t mcus,
                         fl_jpeg_walk w[FL_JPEG_STREAMS], fl_jpeg_piece pieces[FL_JPEG_STREAMS]) {
    const size_t size = (size_t)(coded.end - coded.start);
    coded.guess = true;
    for (int i = 0; i < FL_JPEG_STREAMS; i++)
        w[i] = begin(&coded, coded.start + size / FL_JPEG_STREAMS * (size_t)i, room->starts[i].bytes,
                     room->steps[i].bytes, UINT32_MAX);
    walk_together(w, &coded, mcus);
    coded.guess = false;
    fl_jpeg_walk *walk = &w[0];
    if (walk->starts[0] != 0) return false; /* it began anew */
    /* that MCU of the walk is yet to be compared; the walk's count at the end of the data */
    uint32_t from = 0, left = mcus;
    *pieces = (fl_jpeg_piece){walk, 0, 0};
    for (int i = 1; i < FL_JPEG_STREAMS; i++) {
        uint32_t there;
        if (!meet(walk, &coded, left, &w[i], &from, &there)) continue;
        pieces->count = from - pieces->from;
        left = left - from + there;
        from = there;
        walk = &w[i];
        *++pieces = (fl_jpeg_piece){walk, from, 0};
    }
    pieces->count = left - pieces->from;
    return (walk->mcus >= left || walk_to(walk, &coded, left)) && ends_rightly(walk, left, size);
}

static const uint8_t *next_stuffed(const uint8_t *at, const uint8_t *end) {
    const uint8_t *found = memchr(at, 0xFF, (size_t)(end - at));
    return found ? found : end;
}

/* Makes the marks of an interval that was proved. `before`: coded bytes before it. False when a DC
 * coefficient has too many bits for a mark. */
static bool note_marks(const fl_jpeg_coded *coded, const fl_jpeg_piece *piece, uint32_t mcus, size_t before,
                       fl_jpeg_notes *notes) {
    const uint32_t blocks = coded->mcu->blocks, luma = coded->mcu->luma;
    const uint8_t *stuffed = next_stuffed(coded->start, coded->end); /* `before` counts those before it */
    int y = 0, cb = 0, cr = 0;
    uint32_t wait = (notes->every - notes->column % notes->every) % notes->every,
             column = notes->column; /* MCUs to the next mark */
    for (; mcus; mcus -= piece->count, piece++) {
        const int16_t *step = piece->walk->steps + (size_t)piece->from * blocks;
        const uint64_t *bit = piece->walk->starts + piece->from, *end = bit + piece->count;
        for (; bit < end; bit++, step += blocks) {
            if (wait-- == 0) {
                const uint8_t *at = coded->start + *bit / 8;
                for (; stuffed < at; before++) stuffed = next_stuffed(stuffed + 1, coded->end);
                if (y != (int16_t)y || cb != (int16_t)cb || cr != (int16_t)cr) return false;
                *notes->next++ =
                    (fl_jpeg_mark){(uint64_t)before * 8 + *bit, {(int16_t)y, (int16_t)cb, (int16_t)cr}};
                wait = notes->every - 1;
            }
            y += step[0];
            if (luma > 1) y += step[1]; /* luma is 1, 2 or 4 */
            if (luma > 2) y += step[2] + step[3];
            if (luma < blocks) cb += step[luma], cr += step[luma + 1];
            if (++column == notes->across) column = wait = 0;
        }
    }
    notes->column = column;
    return true;
}

/* Room for what the streams note of so many MCUs. */
static bool reserve(fl_jpeg_walk_room *room, uint32_t mcus, uint32_t blocks) {
    const size_t need = (size_t)mcus + TOGETHER + 1;
    bool all = true;
    for (int i = 0; i < FL_JPEG_STREAMS; i++) {
        all = all && fl_buffer_fit(&room->starts[i], need, sizeof(uint64_t), FL_JPEG_WALK_RULE) &&
              fl_buffer_fit(&room->steps[i], need * blocks, sizeof(int16_t), FL_JPEG_WALK_RULE);
    }
    return all;
}

/* MCUs that lie between two markers; `before`: coded bytes before them. */
static bool walk_interval(fl_jpeg_walk_room *room, const fl_jpeg_mcu *mcu, uint32_t mcus, size_t size,
                          size_t before, fl_jpeg_notes *notes) {
    const fl_jpeg_coded coded = {mcu, room->plain.bytes, (const uint8_t *)room->plain.bytes + size, false};
    fl_jpeg_walk w[FL_JPEG_STREAMS];
    fl_jpeg_piece pieces[FL_JPEG_STREAMS] = {{w, 0, mcus}};
    if (mcus > FL_JPEG_NOTED_MOST) {
        uint64_t start;
        int16_t step;
        *w = begin(&coded, coded.start, &start, &step, 0);
        return walk_to(w, &coded, mcus) && ends_rightly(w, mcus, size);
    }
    if (!reserve(room, mcus, mcu->blocks)) return false;
    if (size >= SHORT) {
        if (!walk_streams(room, coded, mcus, w, pieces)) return false;
    } else {
        *w = begin(&coded, coded.start, room->starts[0].bytes, room->steps[0].bytes, UINT32_MAX);
        if (!walk_to(w, &coded, mcus) || !ends_rightly(w, mcus, size)) return false;
    }
    if (notes && !note_marks(&coded, pieces, mcus, before, notes)) notes->every = 0;
    return true;
}

bool fl_jpeg_walk_coded(fl_jpeg_walk_room *room, const fl_jpeg_mcu *mcu, uint32_t mcus, uint32_t interval,
                        const uint8_t *at, const uint8_t *end, fl_jpeg_notes *notes) {
    const uint8_t *start = at;
    if (!fl_buffer_fit(&room->plain, (size_t)(end - at) + FL_JPEG_PAD, 1, FL_JPEG_WALK_RULE)) return false;
    uint8_t *plain = room->plain.bytes;
    uint32_t left = mcus;
    for (uint8_t restart = FL_JPEG_RST0;;
         restart = (uint8_t)(FL_JPEG_RST0 + ((restart - FL_JPEG_RST0 + 1) & 7))) {
        uint32_t count = interval && interval < left ? interval : left;
        const size_t before = (size_t)(at - start);
        size_t size;
        at = fl_jpeg_unstuff(at, end, plain, &size);
        if (!walk_interval(room, mcu, count, size, before, notes && notes->every ? notes : NULL))
            return false;
        left -= count;
        if (!fl_jpeg_marker_at(at, end, left ? restart : FL_JPEG_EOI)) return false;
        if (!left) return true;
        at += 2;
    }
}

void fl_jpeg_walk_free(fl_jpeg_walk_room *room) {
    fl_buffer_free(&room->plain);
    for (int i = 0; i < FL_JPEG_STREAMS; i++) {
        fl_buffer_free(&room->starts[i]);
        fl_buffer_free(&room->steps[i]);
    }
}
