/* A worker's ring gives each event once, in order, or counts it as dropped; run under the thread sanitizer
 * too. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "engine/trace.h"

enum { EVENTS = 200000, ROOM = 256 };

static void *write_events(void *opaque) {
    for (uint64_t i = 0; i < EVENTS; i++) {
        const fl_trace_event event = {
            .start_ns = (int64_t)i, .duration_ns = 3, .index = i * 7, .stage = FL_TRACE_DECODE};
        fl_trace_put(opaque, &event);
    }
    return NULL;
}

/* What is drained while another thread writes is whole and in order, and with what was dropped it is all that
 * was written. */
static void one_writer_one_reader(void) {
    fl_error err;
    fl_trace *trace;
    CHECK(fl_trace_create(ROOM, &trace, &err) == FL_OK);
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_events, trace) == 0);
    static fl_trace_event out[ROOM];
    uint64_t seen = 0, dropped = 0;
    int64_t last = -1;
    while (seen + dropped < EVENTS) {
        const size_t count = fl_trace_drain(trace, out, ROOM / 3);
        for (size_t i = 0; i < count; i++) {
            CHECK(out[i].start_ns > last);
            CHECK(out[i].index == (uint64_t)out[i].start_ns * 7 && out[i].duration_ns == 3 &&
                  out[i].stage == FL_TRACE_DECODE);
            last = out[i].start_ns;
        }
        seen += count, dropped += fl_trace_dropped(trace);
    }
    CHECK(pthread_join(writer, NULL) == 0);
    CHECK(seen + dropped == EVENTS && seen >= ROOM);
    CHECK(fl_trace_drain(trace, out, ROOM) == 0 && fl_trace_dropped(trace) == 0);
    fl_trace_free(trace);
}

/* The oldest events stay, the rest is counted, and there is room again after a drain. */
static void full(void) {
    fl_error err;
    fl_trace *trace;
    CHECK(fl_trace_create(5, &trace, &err) == FL_OK); /* 8 */
    fl_trace_event event = {.stage = FL_TRACE_READ}, out[16];
    for (uint64_t i = 0; i < 11; i++) {
        event.index = i;
        fl_trace_put(trace, &event);
    }
    CHECK(fl_trace_dropped(trace) == 3 && fl_trace_dropped(trace) == 0);
    CHECK(fl_trace_waiting(trace) == 8 && fl_trace_drain(trace, out, 16) == 8 &&
          fl_trace_waiting(trace) == 0);
    for (uint64_t i = 0; i < 8; i++) CHECK(out[i].index == i);
    fl_trace_put(trace, &event);
    CHECK(fl_trace_drain(trace, out, 16) == 1 && out[0].index == 10 && fl_trace_dropped(trace) == 0);
    fl_trace_free(trace);
    fl_trace_free(NULL);
}

static void refused(void) {
    fl_error err;
    fl_trace *trace;
    CHECK(fl_trace_create(0, &trace, &err) == FL_EARG && !trace);
    CHECK(fl_trace_create(UINT32_MAX, &trace, &err) == FL_EARG && !trace);
    CHECK(sizeof(fl_trace_event) == 40);
    CHECK(fl_trace_thread() != 0);
}

int main(void) {
    one_writer_one_reader();
    full();
    refused();
    return 0;
}
