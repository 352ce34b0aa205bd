/* Reads in flight: their number follows what a disk rewards, never passes the limit, and nobody waits for ever;
 * run under the thread sanitizer too. */
#include "store/in_flight.h"

#include <stdatomic.h>

#include "check.h"

enum { STRETCHES = 200, STEP = 1000000, THREADS = 8, ROUNDS = 2000 };

/* What a disk gives, in reads a second, of so many at once. */
typedef double (*disk)(uint32_t reads);

static double waits_alone(uint32_t reads) { return 50.0 * reads; } /* 20 ms each, any number at once */
static double is_busy_at_40(uint32_t reads) { return reads < 40 ? 50.0 * reads : 2000; }
static double moves_heads(uint32_t reads) { return reads < 8 ? 100.0 * reads : 6400.0 / reads; }

/* The mean limit of the last stretches on that disk, whose clock is made up. */
static double settled(disk gives) {
    fl_in_flight reads;
    fl_in_flight_create(&reads);
    int64_t now = 1;
    double due = 0, sum = 0;
    uint32_t counted = 0;
    for (int i = 0; i < STRETCHES * 250; i++) {
        now += STEP;
        due += gives(reads.limit) * STEP / 1e9;
        for (; due >= 1; due--) {
            fl_in_flight_enter(&reads);
            reads.waited = true; /* there are always more */
            fl_in_flight_leave(&reads, now);
        }
        if (i >= STRETCHES * 125) sum += reads.limit, counted++;
        CHECK(reads.limit >= FL_IN_FLIGHT_LEAST && reads.limit <= FL_IN_FLIGHT_MOST);
    }
    fl_in_flight_free(&reads);
    return sum / counted;
}

static void following(void) {
    CHECK(settled(waits_alone) > 85);
    const double busy = settled(is_busy_at_40), heads = settled(moves_heads);
    CHECK(busy > 25 && busy < 75);
    CHECK(heads < 20);
}

/* Without anybody who waits nothing is learnt: the loop is slower than the disk. */
static void idle(void) {
    fl_in_flight reads;
    fl_in_flight_create(&reads);
    for (int64_t now = 1; now < 4000 * (int64_t)STEP; now += STEP) {
        fl_in_flight_enter(&reads);
        fl_in_flight_leave(&reads, now);
    }
    CHECK(reads.limit == FL_IN_FLIGHT_FIRST && !reads.now);
    fl_in_flight_free(&reads);
}

static fl_in_flight shared;
static _Atomic uint32_t under_way;
static _Atomic int64_t ticks = 1;

static void *reader(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        fl_in_flight_enter(&shared);
        CHECK(atomic_fetch_add(&under_way, 1) < FL_IN_FLIGHT_MOST);
        atomic_fetch_sub(&under_way, 1);
        fl_in_flight_leave(&shared, atomic_fetch_add(&ticks, 1) * 100 * STEP);
    }
    return unused;
}

static void together(void) {
    pthread_t threads[THREADS];
    fl_in_flight_create(&shared);
    shared.limit = 2; /* fewer than threads */
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, reader, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(!shared.now);
    fl_in_flight_free(&shared);
}

int main(void) {
    following();
    idle();
    together();
    return 0;
}
