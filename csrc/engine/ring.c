#define _GNU_SOURCE
#include "engine/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "engine/map.h"

struct fl_slot {
    _Atomic uint32_t state; /* fl_slot_state; see the note for who moves it */
    void *data;             /* mapped while the slot exists; changed only while FILLING by its taker */
    _Atomic size_t bytes;   /* as data; others may read it at any time */
    size_t wanted; /* by the batch that has it, in whole pages; under ring->lock */
    bool lent;     /* data is the caller's; set before other threads see the slot */
    fl_slot *next; /* in ring->all, under ring->lock */
};

struct fl_ring {
    pthread_mutex_t lock; /* of what follows, to `most` */
    fl_slot *all;
    uint32_t slots, free, keep, takes;
    size_t wanted;  /* by all batches that have a slot */
    /* that was wanted at once: since takes was 0, and in the FL_RING_RECENT takes before that */
    size_t most[2];
    _Atomic uint32_t published; /* counts fl_slot_publish and fl_ring_stop: the futex that waiters sleep on */
};

static size_t pages(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

static fl_code map(size_t bytes, fl_slot *slot, fl_error *err) {
    const size_t rounded = pages(bytes);
    if (rounded < bytes) return fl_fail(err, FL_EARG, "a batch of %zu bytes", bytes);
    fl_mapped mapped = fl_map(-1, rounded, &slot->data);
    if (mapped == FL_MAP_REFUSED)
        return fl_fail(err, FL_ENOMEM,
                       "a batch needs %zu bytes and the system has no room for them: lower batch_size or "
                       "prefetch_factor",
                       rounded);
    if (mapped == FL_MAP_SHORT)
        return fl_fail(err, FL_ENOMEM,
                       "a batch needs %zu bytes and memory ran out: lower batch_size or prefetch_factor",
                       rounded);
    slot->bytes = rounded;
    return FL_OK;
}

static void unmap(fl_slot *slot) {
    if (slot->data && !slot->lent) munmap(slot->data, slot->bytes);
    slot->data = NULL;
    slot->bytes = 0;
}

fl_code fl_ring_create(uint32_t keep, size_t bytes, fl_ring **out, fl_error *err) {
    *out = NULL;
    fl_ring *ring = calloc(1, sizeof *ring);
    if (!ring) return fl_fail(err, FL_ENOMEM, "no memory for a ring");
    pthread_mutex_init(&ring->lock, NULL);
    ring->keep = keep;
    fl_slot *taken[64];
    uint32_t made = 0;
    fl_code code = FL_OK;
    for (; bytes && made < keep && made < 64 && !code; made += !code)
        code = fl_ring_take(ring, bytes, &taken[made], err);
    for (uint32_t i = 0; i < made; i++) fl_slot_release(ring, taken[i]);
    if (code) {
        fl_ring_free(ring);
        return code;
    }
    *out = ring;
    return FL_OK;
}

void fl_ring_free(fl_ring *ring) {
    if (!ring) return;
    while (ring->all) {
        fl_slot *slot = ring->all;
        ring->all = slot->next;
        unmap(slot);
        free(slot);
    }
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

/* Under the lock: the free slot that wastes least, large enough if there is one. */
static fl_slot *best_free(fl_ring *ring, size_t bytes) {
    fl_slot *best = NULL;
    for (fl_slot *s = ring->all; s; s = s->next) {
        if (atomic_load_explicit(&s->state, memory_order_relaxed) != FL_SLOT_FREE) continue;
        bool fits = s->bytes >= bytes, best_fits = best && best->bytes >= bytes;
        if (!best || (fits && !best_fits) ||
            (fits == best_fits && (fits ? s->bytes < best->bytes : s->bytes > best->bytes)))
            best = s;
    }
    return best;
}

/* Under the lock: notes what the batch that takes a slot needs of it. */
static void want(fl_ring *ring, fl_slot *slot, size_t bytes) {
    if (ring->takes++ == FL_RING_RECENT) ring->takes = 1, ring->most[1] = ring->most[0], ring->most[0] = 0;
    slot->wanted = pages(bytes);
    ring->wanted += slot->wanted;
    if (ring->wanted > ring->most[0]) ring->most[0] = ring->wanted;
}

/* Under the lock: the largest free slot, if the ring is much too large; no longer of the ring's free ones. */
static fl_slot *superfluous(fl_ring *ring) {
    const size_t most = ring->most[0] > ring->most[1] ? ring->most[0] : ring->most[1];
    fl_slot *largest = NULL;
    size_t mapped = 0;
    for (fl_slot *s = ring->all; s; s = s->next) {
        mapped += s->lent ? 0 : s->bytes;
        if (atomic_load_explicit(&s->state, memory_order_relaxed) != FL_SLOT_FREE) continue;
        if (!largest || s->bytes > largest->bytes) largest = s;
    }
    if (!largest || mapped / 2 <= most) return NULL;
    ring->free--;
    return largest;
}

/* Under the lock: a slot without memory; NULL where there is no room for it. */
static fl_slot *added(fl_ring *ring) {
    fl_slot *slot = calloc(1, sizeof *slot);
    if (!slot) return NULL;
    slot->next = ring->all;
    ring->all = slot;
    ring->slots++;
    return slot;
}

fl_code fl_ring_take(fl_ring *ring, size_t bytes, fl_slot **out, fl_error *err) {
    *out = NULL;
    pthread_mutex_lock(&ring->lock);
    fl_slot *slot = best_free(ring, bytes);
    if (slot) {
        ring->free--;
    } else {
        slot = added(ring);
    }
    if (slot) {
        atomic_store_explicit(&slot->state, FL_SLOT_FILLING, memory_order_relaxed);
        want(ring, slot, bytes);
    }
    pthread_mutex_unlock(&ring->lock);
    if (!slot) return fl_fail(err, FL_ENOMEM, "no memory for a slot");
    if (slot->bytes < bytes || !slot->data) {
        const size_t room = slot->bytes ? bytes + bytes / 8 : bytes;
        unmap(slot);
        fl_code code = room < bytes ? FL_ENOMEM : map(room, slot, err);
        if (code && room != bytes) code = map(bytes, slot, err);
        if (code) {
            fl_slot_release(ring, slot);
            return code;
        }
    }
    *out = slot;
    return FL_OK;
}

fl_code fl_ring_lend(fl_ring *ring, void *data, size_t bytes, fl_slot **out, fl_error *err) {
    *out = NULL;
    pthread_mutex_lock(&ring->lock);
    fl_slot *slot = added(ring);
    if (slot) {
        slot->data = data;
        slot->bytes = bytes;
        slot->lent = true;
        atomic_store_explicit(&slot->state, FL_SLOT_FILLING, memory_order_relaxed);
    }
    pthread_mutex_unlock(&ring->lock);
    if (!slot) return fl_fail(err, FL_ENOMEM, "no memory for a slot");
    *out = slot;
    return FL_OK;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, (uint32_t *)word, op, value, timeout, NULL, 0);
}

void fl_slot_publish(fl_ring *ring, fl_slot *slot) {
    atomic_store_explicit(&slot->state, FL_SLOT_READY, memory_order_release);
    atomic_fetch_add_explicit(&ring->published, 1, memory_order_release);
    futex(&ring->published, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL);
}

void fl_slot_lease(fl_slot *slot) {
    atomic_store_explicit(&slot->state, FL_SLOT_LEASED, memory_order_release);
}

void fl_slot_release(fl_ring *ring, fl_slot *slot) {
    pthread_mutex_lock(&ring->lock);
    ring->wanted -= slot->wanted;
    fl_slot *drop = slot;
    if (slot->data && !slot->lent && ring->free < ring->keep) {
        atomic_store_explicit(&slot->state, FL_SLOT_FREE, memory_order_release);
        ring->free++;
        drop = superfluous(ring);
    }
    if (drop) {
        fl_slot **link = &ring->all;
        while (*link != drop) link = &(*link)->next;
        *link = drop->next;
        ring->slots--;
    }
    pthread_mutex_unlock(&ring->lock);
    if (drop) {
        unmap(drop);
        free(drop);
    }
}

void *fl_slot_data(const fl_slot *slot) { return slot->data; }

size_t fl_slot_bytes(const fl_slot *slot) { return slot->bytes; }

fl_slot_state fl_slot_state_of(const fl_slot *slot) {
    return (fl_slot_state)atomic_load_explicit(&slot->state, memory_order_acquire);
}

fl_code fl_ring_wait(fl_ring *ring, fl_slot *const *slots, uint32_t count, int64_t timeout_ms,
                     const fl_stop *stop, uint32_t *which, fl_error *err) {
    int64_t deadline = timeout_ms < 0 ? 0 : fl_clock_ns() + timeout_ms * 1000000;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&ring->published, memory_order_acquire);
        if (stop && atomic_load_explicit(&stop->set, memory_order_acquire))
            return fl_fail(err, FL_EINTR, "told to stop");
        for (uint32_t i = 0; i < count; i++)
            if (fl_slot_state_of(slots[i]) == FL_SLOT_READY) return *which = i, FL_OK;
        struct timespec left, *limit = NULL;
        if (timeout_ms >= 0) {
            int64_t ns = deadline - fl_clock_ns();
            if (ns <= 0)
                return fl_fail(err, FL_ETIMEOUT, "no batch became ready within %lld ms",
                               (long long)timeout_ms);
            left = (struct timespec){ns / 1000000000, ns % 1000000000};
            limit = &left;
        }
        if (futex(&ring->published, FUTEX_WAIT_PRIVATE, seen, limit) != 0 && errno == EINTR)
            return fl_fail(err, FL_EINTR, "interrupted by a signal");
    }
}

void fl_ring_stop(fl_ring *ring, fl_stop *stop) {
    atomic_store_explicit(&stop->set, 1, memory_order_release);
    atomic_fetch_add_explicit(&ring->published, 1, memory_order_release);
    futex(&ring->published, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL);
}

void fl_ring_count(fl_ring *ring, fl_ring_counts *out) {
    *out = (fl_ring_counts){0};
    pthread_mutex_lock(&ring->lock);
    for (fl_slot *s = ring->all; s; s = s->next) {
        fl_slot_state state = fl_slot_state_of(s);
        out->slots++;
        out->bytes += s->bytes;
        out->free += state == FL_SLOT_FREE, out->filling += state == FL_SLOT_FILLING;
        out->ready += state == FL_SLOT_READY, out->leased += state == FL_SLOT_LEASED;
    }
    pthread_mutex_unlock(&ring->lock);
}
