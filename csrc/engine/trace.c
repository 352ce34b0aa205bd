#define _GNU_SOURCE
#include "engine/trace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fl_trace {
    fl_trace_event *events;
    uint32_t mask;             /* capacity - 1 */
    _Atomic uint64_t written;  /* the writer's */
    _Atomic uint64_t read;     /* the reader's */
    _Atomic uint64_t dropped;  /* added to by the writer, taken by the reader */
};

fl_code fl_trace_create(uint32_t capacity, fl_trace **out, fl_error *err) {
    *out = NULL;
    if (!capacity || capacity > 1u << 24) return fl_fail(err, FL_EARG, "a ring of %u events", capacity);
    uint32_t room = 1;
    while (room < capacity) room *= 2;
    fl_trace *trace = calloc(1, sizeof *trace);
    if (trace) trace->events = calloc(room, sizeof *trace->events);
    if (!trace || !trace->events) {
        fl_trace_free(trace);
        return fl_fail(err, FL_ENOMEM, "no memory for a trace of %u events", room);
    }
    trace->mask = room - 1;
    *out = trace;
    return FL_OK;
}

void fl_trace_free(fl_trace *trace) {
    if (!trace) return;
    free(trace->events);
    free(trace);
}

void fl_trace_put(fl_trace *trace, const fl_trace_event *event) {
    const uint64_t written = atomic_load_explicit(&trace->written, memory_order_relaxed);
    if (written - atomic_load_explicit(&trace->read, memory_order_acquire) > trace->mask) {
        atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
        return;
    }
    trace->events[written & trace->mask] = *event;
    atomic_store_explicit(&trace->written, written + 1, memory_order_release);
}

size_t fl_trace_waiting(fl_trace *trace) {
    return (size_t)(atomic_load_explicit(&trace->written, memory_order_acquire) -
                    atomic_load_explicit(&trace->read, memory_order_relaxed));
}

size_t fl_trace_drain(fl_trace *trace, fl_trace_event *out, size_t most) {
    const uint64_t read = atomic_load_explicit(&trace->read, memory_order_relaxed);
    const uint64_t there = atomic_load_explicit(&trace->written, memory_order_acquire) - read;
    const size_t count = there < most ? (size_t)there : most;
    for (size_t i = 0; i < count; i++) out[i] = trace->events[(read + i) & trace->mask];
    atomic_store_explicit(&trace->read, read + count, memory_order_release);
    return count;
}

uint64_t fl_trace_dropped(fl_trace *trace) {
    return atomic_exchange_explicit(&trace->dropped, 0, memory_order_relaxed);
}

uint32_t fl_trace_thread(void) { return (uint32_t)syscall(SYS_gettid); }
