#define _GNU_SOURCE
#include "engine/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"

enum {
    /* that the items of a turn should take: small beside a batch, and a hundred times what the lock
     * costs */
    TURN_NS = 20000,
    THREADS_MOST = 4096, /* more are a mistake */
    /* items of a turn: where they become slow at once (a disk), they wait for each other in one turn of
     * each thread */
    TURN_MOST = 16,
};

typedef struct job {
    fl_work work;
    void *opaque;
    uint32_t next, items; /* items next .. items-1 are not taken yet */
} job;

typedef struct worker {
    fl_pool *pool;
    void *context;
    const void *running; /* the opaque of the items it runs, or NULL; under the pool's lock */
    uint32_t turn; /* items that it takes at once; its thread's own */
    pthread_t thread;
} worker;

struct fl_pool {
    pthread_mutex_t lock;
    pthread_cond_t work_there, item_done, rest;
    bool works; /* under lock: it is counted among those that do */
    uint32_t waiting, idle; /* under lock: threads that wait for item_done, and for work_there */
    bool closing; /* under lock */
    bool joined; /* the closer's */
    job *jobs; /* under lock: a circular queue of `capacity`, jobs with items left */
    uint32_t head, used, capacity;
    uint64_t turns; /* under lock */
    worker *workers;
    uint32_t threads; /* started; written under the lock, before any thread but these sees it */
    pid_t pid;
};

static atomic_uint at_work;

static void forget_parents(void) { atomic_store(&at_work, 0); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_parents); }

uint32_t fl_pools_at_work(void) { return atomic_load_explicit(&at_work, memory_order_relaxed); }

/* Under the lock, or where no other thread is: counts the pool among those at work, or not. */
static void count_work(fl_pool *pool, bool works) {
    if (pool->works == works) return;
    pool->works = works;
    if (works) atomic_fetch_add_explicit(&at_work, 1, memory_order_relaxed);
    else atomic_fetch_sub_explicit(&at_work, 1, memory_order_relaxed);
}

/* Some items of one job, taken by one thread. */
typedef struct share {
    job of; /* a copy */
    uint32_t first, count;
} share;

/* Under the lock: takes the oldest job's next items, `most` of them if it has as many. */
static bool take(fl_pool *pool, uint32_t most, share *out) {
    if (!pool->used) return false;
    job *j = &pool->jobs[pool->head];
    const uint32_t left = j->items - j->next;
    *out = (share){*j, j->next, left < most ? left : most};
    j->next += out->count;
    pool->turns++;
    if (j->next == j->items) {
        pool->head = (pool->head + 1) % pool->capacity;
        pool->used--;
    }
    return true;
}

/* Runs what was taken. See NOTE [ pool: turns ]. */
static void work(worker *self, const share *taken) {
    const int64_t start = fl_clock_ns();
    for (uint32_t i = 0; i < taken->count; i++)
        taken->of.work(taken->of.opaque, taken->first + i, self->context);
    const int64_t each = (fl_clock_ns() - start) / taken->count;
    self->turn = each < TURN_NS / TURN_MOST ? TURN_MOST : each < TURN_NS ? (uint32_t)(TURN_NS / each) : 1;
}

static void *run(void *arg) {
    worker *self = arg;
    fl_pool *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        share taken;
        if (pool->closing) break;
        if (!take(pool, self->turn, &taken)) {
            if (++pool->idle == pool->threads) {
                count_work(pool, false);
                pthread_cond_broadcast(&pool->rest);
            }
            pthread_cond_wait(&pool->work_there, &pool->lock);
            pool->idle--;
            continue;
        }
        self->running = taken.of.opaque;
        const bool wakes = pool->used && pool->idle;
        pthread_mutex_unlock(&pool->lock);
        if (wakes) pthread_cond_signal(&pool->work_there);
        work(self, &taken);
        pthread_mutex_lock(&pool->lock);
        self->running = NULL;
        if (pool->waiting) pthread_cond_broadcast(&pool->item_done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static fl_code start(fl_pool *pool, const char *name, uint32_t threads, void *const *contexts,
                     fl_error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    for (uint32_t i = 0; i < threads && !failed; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool, w->context = contexts ? contexts[i] : NULL, w->turn = 1;
        failed = pthread_create(&w->thread, NULL, run, w);
        if (failed) break;
        pthread_mutex_lock(&pool->lock); /* threads that have started look at it */
        pool->threads = i + 1;
        pthread_mutex_unlock(&pool->lock);
        char title[16]; /* the kernel's limit */
        snprintf(title, sizeof title, "%.10s-%u", name, i % 1000);
        pthread_setname_np(w->thread, title);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return fl_fail_sys(err, FL_ERESOURCE, failed, "thread %u of %u could not be started",
                           pool->threads + 1, threads);
    return FL_OK;
}

fl_code fl_pool_create(const char *name, uint32_t threads, uint32_t capacity, void *const *contexts,
                       fl_pool **out, fl_error *err) {
    *out = NULL;
    if (threads > THREADS_MOST)
        return fl_fail(err, FL_EARG, "num_workers=%u: native threads are %d at most", threads, THREADS_MOST);
    if (!threads || !capacity)
        return fl_fail(err, FL_EARG, "a pool of %u threads and %u jobs", threads, capacity);
    fl_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return fl_fail(err, FL_ENOMEM, "no memory for a thread pool");
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_there, NULL);
    pthread_cond_init(&pool->item_done, NULL);
    pthread_cond_init(&pool->rest, NULL);
    pool->pid = getpid();
    pool->capacity = capacity;
    pool->jobs = calloc(capacity, sizeof *pool->jobs);
    pool->workers = calloc(threads, sizeof *pool->workers);
    fl_code code = pool->jobs && pool->workers ? start(pool, name, threads, contexts, err)
                                               : fl_fail(err, FL_ENOMEM, "no memory for %u threads", threads);
    if (code) {
        fl_pool_free(pool);
        return code;
    }
    *out = pool;
    return FL_OK;
}

fl_code fl_pool_submit(fl_pool *pool, fl_work item, void *opaque, uint32_t items, fl_error *err) {
    if (!items) return fl_fail(err, FL_EARG, "a job of no items");
    if (pool->pid != getpid())
        return fl_fail(err, FL_EFORK, "these threads belong to process %d", (int)pool->pid);
    fl_code code = FL_OK;
    bool wakes = false;
    pthread_mutex_lock(&pool->lock);
    if (pool->closing) code = fl_fail(err, FL_ECLOSED, "the thread pool is closed");
    else if (pool->used == pool->capacity)
        code = fl_fail(err, FL_EFULL, "%u jobs are waiting already", pool->used);
    else
        pool->jobs[(pool->head + pool->used++) % pool->capacity] = (job){item, opaque, 0, items},
                                                 wakes = pool->idle, count_work(pool, true);
    pthread_mutex_unlock(&pool->lock);
    if (wakes)
        pthread_cond_signal(
            &pool->work_there); /* not under the lock, which the one who wakes wants at once */
    return code;
}

uint64_t fl_pool_turns(fl_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    const uint64_t turns = pool->turns;
    pthread_mutex_unlock(&pool->lock);
    return turns;
}

/* Under the lock. */
static bool is_at_rest(const fl_pool *pool) { return !pool->used && pool->idle == pool->threads; }

bool fl_pool_rests(fl_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    const bool rests = is_at_rest(pool);
    pthread_mutex_unlock(&pool->lock);
    return rests;
}

void fl_pool_await_rest(fl_pool *pool, const _Atomic bool *stop) {
    pthread_mutex_lock(&pool->lock);
    while (!is_at_rest(pool) && !pool->closing && !atomic_load(stop))
        pthread_cond_wait(&pool->rest, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void fl_pool_wake(fl_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->rest);
    pthread_mutex_unlock(&pool->lock);
}

static bool runs(const fl_pool *pool, const void *opaque) {
    for (uint32_t i = 0; i < pool->threads; i++)
        if (pool->workers[i].running == opaque) return true;
    return false;
}

void fl_pool_cancel(fl_pool *pool, const void *opaque) {
    if (pool->pid != getpid()) return;
    pthread_mutex_lock(&pool->lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->used; i++) {
        job j = pool->jobs[(pool->head + i) % pool->capacity];
        if (j.opaque != opaque) pool->jobs[(pool->head + kept++) % pool->capacity] = j;
    }
    pool->used = kept;
    pool->waiting++;
    while (runs(pool, opaque)) pthread_cond_wait(&pool->item_done, &pool->lock);
    pool->waiting--;
    pthread_mutex_unlock(&pool->lock);
}

void fl_pool_close(fl_pool *pool) {
    if (!pool || pool->pid != getpid() || pool->joined) return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->work_there);
    pthread_cond_broadcast(&pool->rest);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
    count_work(pool, false);
    pool->joined = true;
}

void fl_pool_free(fl_pool *pool) {
    if (!pool) return;
    if (pool->pid == getpid()) {
        fl_pool_close(pool);
        pthread_cond_destroy(&pool->work_there);
        pthread_cond_destroy(&pool->item_done);
        pthread_cond_destroy(&pool->rest);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool->workers);
    free(pool->jobs);
    free(pool);
}
