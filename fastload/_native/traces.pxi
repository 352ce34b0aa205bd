# Rings of events of native workers, for a trace of the loop.

from fastload._native.c_common cimport fl_clock_ns, fl_error
from fastload._native.c_engine cimport (
    fl_trace, fl_trace_create, fl_trace_drain, fl_trace_dropped, fl_trace_event, fl_trace_free,
    fl_trace_waiting,
    fl_worker, fl_worker_trace,
)

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

import weakref as _weakref

# NOTE [ traces: of a whole process ]
# `_tracing` is the capacity of each ring while a trace is taken, else 0. Everything here runs under the GIL.
# `_traced` refers weakly to the rings of all engines and decoders that are alive, so that a trace reaches
# those that were made before it; those that are made later ask `_tracing`. Rings are freed with their owner,
# after its threads have ended, and their last events go to `_left`.
cdef uint32_t _tracing = 0
cdef object _on_wait = None
_traced = _weakref.WeakValueDictionary()
_left = []


cdef class _Traces:
    """The rings of some workers, each made when a trace first needs it."""

    cdef object __weakref__
    cdef fl_worker **workers
    cdef fl_trace **rings
    cdef uint32_t count, room

    def __cinit__(self, uint32_t room):
        self.workers = <fl_worker **>calloc(room, sizeof(void *))
        self.rings = <fl_trace **>calloc(room, sizeof(void *))
        if self.workers is NULL or self.rings is NULL:
            raise _errors.ResourceError(f"no memory for {room} workers")
        self.room = room
        _traced[id(self)] = self

    def __dealloc__(self):
        if self.rings is not NULL:
            for i in range(self.room):
                fl_trace_free(self.rings[i])
        free(self.rings)
        free(self.workers)

    cdef int _join(self, fl_worker *worker) except -1:
        self.workers[self.count] = worker
        self.count += 1
        if _tracing:
            self._start(self.count - 1)
        return 0

    cdef int _start(self, uint32_t i) except -1:
        cdef fl_error err
        if self.rings[i] is NULL:
            check(fl_trace_create(_tracing, &self.rings[i], &err), &err)
        fl_worker_trace(self.workers[i], self.rings[i])
        return 0

    cdef int _switch(self) except -1:
        """Begins or ends the events of all workers, as `_tracing` is now."""
        cdef uint32_t i
        for i in range(self.count):
            if _tracing:
                self._start(i)
            else:
                fl_worker_trace(self.workers[i], NULL)
        return 0

    cdef int _end(self) except -1:
        """Takes the last events of workers that are about to be freed."""
        self.count = 0
        if _tracing:
            self._drain(_left)
        return 0

    cdef int _drain(self, list into) except -1:
        cdef uint64_t dropped
        cdef size_t most
        cdef uint32_t i
        for i in range(self.room):
            if self.rings[i] is NULL:
                continue
            dropped, most = fl_trace_dropped(self.rings[i]), fl_trace_waiting(self.rings[i])
            if most or dropped:
                body = PyBytes_FromStringAndSize(NULL, most * sizeof(fl_trace_event))
                fl_trace_drain(self.rings[i], <fl_trace_event *>PyBytes_AS_STRING(body), most)
                into.append((body, dropped))
        return 0


def _alive():
    """All rings of this process; the list is made at once, whatever other threads do."""
    return [found for each in _traced.valuerefs() if (found := each()) is not None]


def trace_workers(uint32_t capacity, on_wait=None):
    """Has all native workers of this process, and those to come, write their stages into rings of `capacity`
    events each; 0: no more.

    `on_wait(loop, before_ns, asked_ns, got_ns, failed)` is called after each wait of a loop: when its batch
    before came (0: there was none), when this one was asked for, and when it came or failed, with the
    exception. `loop` is an object of which each loader's loops have one.

    Raises:
        ResourceError: there is no memory for a ring.
    """
    global _tracing, _on_wait
    cdef _Traces each
    if capacity and not _tracing:
        _left.clear()
        traced_events()
        _left.clear()
    _on_wait = on_wait
    _tracing = capacity
    try:
        for each in _alive():
            each._switch()
    except BaseException:
        _tracing = 0
        for each in _alive():
            each._switch()
        raise


def traced_events():
    """List of (events, dropped) since the last call: bytes that are an array of TRACE_EVENT, and the number
    of events that found their ring full."""
    cdef _Traces each
    cdef list found = []
    found, _left[:] = list(_left), []
    for each in _alive():
        each._drain(found)
    return found


def clock_ns():
    """Nanoseconds of the clock that events have their times by."""
    return fl_clock_ns()


TRACE_EVENT = _np.dtype([
    ("start_ns", "<i8"), ("duration_ns", "<i8"), ("index", "<u8"), ("source", "<u4"), ("epoch", "<u4"),
    ("thread", "<u4"), ("stage", "<u2"), ("failed", "<u2"),
])
TRACE_STAGES = ("sample", "read", "check", "decode", "resize", "fill")
