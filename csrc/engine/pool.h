/* engine/pool: a bounded pool of threads that knows nothing of the work.
 *
 * A job is `items` calls of work(opaque, item, context). All threads take from the oldest unfinished job, so
 * the first job is done as early as it can be. `context` is the calling thread's own, handed over at
 * creation; it and `opaque` belong to the caller and must outlive the job (fl_pool_cancel or fl_pool_close
 * ends it early).
 *
 * NOTE [ pool: turns ]
 * A thread takes the lock once a turn, and not once an item: as many items as take 20 us, by the time that
 * those of its last turn took, and 16 at most. So slow items (a JPEG) are taken one by one, and a lock that
 * 64 threads want is held some 100,000 times a second and not millions. fl_pool_submit wakes one thread, and
 * each thread that leaves items in the queue wakes another: waking all of them is work of the submitting
 * thread that grows with the number of cores.
 *
 * Threads block every signal, so that a signal always reaches a thread of the program's own. A pool belongs
 * to the process that made it.
 */
#ifndef FL_ENGINE_POOL_H
#define FL_ENGINE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

typedef struct fl_pool fl_pool;
typedef void (*fl_work)(void *opaque, uint32_t item, void *context);

/* Starts the threads; contexts[i] is thread i's. FL_ERESOURCE when the system starts no more. At most
 * `capacity` unfinished jobs. */
fl_code fl_pool_create(const char *name, uint32_t threads, uint32_t capacity, void *const *contexts,
                       fl_pool **out, fl_error *err);

/* FL_EFULL when capacity jobs wait or run. items > 0. Any thread. */
fl_code fl_pool_submit(fl_pool *pool, fl_work work, void *opaque, uint32_t items, fl_error *err);

/* Turns taken so far. Any thread. */
uint64_t fl_pool_turns(fl_pool *pool);

/* True if no item of this pool waits or runs; the number of pools of this process of which one does. Any
 * thread. */
bool fl_pool_rests(fl_pool *pool);
uint32_t fl_pools_at_work(void);

/* Waits until it rests, or is closed, or `stop` is set and fl_pool_wake() called. */
void fl_pool_await_rest(fl_pool *pool, const _Atomic bool *stop);
void fl_pool_wake(fl_pool *pool);

/* Drops the job's items that no thread has taken, and returns when those that were taken have returned: from
 * then on nobody touches `opaque`. Not from inside an item of the same job. */
void fl_pool_cancel(fl_pool *pool, const void *opaque);

/* Ends every job as fl_pool_cancel would (their items are not run) and joins the threads. Other threads may
 * be in the calls above meanwhile, and later: FL_ECLOSED is all that they get. One thread closes; NULL, and a
 * second time, are allowed. */
void fl_pool_close(fl_pool *pool);

/* Closes and frees the pool, which no other thread may be using. NULL is allowed. In a forked child, where
 * the threads do not exist, only memory is freed. */
void fl_pool_free(fl_pool *pool);

#endif
