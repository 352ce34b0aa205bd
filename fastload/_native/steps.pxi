# The last steps of a loop, and the iterator that times them: what health monitoring costs a batch is here.

from fastload._native.c_common cimport fl_clock_ns
from fastload._native.c_engine cimport fl_shm_forks

from libc.math cimport isfinite as _isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_ACQUIRED, PY_LOCK_FAILURE, PyLockStatus, PyThread_acquire_lock, PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)

cdef extern from "pythread.h" nogil:
    PyLockStatus _acquire_lock_timed "PyThread_acquire_lock_timed"(PyThread_type_lock, long long microseconds,
                                                                   int interruptible)


cdef inline double _seconds() noexcept nogil:
    return <double>fl_clock_ns() * 1e-9


cdef class StepRing:
    """Keeps the last `window` steps, and totals of all.

    1. Memory is allocated once. add() and copy() run under the GIL and no Python code runs inside them: any
       thread may call either, at any time, also in a forked child, and copy() sees whole steps.
    2. Neither is blocked by the other; there is no lock.
    3. Copying or pickling gives an empty ring of the same window.
    """

    cdef readonly Py_ssize_t window
    cdef double *wait_s
    cdef double *step_s
    cdef int64_t *samples  # ~samples, a negative number, for the first step of an epoch
    cdef Py_ssize_t at  # place of the next step
    cdef int64_t steps, epochs, all_samples
    cdef double all_wait_s, all_step_s

    def __cinit__(self, Py_ssize_t window):
        if window < 1:
            raise ValueError("a ring has at least one step")
        self.window = window
        self.wait_s = <double *>calloc(window, sizeof(double))
        self.step_s = <double *>calloc(window, sizeof(double))
        self.samples = <int64_t *>calloc(window, sizeof(int64_t))
        if self.wait_s == NULL or self.step_s == NULL or self.samples == NULL:
            raise _errors.ResourceError(f"no memory to look back on {window} steps: make window= smaller")

    def __dealloc__(self):
        free(self.wait_s)
        free(self.step_s)
        free(self.samples)

    def __reduce__(self):
        return StepRing, (self.window,)

    cdef void put(self, double wait_s, double step_s, int64_t samples, bint first) noexcept:
        self.wait_s[self.at] = wait_s
        self.step_s[self.at] = step_s
        self.samples[self.at] = ~samples if first else samples
        self.at = self.at + 1 if self.at + 1 < self.window else 0
        self.steps += 1
        self.epochs += first
        self.all_samples += samples
        self.all_wait_s += wait_s
        self.all_step_s += step_s

    def add(self, double wait_s, double step_s, int64_t samples, bint first):
        """Adds a step: seconds waited, seconds worked, samples in its batch, and whether it began an epoch.

        Raises:
            ArgumentError: a time or a count is negative or not finite.
        """
        if not (_isfinite(wait_s) and _isfinite(step_s)) or wait_s < 0 or step_s < 0 or samples < 0:
            raise _errors.ArgumentError(
                f"a step of wait_s={wait_s!r}, step_s={step_s!r}, samples={samples!r}: all must be finite and "
                "not negative"
            )
        self.put(wait_s, step_s, samples, first)

    def copy(self):
        """(bytes of float64 wait_s, of float64 step_s, of int64 samples, where the next step goes, totals).

        Entries are in the order of the ring, of which only those before the next step are used until it has
        gone round. Totals are (steps, epochs, samples, wait_s, step_s).
        """
        cdef Py_ssize_t size = self.window * sizeof(double)
        # Three allocations of plain bytes: none runs Python code, nor the collector, so no step comes in
        # between.
        wait_s = PyBytes_FromStringAndSize(<const char *>self.wait_s, size)
        step_s = PyBytes_FromStringAndSize(<const char *>self.step_s, size)
        samples = PyBytes_FromStringAndSize(<const char *>self.samples, size)
        cdef Py_ssize_t at = self.at
        totals = (self.steps, self.epochs, self.all_samples, self.all_wait_s, self.all_step_s)
        return wait_s, step_s, samples, at, totals


# NOTE [ timed iterators: several threads ]
# Several threads may call next() on one iterator, as on torch's: a lock lets one in at a time, so that each
# batch goes to one of them. It is free for one thread: a try, and no call into Python. Whoever holds it may
# come again, as a signal's handler does. A forked child never waits for it, since a thread that it lacks may
# hold it there: what the child calls is alone.

@_cython.auto_pickle(False)
cdef class StepTimer:
    """An iterator whose steps a ring counts; a subclass makes the batches, in `_advance()`.

    1. A step is counted when the next batch is asked for; the one in which the loop is left is not. A wait
       that fails is not.
    2. Any thread may call next(), also while another is in it. See NOTE [ timed iterators: several threads ].
    3. Before time_steps() nothing is counted.
    """

    cdef StepRing ring
    cdef object count, on_first
    cdef bint plain, pending, first
    cdef double waited_s, wait_s, got
    cdef int64_t samples
    cdef int64_t traced_ns  # when the batch before came, if a trace was taken then
    cdef PyThread_type_lock lock
    cdef unsigned long holder
    cdef uint64_t forks
    cdef int pid

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no memory for a lock")
        self.pid, self.forks = _getpid(), fl_shm_forks()

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def time_steps(self, StepRing ring not None, double waited_s, count, bint plain, on_first):
        """Counts the steps of the pass that begins now.

        `waited_s` is added to the first wait. `count(batch)` gives a batch's samples; with `plain`, the first
        dimension of the batch or of its first part does, where there is one. `on_first(batch)` is called
        once, with the first batch.
        """
        self.ring, self.count, self.plain, self.on_first = ring, count, plain, on_first
        self.waited_s, self.first, self.pending, self.traced_ns = waited_s, True, False, 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef unsigned long me = <unsigned long>PyThread_get_thread_ident()
        if self.holder == me or not self._shared():
            return self._timed()
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            self._wait_for_lock()
        self.holder = me
        try:
            return self._timed()
        finally:
            self.holder = 0
            PyThread_release_lock(self.lock)

    cdef bint _shared(self) noexcept:
        """True if other threads of this process may be in next()."""
        if self.forks != fl_shm_forks():
            if self.pid != _getpid():
                return False
            self.forks = fl_shm_forks()
        return True

    cdef int _wait_for_lock(self) except -1:
        cdef PyLockStatus status = PY_LOCK_FAILURE
        while status != PY_LOCK_ACQUIRED:
            with nogil:  # See NOTE [ signals while a call waits ].
                status = _acquire_lock_timed(self.lock, 250_000, 1)
            if status != PY_LOCK_ACQUIRED:
                PyErr_CheckSignals()
        return 0

    cdef _timed(self):
        if self.ring is None:
            return self._made()
        cdef double asked = _seconds()
        if self.pending:
            self.pending = False
            self.ring.put(self.wait_s, asked - self.got, self.samples, self.first)
            self.first = False
        batch = self._traced() if _tracing else self._made()
        self.got = _seconds()
        self.wait_s = self.got - asked
        self.wait_s += self.waited_s
        self.waited_s = 0
        if self.on_first is not None:
            self.on_first(batch)
            self.on_first = None
        self.samples = self._samples_of(batch)
        if self.samples < 0:
            raise _errors.ArgumentError(
                f"count(batch) gave {self.samples}: a batch has no fewer than 0 samples"
            )
        self.pending = True
        return batch

    cdef _traced(self):
        """_made(), told to the trace that is taken."""
        cdef int64_t asked = fl_clock_ns(), before = self.traced_ns
        tell, self.traced_ns = _on_wait, 0
        try:
            batch = self._made()
        except BaseException as failed:
            if tell is not None:
                tell(self.ring, before, asked, fl_clock_ns(), failed)
            raise
        self.traced_ns = fl_clock_ns()
        if tell is not None:
            tell(self.ring, before, asked, self.traced_ns, None)
        return batch

    cdef _made(self):
        return self._advance()

    cdef int64_t _samples_of(self, batch) except? -1:
        if self.plain:
            head = batch
            if type(batch) is list and len(<list>batch):
                head = (<list>batch)[0]
            elif type(batch) is tuple and len(<tuple>batch):
                head = (<tuple>batch)[0]
            elif type(batch) is dict and len(<dict>batch):
                head = next(iter((<dict>batch).values()))
            try:
                shape = getattr(head, "shape", None)
            except Exception:  # a nested tensor has none, and says so by an error
                shape = None
            if isinstance(shape, tuple):
                return shape[0] if len(<tuple>shape) else 1
        return self.count(batch)


@_cython.auto_pickle(False)
@_cython.final
cdef class TimedIterator(StepTimer):
    """Any iterator, its steps counted; other attributes are the iterator's."""

    cdef object __weakref__
    cdef readonly object iterator

    def __init__(self, iterator):
        self.iterator = iterator

    cdef _made(self):
        return next(self.iterator)

    def __len__(self):
        return len(self.iterator)

    def __getattr__(self, name):
        return getattr(self.iterator, name)
