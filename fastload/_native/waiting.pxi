# The loop's thread waits for batches.

from fastload._native.c_common cimport fl_code, FL_EINTR, fl_error, FL_ETIMEOUT, FL_OK
from fastload._native.c_engine cimport fl_ring, fl_ring_wait, fl_slot, fl_stop

from libc.stdint cimport int64_t, uint32_t
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc


cdef bint _is_set(Stop stop):
    return stop is not None and stop.stop.set != 0


def wait_any(list batches, double timeout, Stop stop=None):
    """The position of a batch that is ready, waiting for at most timeout seconds (0: no limit). -1 once
    `stop` is set.

    A signal's Python handler runs at once, so Ctrl-C raises KeyboardInterrupt here. LoaderTimeout;
    ClosedError.
    """
    cdef fl_error err
    cdef fl_code code = FL_OK
    cdef uint32_t which = 0, n = <uint32_t>len(batches)
    cdef int64_t left_ms = <int64_t>(timeout * 1000), slice_ms
    cdef bint limited = timeout > 0
    cdef Batch first = batches[0]
    cdef fl_ring *ring = first.engine.ring.ptr
    cdef fl_slot **slots
    cdef const fl_stop *stopped = NULL if stop is None else &stop.stop
    first.engine._live()
    if first.engine.pool is NULL:
        first._run_inline()
        return 0
    slots = <fl_slot **>PyMem_Malloc(n * sizeof(void *))
    if slots is NULL:
        raise MemoryError
    try:
        for i in range(n):
            slots[i] = (<Batch>batches[i]).batch.slot
        while True:
            # See NOTE [ signals while a call waits ].
            slice_ms = min(left_ms, 250) if limited else 250
            with nogil:
                code = fl_ring_wait(ring, slots, n, slice_ms, stopped, &which, &err)
            if code == FL_OK:
                return which
            if code == FL_EINTR and _is_set(stop):
                return -1
            PyErr_CheckSignals()
            first.engine._live()
            if code == FL_ETIMEOUT and limited:
                left_ms -= slice_ms
                if left_ms <= 0:
                    raise _errors.LoaderTimeout.after(timeout)
            elif code != FL_ETIMEOUT and code != FL_EINTR:
                check(code, &err)
    finally:
        PyMem_Free(slots)
