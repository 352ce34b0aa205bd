/* The walk of fl_entropy_walk.h. Source of the rules: ITU-T T.81, annex F.2 (sequential decoding).
 *
 * NOTE [ entropy: streams ]
 * One walk waits for its own table look-ups. So three go at once: one from the start, whose word counts, and two guesses that begin in
 * the middle as if an MCU began there. Huffman codes fall into step by themselves (T. J. Ferguson, J. H. Rabinowitz, "Self-synchronizing
 * Huffman codes", 1984), here within a few MCUs. Each stream notes where its MCUs start. Where the walk that counts starts an MCU at the
 * very bit where a guess started one, all that follows is the same, and it goes on as that guess. A guess that meets damage forgets
 * its notes and begins again, so what lies between two of its notes is sound. Nothing depends on guesses falling into step, but time.
 */
#include "fl_entropy_walk.h"

#include <stdlib.h>

#include "fl_huff.h"

#define likely(x) __builtin_expect((x), 1)

enum { ODD = 0x140 }; /* (coefficients - 1) & ODD: beyond a block's end, or FL_RUN_NONE was added */
enum { TOGETHER = 8 }; /* double steps of each stream between looks at where they are; at most as many MCUs */
enum { AHEAD = TOGETHER * 20 + 8 }; /* bytes: more than they take, 160 bits each, and what a refill has read ahead */
enum { SHORT = 4096 }; /* bytes of an interval that are not worth two guesses */
enum { MCUS_MOST = 1 << 18 }; /* of an image whose starts are noted: 6 MiB */

static const uint64_t NOWHERE = UINT64_MAX;

typedef struct fl_walk {
    fl_bits b;
    const fl_step *steps; /* of the block's coefficients; NULL: damaged */
    uint32_t block; /* of the MCU */
    uint32_t k; /* coefficients of the block so far, at least the first */
    uint32_t mcus; /* whole ones so far */
    uint32_t mask; /* of an index into starts: all ones, or 0 when only the last is of use */
    uint64_t *starts; /* bit position of each MCU's start, that after the last included */
} fl_walk;

/* What a walk goes over. */
typedef struct fl_coded {
    const fl_mcu *mcu;
    const uint8_t *start, *end;
    bool guess; /* damage begins anew instead of ending the walk */
} fl_coded;

/* A symbol whose code may be longer than the window. Takes it, and returns its run; 0 when there is no such code. */
static unsigned take_symbol(const fl_codes *codes, bool ac, fl_bits *b) {
    int run, value;
    return fl_find_symbol(codes, ac, b, &run, &value) ? (unsigned)run : 0;
}

FL_INLINE void note_start(fl_walk *w, const fl_coded *coded) {
    w->starts[w->mcus & w->mask] = (uint64_t)(w->b.at - coded->start) * 8 - w->b.left;
}

FL_INLINE bool begin_block(fl_walk *w, const fl_mcu *mcu) {
    fl_refill(&w->b);
    const fl_symbols symbol = mcu->dc[w->block]->make[fl_window(&w->b)];
    if (likely(symbol != 0)) fl_take(&w->b, (symbol >> 6 & 15) + (symbol >> 10 & 15));
    else if (!take_symbol(mcu->dc[w->block], false, &w->b)) return false;
    w->k = 1;
    w->steps = mcu->ac[w->block]->walk;
    return true;
}

FL_INLINE bool next_block(fl_walk *w, const fl_coded *coded) {
    if (++w->block == coded->mcu->blocks) {
        w->block = 0;
        w->mcus++;
        note_start(w, coded);
    }
    return begin_block(w, coded->mcu);
}

/* What becomes of a walk that met damage. By value, here and below, or the callers would keep their walks in memory. */
static __attribute__((noinline)) fl_walk damaged(fl_walk w, const fl_coded *coded) {
    w.steps = NULL;
    if (!coded->guess) return w;
    fl_refill(&w.b);
    fl_take(&w.b, 1);
    w.block = w.mcus = 0;
    note_start(&w, coded);
    if (begin_block(&w, coded->mcu)) return w;
    w.starts[0] = NOWHERE; /* no MCU started: it falls into step from the middle of one */
    w.k = 1;
    w.steps = coded->mcu->ac[0]->walk;
    return w;
}

/* One symbol, where the window's step does not fit. */
static __attribute__((noinline)) fl_walk single(fl_walk w, const fl_coded *coded) {
    const unsigned run = take_symbol(coded->mcu->ac[w.block], true, &w.b);
    w.k = run == FL_RUN_EOB ? FL_BLOCK : w.k + run;
    /* a run over the block's end: libjpeg is silent, but let it decide */
    if (run == 0 || w.k > FL_BLOCK || (w.k == FL_BLOCK && !next_block(&w, coded))) return damaged(w, coded);
    return w;
}

/* Two steps, which one refill has bits for, or less to the end of a block. Takes at most 160 bits. */
FL_INLINE void two_steps(fl_walk *w, const fl_coded *coded) {
    fl_refill(&w->b);
    for (int i = 0; i < 2; i++) {
        const fl_step step = w->steps[w->b.bits >> (64 - FL_WALK)];
        const uint32_t k = w->k + (step >> 8);
        if (k < FL_BLOCK) {
            fl_take(&w->b, step & 63);
            w->k = k;
        } else if (likely(((k - 1) & ODD) == 0)) { /* the last symbol of the window ends the block */
            fl_take(&w->b, step & 63);
            if (!likely(next_block(w, coded))) *w = damaged(*w, coded);
            return;
        } else {
            *w = single(*w, coded);
            return;
        }
    }
}

/* On to the start of MCU `upto`. False for damage, or when the data end before. */
static bool walk_to(fl_walk *given, const fl_coded *coded, uint32_t upto) {
    fl_walk w = *given; /* a copy, that lives in registers */
    while (w.mcus < upto && w.b.at <= coded->end + 8 && w.steps) two_steps(&w, coded);
    *given = w;
    return w.mcus >= upto; /* what it met behind that is nobody's: the data may end there */
}

static fl_walk begin(const fl_coded *coded, const uint8_t *at, uint64_t *starts, uint32_t mask) {
    fl_walk w = {.b = {at, 0, 0}, .mask = mask, .starts = starts};
    note_start(&w, coded);
    return begin_block(&w, coded->mcu) ? w : damaged(w, coded);
}

/* All streams side by side, until one of them is near the end: what lies beyond would be damage. */
static void walk_together(fl_walk w[FL_STREAMS], const fl_coded *given, uint32_t mcus) {
    const fl_coded coded = *given;
    const uint8_t *end = coded.end - AHEAD;
    fl_walk x = w[0], y = w[1], z = w[2];
    while (x.b.at < end && y.b.at < end && z.b.at < end && x.mcus < mcus && y.mcus < mcus && z.mcus < mcus) {
        for (int i = 0; i < TOGETHER; i++) {
            two_steps(&x, &coded);
            two_steps(&y, &coded);
            two_steps(&z, &coded);
        }
    }
    w[0] = x, w[1] = y, w[2] = z;
}

/* Whether `walk`, from its MCU `*from` on, comes to start an MCU where `guess` did: both numbers of that MCU. It walks on as far as needed. */
static bool meet(fl_walk *walk, const fl_coded *coded, uint32_t most, const fl_walk *guess, uint32_t *from, uint32_t *there) {
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

static bool ends_rightly(const fl_walk *w, uint32_t mcus, size_t size) {
    const uint64_t end = w->starts[mcus & w->mask];
    return end <= size * 8 && size * 8 - end < 8; /* nothing but padding to a whole byte */
}

static bool walk_streams(fl_walk_room *room, fl_coded coded, uint32_t mcus) {
    const size_t size = (size_t)(coded.end - coded.start);
    fl_walk w[FL_STREAMS];
    coded.guess = true;
    for (int i = 0; i < FL_STREAMS; i++) w[i] = begin(&coded, coded.start + size / FL_STREAMS * (size_t)i, room->starts[i], UINT32_MAX);
    walk_together(w, &coded, mcus);
    coded.guess = false;
    fl_walk *walk = &w[0];
    if (walk->starts[0] != 0) return false; /* it began anew */
    uint32_t from = 0, left = mcus; /* that MCU of the walk is yet to be compared; the walk's count at the end of the data */
    for (int i = 1; i < FL_STREAMS; i++) {
        uint32_t there;
        if (!meet(walk, &coded, left, &w[i], &from, &there)) continue;
        left = left - from + there;
        from = there;
        walk = &w[i];
    }
    return (walk->mcus >= left || walk_to(walk, &coded, left)) && ends_rightly(walk, left, size);
}

static bool grow(void **data, size_t *room, size_t need, size_t size) {
    if (need <= *room) return true;
    free(*data);
    *data = malloc(need * size);
    *room = *data ? need : 0;
    return *data != NULL;
}

/* Room for the starts of so many MCUs in each stream. */
static bool reserve_starts(fl_walk_room *room, uint32_t mcus) {
    const size_t need = (size_t)mcus + TOGETHER + 1;
    for (int i = 0; i < FL_STREAMS; i++) {
        size_t have = room->starts[i] ? room->starts_room : 0;
        void *starts = room->starts[i];
        bool grown = grow(&starts, &have, need, sizeof *room->starts[i]);
        room->starts[i] = starts;
        if (!grown) return false;
    }
    if (need > room->starts_room) room->starts_room = need;
    return true;
}

/* MCUs that lie between two markers. */
static bool walk_interval(fl_walk_room *room, const fl_mcu *mcu, uint32_t mcus, size_t size) {
    const fl_coded coded = {mcu, room->plain, room->plain + size, false};
    if (size >= SHORT && mcus <= MCUS_MOST) return reserve_starts(room, mcus) && walk_streams(room, coded, mcus);
    uint64_t last;
    fl_walk w = begin(&coded, coded.start, &last, 0);
    return walk_to(&w, &coded, mcus) && ends_rightly(&w, mcus, size);
}

bool fl_walk_scan(fl_walk_room *room, const fl_mcu *mcu, uint32_t mcus, uint32_t interval, const uint8_t *at, const uint8_t *end) {
    void *plain = room->plain;
    bool grown = grow(&plain, &room->plain_room, (size_t)(end - at) + FL_PAD, 1);
    room->plain = plain;
    if (!grown) return false;
    uint32_t left = mcus;
    for (uint8_t restart = FL_RST0;; restart = (uint8_t)(FL_RST0 + ((restart - FL_RST0 + 1) & 7))) {
        uint32_t count = interval && interval < left ? interval : left;
        size_t size;
        at = fl_scan_unstuff(at, end, room->plain, &size);
        if (!walk_interval(room, mcu, count, size)) return false;
        left -= count;
        if (!fl_scan_marker(at, end, left ? restart : FL_EOI)) return false;
        if (!left) return true;
        at += 2;
    }
}

void fl_walk_free(fl_walk_room *room) {
    free(room->plain);
    for (int i = 0; i < FL_STREAMS; i++) free(room->starts[i]);
}
