/* The ring never hands out a slot that is in use, and the pool runs each item once; run under the thread
 * sanitizer too. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/pool.h"
#include "engine/ring.h"
#include "check.h"

enum { ITEMS = 64, JOBS = 200, THREADS = 7 };

typedef struct job {
    fl_ring *ring;
    fl_slot *slot;
    _Atomic uint32_t left;
    _Atomic uint32_t ran[ITEMS];
} job;

static void fill(void *opaque, uint32_t item, void *context) {
    job *j = opaque;
    (void)context;
    ((uint8_t *)fl_slot_data(j->slot))[item] = (uint8_t)(item + 1);
    atomic_fetch_add(&j->ran[item], 1);
    if (atomic_fetch_sub(&j->left, 1) == 1) fl_slot_publish(j->ring, j->slot);
}

/* Batches pass through with up to 3 in flight and 2 held; each item runs once; a held slot keeps its
 * bytes. */
static void pass_batches(void) {
    fl_error err;
    fl_ring *ring;
    fl_pool *pool;
    static job jobs[JOBS];
    memset(jobs, 0, sizeof jobs);
    CHECK(fl_ring_create(3, ITEMS, &ring, &err) == FL_OK);
    CHECK(fl_pool_create("test", THREADS, 16, NULL, &pool, &err) == FL_OK);
    int submitted = 0;
    for (int k = 0; k < JOBS; k++) {
        for (; submitted < JOBS && submitted < k + 3; submitted++) {
            job *j = &jobs[submitted];
            j->ring = ring, j->left = ITEMS;
            CHECK(fl_ring_take(ring, ITEMS, &j->slot, &err) == FL_OK);
            for (int held = k > 2 ? k - 2 : 0; held < submitted; held++)
                CHECK(jobs[held].slot != j->slot || held < k - 2);
            memset(fl_slot_data(j->slot), 0, ITEMS);
            CHECK(fl_pool_submit(pool, fill, j, ITEMS, &err) == FL_OK);
        }
        uint32_t which;
        CHECK(fl_ring_wait(ring, &jobs[k].slot, 1, 10000, NULL, &which, &err) == FL_OK);
        fl_slot_lease(jobs[k].slot);
        for (uint32_t i = 0; i < ITEMS; i++) {
            CHECK(((uint8_t *)fl_slot_data(jobs[k].slot))[i] == i + 1);
            CHECK(jobs[k].ran[i] == 1);
        }
        if (k >= 2) fl_slot_release(ring, jobs[k - 2].slot);
    }
    fl_slot_release(ring, jobs[JOBS - 2].slot);
    fl_slot_release(ring, jobs[JOBS - 1].slot);
    fl_ring_counts counts;
    fl_ring_count(ring, &counts);
    CHECK(counts.slots == counts.free && counts.slots <= 3);
    fl_pool_free(pool);
    fl_ring_free(ring);
}

/* A slot in lent memory passes through the ring's states, is never handed out again, and leaves the memory to
 * its owner. */
static void lend(void) {
    fl_error err;
    fl_ring *ring;
    fl_slot *slot, *own;
    fl_ring_counts counts;
    uint8_t bytes[ITEMS] = {0};
    uint32_t which;
    CHECK(fl_ring_create(2, 0, &ring, &err) == FL_OK);
    CHECK(fl_ring_lend(ring, bytes, sizeof bytes, &slot, &err) == FL_OK);
    CHECK(fl_slot_data(slot) == bytes && fl_slot_state_of(slot) == FL_SLOT_FILLING);
    CHECK(fl_ring_take(ring, ITEMS, &own, &err) == FL_OK && fl_slot_data(own) != (void *)bytes);
    fl_ring_count(ring, &counts);
    CHECK(counts.slots == 2 && counts.filling == 2 && counts.bytes == 4096 + sizeof bytes);
    fl_slot_publish(ring, slot);
    CHECK(fl_ring_wait(ring, &slot, 1, 10000, NULL, &which, &err) == FL_OK);
    fl_slot_release(ring, slot);
    fl_slot_release(ring, own);
    fl_ring_count(ring, &counts);
    CHECK(counts.slots == 1 && counts.free == 1 && counts.bytes == 4096);
    memset(bytes, 1, sizeof bytes);
    fl_ring_free(ring);
}

static _Atomic int gate;
static void slow(void *opaque, uint32_t item, void *context) {
    (void)item, (void)context;
    while (!atomic_load(&gate)) usleep(1000);
    atomic_fetch_add((_Atomic uint32_t *)opaque, 1);
}

static void *open_gate(void *unused) {
    usleep(30000);
    atomic_store(&gate, 1);
    return unused;
}

/* Cancel drops what is not begun and waits for what is: afterwards nothing touches the job. */
static void cancel(void) {
    fl_error err;
    fl_pool *pool;
    _Atomic uint32_t ran = 0;
    atomic_store(&gate, 0);
    CHECK(fl_pool_create("test", 2, 2, NULL, &pool, &err) == FL_OK);
    CHECK(fl_pool_submit(pool, slow, (void *)&ran, 1000, &err) == FL_OK);
    usleep(20000);
    pthread_t opener;
    pthread_create(&opener, NULL, open_gate, NULL);
    fl_pool_cancel(pool, (void *)&ran);
    uint32_t after = ran;
    CHECK(after <= 2);
    usleep(20000);
    CHECK(ran == after);
    pthread_join(opener, NULL);
    fl_pool_free(pool);
}

static void bounds(void) {
    fl_error err;
    fl_pool *pool;
    _Atomic uint32_t ran = 0;
    CHECK(fl_pool_create("test", 0, 1, NULL, &pool, &err) == FL_EARG && pool == NULL);
    atomic_store(&gate, 0);
    CHECK(fl_pool_create("test", 1, 1, NULL, &pool, &err) == FL_OK);
    CHECK(fl_pool_submit(pool, slow, (void *)&ran, 0, &err) == FL_EARG);
    CHECK(fl_pool_submit(pool, slow, (void *)&ran, 5, &err) == FL_OK);
    CHECK(fl_pool_submit(pool, slow, (void *)&ran, 5, &err) == FL_EFULL);
    atomic_store(&gate, 1);
    fl_pool_close(pool); /* items not begun are not run */
    CHECK(ran <= 5);
    CHECK(fl_pool_submit(pool, slow, (void *)&ran, 1, &err) == FL_ECLOSED);
    fl_pool_cancel(pool, (void *)&ran);
    fl_pool_free(pool);
    fl_ring *ring;
    fl_slot *slot;
    uint32_t which;
    CHECK(fl_ring_create(0, 0, &ring, &err) == FL_OK);
    CHECK(fl_ring_take(ring, (size_t)1 << 50, &slot, &err) == FL_ENOMEM);
    CHECK(strstr(err.text, "1125899906842624 bytes") != NULL);
    CHECK(fl_ring_take(ring, 100, &slot, &err) == FL_OK);
    CHECK(fl_ring_wait(ring, &slot, 1, 20, NULL, &which, &err) == FL_ETIMEOUT);
    fl_slot_release(ring, slot);
    fl_ring_free(ring);
}

static void nothing(void *opaque, uint32_t item, void *context) { (void)opaque, (void)item, (void)context; }

static void nap(void *opaque, uint32_t item, void *context) {
    (void)item, (void)context;
    usleep(1000);
    atomic_fetch_add((_Atomic uint32_t *)opaque, 1);
}

static void count(void *opaque, uint32_t item, void *context) {
    (void)item, (void)context;
    atomic_fetch_add((_Atomic uint32_t *)opaque, 1);
}

static void run_all(fl_pool *pool, fl_work work, uint32_t items) {
    fl_error err;
    _Atomic uint32_t ran = 0;
    CHECK(fl_pool_submit(pool, work, (void *)&ran, items, &err) == FL_OK);
    while (atomic_load(&ran) < items) usleep(100);
    fl_pool_cancel(pool, (void *)&ran); /* the last turn has ended */
}

/* Slow items are taken one by one, also after quick ones but for one turn of each thread; a turn is never of
 * more than 16. */
static void turns(void) {
    fl_error err;
    fl_pool *pool;
    CHECK(fl_pool_create("test", 2, 2, NULL, &pool, &err) == FL_OK);
    run_all(pool, nap, 40);
    CHECK(fl_pool_turns(pool) == 40);
    run_all(pool, count, 16000);
    const uint64_t quick = fl_pool_turns(pool);
    CHECK(quick - 40 >= 1000);
    run_all(pool, nap, 60);
    CHECK(fl_pool_turns(pool) - quick >= 60 - 2 * 15 && fl_pool_turns(pool) - quick <= 60);
    fl_pool_free(pool);
}

/* Every thread gets work of one job, although its submission wakes only one: items that wait for as many
 * others as there are threads end. */
static _Atomic uint32_t met;
static void meet(void *opaque, uint32_t item, void *context) {
    (void)opaque, (void)item, (void)context;
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < THREADS) usleep(100);
}

static void all_wake(void) {
    fl_error err;
    fl_pool *pool;
    for (int turn = 0; turn < 20; turn++) {
        atomic_store(&met, 0);
        CHECK(fl_pool_create("test", THREADS, 2, NULL, &pool, &err) == FL_OK);
        if (turn % 2) usleep(2000); /* all sleep */
        CHECK(fl_pool_submit(pool, meet, &met, THREADS, &err) == FL_OK);
        while (atomic_load(&met) < THREADS) usleep(100);
        fl_pool_free(pool);
    }
}

static void *submit_and_cancel(void *pool) {
    fl_error err;
    fl_code code;
    do {
        code = fl_pool_submit(pool, nothing, &err, 3, &err);
        fl_pool_cancel(pool, &err);
    } while (code != FL_ECLOSED);
    return NULL;
}

/* Others submit and cancel while the pool is closed: what they use is there until it is freed. */
static void calls_meet_close(void) {
    for (int turn = 0; turn < 100; turn++) {
        fl_error err;
        fl_pool *pool;
        pthread_t others[2];
        CHECK(fl_pool_create("test", 2, 8, NULL, &pool, &err) == FL_OK);
        for (int i = 0; i < 2; i++) pthread_create(&others[i], NULL, submit_and_cancel, pool);
        usleep((useconds_t)turn);
        fl_pool_close(pool);
        for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
        fl_pool_free(pool);
    }
}

static void ignore(int signal) { (void)signal; }
static void *alarm_soon(void *thread) {
    usleep(30000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

/* A signal ends a wait at once, and reaches the waiter, never a worker. */
static void signals(void) {
    fl_error err;
    fl_ring *ring;
    fl_slot *slot;
    uint32_t which;
    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGUSR1, &action, NULL);
    CHECK(fl_ring_create(1, 64, &ring, &err) == FL_OK);
    CHECK(fl_ring_take(ring, 64, &slot, &err) == FL_OK);
    pthread_t self = pthread_self(), other;
    pthread_create(&other, NULL, alarm_soon, &self);
    CHECK(fl_ring_wait(ring, &slot, 1, 10000, NULL, &which, &err) == FL_EINTR);
    pthread_join(other, NULL);
    fl_slot_release(ring, slot);
    fl_ring_free(ring);
}

/* A process forked while a batch is held keeps its bytes when the parent refills the slot. */
static void forked(void) {
    fl_error err;
    fl_ring *ring;
    fl_slot *slot;
    int go[2];
    CHECK(fl_ring_create(1, 4096, &ring, &err) == FL_OK);
    CHECK(fl_ring_take(ring, 4096, &slot, &err) == FL_OK);
    memset(fl_slot_data(slot), 1, 4096);
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        _exit(read(go[0], &byte, 1) == 1 && ((uint8_t *)fl_slot_data(slot))[77] == 1 ? 0 : 1);
    }
    memset(fl_slot_data(slot), 2, 4096);
    CHECK(write(go[1], "x", 1) == 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fl_slot_release(ring, slot);
    fl_ring_free(ring);
}

enum { PAGE = 4096, IN_USE = 3 };

/* Batch k takes a slot of so many pages, where batch k - IN_USE had one, whose bytes nobody has changed.
 * Returns what the ring has mapped. */
static uint64_t next_batch(fl_ring *ring, fl_slot **held, int k, size_t pages) {
    fl_error err;
    fl_slot **slot = &held[k % IN_USE];
    if (*slot) {
        CHECK(*(int *)fl_slot_data(*slot) == k - IN_USE);
        fl_slot_release(ring, *slot);
    }
    CHECK(fl_ring_take(ring, pages * PAGE, slot, &err) == FL_OK && fl_slot_bytes(*slot) >= pages * PAGE);
    *(int *)fl_slot_data(*slot) = k;
    fl_ring_counts counts;
    fl_ring_count(ring, &counts);
    CHECK(counts.slots <= IN_USE);
    return counts.bytes;
}

/* Slots whose batches differ by a half are mapped once and for all. What one huge batch took stays for
 * FL_RING_RECENT batches, and after twice as many it is given back. */
static void give_back(void) {
    enum { HUGE = 200, LARGEST = 9 };
    fl_error err;
    fl_ring *ring;
    fl_slot *held[IN_USE] = {NULL};
    int k = 0;
    CHECK(fl_ring_create(IN_USE, 0, &ring, &err) == FL_OK);
    for (; k < 100; k++) next_batch(ring, held, k, LARGEST - k * 7 % 5);
    const uint64_t before =
        next_batch(ring, held, k, LARGEST - k * 7 % 5); /* a slot that is mapped anew has another size */
    for (k++; k < 100 + 4 * FL_RING_RECENT; k++)
        CHECK(next_batch(ring, held, k, LARGEST - k * 7 % 5) == before);
    next_batch(ring, held, k++, HUGE);
    for (int i = 0; i < FL_RING_RECENT; i++, k++)
        CHECK(next_batch(ring, held, k, LARGEST - k % 5) >= HUGE * PAGE);
    for (int i = 0; i < FL_RING_RECENT + IN_USE; i++, k++) next_batch(ring, held, k, LARGEST - k % 5);
    CHECK(next_batch(ring, held, k, LARGEST) <= 2 * IN_USE * LARGEST * PAGE);
    for (int i = 0; i < IN_USE; i++) fl_slot_release(ring, held[i]);
    fl_ring_free(ring);
}

/* With any argument nothing is forked: qemu-user may leave a forked child waiting for a lock of its own. */
int main(int argc, char **argv) {
    (void)argv;
    give_back();
    pass_batches();
    lend();
    cancel();
    bounds();
    turns();
    all_wake();
    calls_meet_close();
    signals();
    if (argc == 1) forked();
    puts("ring, pool: ok");
    return 0;
}
