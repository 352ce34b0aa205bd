#include "store/facts.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The entropy index of one image. */
typedef struct learnt {
    uint64_t stamp;
    size_t size;
    uint8_t bytes[];
} learnt;

struct fl_facts {
    uint64_t count, room;
    _Atomic uint64_t *sound; /* the stamp of each image that was proved sound; 0: not yet */
    learnt *_Atomic *learnt; /* of each image; NULL: nothing */
    _Atomic uint64_t indexes, held;
    fl_kept *kept; /* NULL: they stay in memory */
};

static atomic_uint live;

uint32_t fl_facts_live(void) { return atomic_load(&live); }

fl_code fl_facts_create(fl_facts **out, uint64_t count, size_t room, fl_error *err) {
    *out = NULL;
    fl_facts *facts = calloc(1, sizeof *facts);
    if (!facts) return fl_fail(err, FL_ENOMEM, "no memory for what is learnt of images");
    atomic_fetch_add(&live, 1);
    facts->count = count, facts->room = room;
    const bool fits = count < SIZE_MAX / sizeof *facts->sound;
    facts->sound = fits ? calloc(count + 1, sizeof *facts->sound) : NULL;
    facts->learnt = fits ? calloc(count + 1, sizeof *facts->learnt) : NULL;
    if (!facts->sound || !facts->learnt) {
        fl_facts_free(facts);
        return fl_fail(err, FL_ENOMEM, "no memory for what is learnt of %" PRIu64 " images", count);
    }
    *out = facts;
    return FL_OK;
}

void fl_facts_free(fl_facts *facts) {
    if (!facts) return;
    for (uint64_t i = 0; facts->learnt && i < facts->count; i++)
        free(atomic_load_explicit(&facts->learnt[i], memory_order_relaxed));
    free(facts->learnt);
    free(facts->sound);
    free(facts);
    atomic_fetch_sub(&live, 1);
}

void fl_facts_keep(fl_facts *facts, fl_kept *kept) { facts->kept = kept; }

bool fl_facts_known(const fl_facts *facts, uint64_t index, uint64_t stamp, fl_buffer *buffer,
                    fl_span *found) {
    *found = (fl_span){NULL, 0};
    if (facts->kept && fl_kept_find(facts->kept, index, FL_KEPT_FACTS, stamp, buffer, found)) return true;
    *found = (fl_span){NULL, 0};
    if (atomic_load_explicit(&facts->sound[index], memory_order_acquire) != stamp) return false;
    const learnt *kept = atomic_load_explicit(&facts->learnt[index], memory_order_acquire);
    if (kept && kept->stamp == stamp) *found = (fl_span){kept->bytes, kept->size};
    return true;
}

uint64_t fl_facts_stamp(const fl_facts *facts, uint64_t index) {
    const uint64_t kept = facts->kept ? fl_kept_stamp(facts->kept, index, FL_KEPT_FACTS) : 0;
    return kept ? kept : atomic_load_explicit(&facts->sound[index], memory_order_acquire);
}

static void keep_index(fl_facts *facts, uint64_t index, uint64_t stamp, fl_span found) {
    const uint64_t bytes = sizeof(learnt) + found.size;
    if (atomic_fetch_add_explicit(&facts->held, bytes, memory_order_relaxed) + bytes <= facts->room) {
        learnt *kept = malloc(bytes), *none = NULL;
        if (kept) {
            kept->stamp = stamp, kept->size = found.size;
            memcpy(kept->bytes, found.bytes, found.size);
            if (atomic_compare_exchange_strong_explicit(&facts->learnt[index], &none, kept,
                                                        memory_order_release, memory_order_relaxed)) {
                atomic_fetch_add_explicit(&facts->indexes, 1, memory_order_relaxed);
                return;
            }
            free(kept); /* another thread was first, or it is of an earlier image */
        }
    }
    atomic_fetch_sub_explicit(&facts->held, bytes, memory_order_relaxed);
}

void fl_facts_learn(fl_facts *facts, uint64_t index, uint64_t stamp, fl_span found) {
    if (facts->kept && fl_kept_put(facts->kept, index, FL_KEPT_FACTS, stamp, found)) return;
    if (found.size) keep_index(facts, index, stamp, found);
    atomic_store_explicit(&facts->sound[index], stamp, memory_order_release);
}

void fl_facts_learnt(const fl_facts *facts, uint64_t *indexes, uint64_t *bytes) {
    *indexes = atomic_load_explicit(&facts->indexes, memory_order_relaxed);
    *bytes = atomic_load_explicit(&facts->held, memory_order_relaxed);
}
