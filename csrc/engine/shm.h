/* engine/shm: memory that several processes fill and read: the slots of worker processes.
 *
 * Owner: whoever created or attached it; each process maps and unmaps for itself, the pages live until the
 * last of them is gone. It is anonymous (memfd), so a small /dev/shm does not matter and a killed process
 * leaves nothing behind, and sealed against shrinking, so that a touch inside `bytes` never ends in SIGBUS.
 */
#ifndef FL_ENGINE_SHM_H
#define FL_ENGINE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct fl_shm {
    void *data; /* NULL: closed */
    size_t bytes; /* without the word of fl_shm_offer, which lies behind them */
    int fd; /* -1: let go; the mapping stays */
} fl_shm;

/* Maps new memory of at least `bytes`, zeroed and faulted in. FL_ENOMEM names the bytes; FL_ERESOURCE: no
 * file descriptor is left. */
fl_code fl_shm_create(size_t bytes, fl_shm *out, fl_error *err);
/* Maps what another process created; takes `fd`, also on failure. FL_EARG when it is no sealed memory of
 * ours. */
fl_code fl_shm_attach(int fd, fl_shm *out, fl_error *err);
/* The same two of memory whose pages come only as they are asked for: for a table that may stay small. */
fl_code fl_shm_create_sparse(size_t bytes, fl_shm *out, fl_error *err);
fl_code fl_shm_attach_sparse(int fd, fl_shm *out, fl_error *err);
void fl_shm_release_fd(fl_shm *shm);
void fl_shm_close(fl_shm *shm); /* idempotent */

/* NOTE [ shm: offers ]
 * Who has memory and needs it no longer offers it, and one process accepts the offer: the memory is its. What
 * the first did with the bytes is over before the second's first write. New memory is not offered. */
void fl_shm_offer(const fl_shm *shm);
bool fl_shm_offered(const fl_shm *shm);
bool fl_shm_accept(const fl_shm *shm); /* false: it is not offered, or another process was first */

/* NOTE [ shm: tickets ]
 * A ticket is a u64 in shared memory: the high half names a batch, the low half counts how many of its units
 * were handed out. The parent opens it for a batch; workers claim. A worker that comes late, when the ticket
 * serves another batch, gets nothing. */
void fl_ticket_open(const fl_shm *shm, uint32_t ticket, uint32_t batch);
/* The next unit of `batch` in [0, limit), or -1 when none is left or the ticket serves another batch. */
int64_t fl_ticket_claim(const fl_shm *shm, uint32_t ticket, uint32_t batch, uint32_t limit);

/* Number of forks of this process so far: a slot that a user held across a fork may be seen by the child. */
uint64_t fl_shm_forks(void);

#endif
