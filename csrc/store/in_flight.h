/* store/in_flight: how many reads of a slow disk are under way at once: as many as it rewards.
 *
 * NOTE [ in flight: as many as the disk rewards ]
 * A disk that takes 20 ms for each file gives 50 a second for each that is asked for, until its server, or the
 * network, is busy; one whose heads move gives fewer, the more are asked for. So from time to time, and at
 * first, half as many more are tried for a stretch of time, and more again as long as the rate rises; or a
 * quarter fewer, and fewer again as long as it stays. What did not help is undone. Where nobody waits to read,
 * the loop sets the rate, and nothing is learnt. */
#ifndef FL_STORE_IN_FLIGHT_H
#define FL_STORE_IN_FLIGHT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_IN_FLIGHT_LEAST = 4, FL_IN_FLIGHT_FIRST = 32, FL_IN_FLIGHT_MOST = 128 };

typedef enum fl_in_flight_trial {
    FL_IN_FLIGHT_NONE,
    FL_IN_FLIGHT_MORE,
    FL_IN_FLIGHT_FEWER
} fl_in_flight_trial;

/* Any thread may enter and leave. */
typedef struct fl_in_flight {
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    uint32_t limit, now, before; /* reads; the limit before the trial */
    uint32_t done;               /* reads of this stretch */
    bool waited;                 /* somebody had to, in this stretch */
    fl_in_flight_trial trial, next;
    uint32_t pause; /* stretches until the next */
    int64_t since;  /* the stretch's begin, in ns; 0: none has begun */
    double rate;    /* reads a ns, without the trial */
} fl_in_flight;

void fl_in_flight_create(fl_in_flight *reads);
void fl_in_flight_free(fl_in_flight *reads);

void fl_in_flight_enter(fl_in_flight *reads); /* before a read; waits while there are too many */
void fl_in_flight_leave(fl_in_flight *reads,
                        int64_t now); /* after it; `now` by a clock that never goes back */

#endif
