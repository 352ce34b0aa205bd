/* engine/ring: the slots. A slot holds one batch; its life is FREE -> FILLING -> READY -> LEASED -> FREE.
 *
 * NOTE [ ring: the slot's life ]
 * take     FREE -> FILLING   the loader's thread; the ring grows when no slot is free
 * publish  FILLING -> READY  whoever finished the last row; everything written before it is seen after
 * fl_slot_wait lease    READY -> LEASED   the loader's thread; from here the user's tensors own the slot
 * release  any -> FREE       the thread that freed the last tensor; nobody may touch the slot's bytes after
 * it A slot that is not FREE is never handed out again, so no batch that anyone can see is overwritten. Free
 * slots beyond `keep` are unmapped, so the ring shrinks back after it grew.
 *
 * Batches may differ in size: a free slot that is too small is mapped anew, an eighth larger than it must be,
 * so that slots are soon large enough for every batch. Free slots are unmapped, the largest first, while all
 * slots together are more than twice as large as the batches that were in use at once at most, of the last
 * FL_RING_RECENT to twice as many batches: one huge batch must not stay in memory for ever.
 *
 * Memory is private and anonymous, pre-faulted, huge pages advised. Private, so that a process forked while a
 * batch is held keeps that batch's bytes when the parent refills the slot. The ring must outlive its slots'
 * last release.
 *
 * A slot may also lie in memory of the caller's, which the ring neither maps nor keeps: fl_ring_lend. Its
 * release ends the slot.
 */
#ifndef FL_ENGINE_RING_H
#define FL_ENGINE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { FL_RING_RECENT = 256 };

typedef struct fl_ring fl_ring;
typedef struct fl_slot fl_slot;

/* Ends the waits of one waiter. Zeroed by its owner, who keeps it until nobody waits with it; set by any
 * thread. */
typedef struct fl_stop {
    _Atomic uint32_t set;
} fl_stop;

typedef enum fl_slot_state {
    FL_SLOT_FREE = 0,
    FL_SLOT_FILLING = 1,
    FL_SLOT_READY = 2,
    FL_SLOT_LEASED = 3
} fl_slot_state;

typedef struct fl_ring_counts {
    uint32_t slots, free, filling, ready, leased;
    uint64_t bytes; /* of all slots, lent memory included */
} fl_ring_counts;

/* Makes `keep` free slots of `bytes` each; both may be 0: then slots are made when they are taken. */
fl_code fl_ring_create(uint32_t keep, size_t bytes, fl_ring **out, fl_error *err);
void fl_ring_free(fl_ring *ring); /* no slot may be in use; NULL is allowed */

/* A slot with room for `bytes`. FL_ENOMEM names the bytes. */
fl_code fl_ring_take(fl_ring *ring, size_t bytes, fl_slot **out, fl_error *err);
/* A slot, FILLING, in `bytes` bytes at `data`, which outlive it. */
fl_code fl_ring_lend(fl_ring *ring, void *data, size_t bytes, fl_slot **out, fl_error *err);
void fl_slot_publish(fl_ring *ring, fl_slot *slot);
void fl_slot_lease(fl_slot *slot);
void fl_slot_release(fl_ring *ring, fl_slot *slot);

void *fl_slot_data(const fl_slot *slot);
size_t fl_slot_bytes(const fl_slot *slot); /* mapped */
fl_slot_state fl_slot_state_of(const fl_slot *slot);

/* Waits until one of slots[0..count) is READY and says which. timeout_ms < 0: no limit. FL_ETIMEOUT; FL_EINTR
 * when a signal came, or when `stop` (NULL: none) is set, which outranks a slot that is ready. */
fl_code fl_ring_wait(fl_ring *ring, fl_slot *const *slots, uint32_t count, int64_t timeout_ms,
                     const fl_stop *stop, uint32_t *which, fl_error *err);
void fl_ring_stop(fl_ring *ring, fl_stop *stop); /* sets it, and wakes who waits with it */

void fl_ring_count(fl_ring *ring, fl_ring_counts *out);

#endif
