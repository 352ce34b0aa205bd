#include "store/in_flight.h"

enum { STRETCH_NS = 250000000, DONE_LEAST = 16 /* reads of a stretch */, PAUSE = 16 };
static const double BETTER = 1.05, SAME = 0.99;

void fl_in_flight_create(fl_in_flight *reads) {
    *reads = (fl_in_flight){.limit = FL_IN_FLIGHT_FIRST, .next = FL_IN_FLIGHT_MORE, .pause = 1};
    pthread_mutex_init(&reads->lock, NULL);
    pthread_cond_init(&reads->fewer, NULL);
}

void fl_in_flight_free(fl_in_flight *reads) {
    pthread_cond_destroy(&reads->fewer);
    pthread_mutex_destroy(&reads->lock);
}

void fl_in_flight_enter(fl_in_flight *reads) {
    pthread_mutex_lock(&reads->lock);
    while (reads->now >= reads->limit) {
        reads->waited = true;
        pthread_cond_wait(&reads->fewer, &reads->lock);
    }
    reads->now++;
    pthread_mutex_unlock(&reads->lock);
}

static void try_another(fl_in_flight *reads, fl_in_flight_trial trial) {
    const uint32_t more = reads->limit + reads->limit / 2, fewer = reads->limit - reads->limit / 4;
    reads->trial = trial;
    reads->before = reads->limit;
    if (trial == FL_IN_FLIGHT_MORE) reads->limit = more < FL_IN_FLIGHT_MOST ? more : FL_IN_FLIGHT_MOST;
    else reads->limit = fewer > FL_IN_FLIGHT_LEAST ? fewer : FL_IN_FLIGHT_LEAST;
}

/* At a stretch's end. See NOTE [ in flight: as many as the disk rewards ]. */
static void judge(fl_in_flight *reads, double rate) {
    if (reads->trial == FL_IN_FLIGHT_NONE) {
        reads->rate = rate;
        if (--reads->pause == 0) try_another(reads, reads->next);
        return;
    }
    const bool more = reads->trial == FL_IN_FLIGHT_MORE;
    if (rate >= reads->rate * (more ? BETTER : SAME) && reads->limit != reads->before) {
        if (rate > reads->rate) reads->rate = rate;
        try_another(reads, reads->trial);
        return;
    }
    reads->limit = reads->before;
    reads->trial = FL_IN_FLIGHT_NONE;
    reads->next = more ? FL_IN_FLIGHT_FEWER : FL_IN_FLIGHT_MORE;
    reads->pause = PAUSE;
}

void fl_in_flight_leave(fl_in_flight *reads, int64_t now) {
    pthread_mutex_lock(&reads->lock);
    const uint32_t limit = reads->limit;
    reads->now--;
    reads->done++;
    if (!reads->since) reads->since = now, reads->done = 0;
    if (now - reads->since >= STRETCH_NS && reads->done >= DONE_LEAST) {
        if (reads->waited) judge(reads, reads->done / (double)(now - reads->since));
        reads->since = now, reads->done = 0, reads->waited = false;
    }
    if (reads->limit > limit) pthread_cond_broadcast(&reads->fewer);
    else pthread_cond_signal(&reads->fewer); /* one for one */
    pthread_mutex_unlock(&reads->lock);
}
