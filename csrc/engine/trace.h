/* engine/trace: a ring of events of one worker's stages, for a trace of the loop.
 *
 * NOTE [ trace: one writer, one reader ]
 * A worker writes its own ring, without a lock and without an allocation; one thread at a time drains it. An
 * event that finds the ring full is dropped and counted. A worker that has no ring writes nothing, and that
 * test is all that a trace costs while there is none.
 */
#ifndef FL_ENGINE_TRACE_H
#define FL_ENGINE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* Stages of a sample. The first encloses the others; FL_TRACE_CHECK lies within FL_TRACE_READ. */
typedef enum fl_trace_stage {
    FL_TRACE_SAMPLE = 0,
    FL_TRACE_READ = 1,
    FL_TRACE_CHECK = 2,
    FL_TRACE_DECODE = 3,
    FL_TRACE_RESIZE = 4,
    FL_TRACE_FILL = 5,
} fl_trace_stage;

/* 40 bytes without a gap: Python reads an array of them. */
typedef struct fl_trace_event {
    int64_t start_ns, duration_ns; /* by fl_clock_ns */
    uint64_t index;                /* of the sample in its source */
    uint32_t source, epoch;
    uint32_t thread; /* as the kernel numbers it */
    uint16_t stage;  /* fl_trace_stage */
    uint16_t failed; /* 1: the stage ended with an error */
} fl_trace_event;

typedef struct fl_trace fl_trace;

/* A ring of `capacity` events, which is rounded up to a power of two. */
fl_code fl_trace_create(uint32_t capacity, fl_trace **out, fl_error *err);
void fl_trace_free(fl_trace *trace); /* NULL is allowed */

/* Adds an event, or counts it as dropped. The writer. */
void fl_trace_put(fl_trace *trace, const fl_trace_event *event);

/* Number of events that a drain would find at least. The reader. */
size_t fl_trace_waiting(fl_trace *trace);

/* Moves up to `most` events, oldest first, and returns their number. The reader. */
size_t fl_trace_drain(fl_trace *trace, fl_trace_event *out, size_t most);

/* Number of events that were dropped since the last call. The reader. */
uint64_t fl_trace_dropped(fl_trace *trace);

/* Number of the calling thread, as the kernel has it. */
uint32_t fl_trace_thread(void);

#endif
