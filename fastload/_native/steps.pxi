# The last steps of a loop, and the iterator that times them: what health monitoring costs a batch is here.

from libc.math cimport isfinite as _isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.time cimport time_t
from cpython.bytes cimport PyBytes_FromStringAndSize

cdef extern from "time.h" nogil:
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int _CLOCK_MONOTONIC "CLOCK_MONOTONIC"
    int _clock_gettime "clock_gettime"(int, timespec *)


cdef inline double _seconds() noexcept nogil:
    cdef timespec now
    _clock_gettime(_CLOCK_MONOTONIC, &now)  # cannot fail: the clock exists on every Linux
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


cdef class StepRing:
    """Keeps the last `window` steps, and totals of all.

    1. Memory is allocated once. add() and copy() run under the GIL and no Python code runs inside them: any thread may call
       either, at any time, also in a forked child, and copy() sees whole steps.
    2. Neither is blocked by the other; there is no lock.
    3. Copying or pickling gives an empty ring of the same window.
    """

    cdef readonly Py_ssize_t window
    cdef double *wait_s
    cdef double *step_s
    cdef int64_t *samples  # ~samples, a negative number, for the first step of an epoch
    cdef Py_ssize_t at  # where the next step goes
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
                f"a step of wait_s={wait_s!r}, step_s={step_s!r}, samples={samples!r}: all must be finite and not negative"
            )
        self.put(wait_s, step_s, samples, first)

    def copy(self):
        """(bytes of float64 wait_s, of float64 step_s, of int64 samples, where the next step goes, totals).

        Entries are in the order of the ring, of which only those before the next step are used until it has gone round.
        Totals are (steps, epochs, samples, wait_s, step_s).
        """
        cdef Py_ssize_t size = self.window * sizeof(double)
        # Three allocations of plain bytes: none runs Python code, nor the collector, so no step comes in between.
        wait_s = PyBytes_FromStringAndSize(<const char *>self.wait_s, size)
        step_s = PyBytes_FromStringAndSize(<const char *>self.step_s, size)
        samples = PyBytes_FromStringAndSize(<const char *>self.samples, size)
        cdef Py_ssize_t at = self.at
        totals = (self.steps, self.epochs, self.all_samples, self.all_wait_s, self.all_step_s)
        return wait_s, step_s, samples, at, totals


cdef class TimedIterator:
    """An iterator whose steps a ring counts; other attributes are the iterator's.

    1. A step is counted when the next batch is asked for; the one in which the loop is left is not. A wait that fails is not.
    2. `waited_s` is added to the first wait. `count(batch)` gives its samples; with `plain`, the first dimension of the batch or
       of its first part does, where there is one.
    3. `on_first(batch)` is called once, with the first batch.
    """

    cdef StepRing ring
    cdef readonly object iterator
    cdef object count, on_first
    cdef bint plain, pending, first
    cdef double waited_s, wait_s, got
    cdef int64_t samples

    def __init__(self, StepRing ring not None, iterator, double waited_s, count, bint plain, on_first):
        self.ring = ring
        self.iterator = iterator
        self.waited_s = waited_s
        self.count = count
        self.plain = plain
        self.on_first = on_first
        self.first = True

    def restart(self, double waited_s):
        """The same iterator begins another epoch; returns self."""
        self.waited_s, self.first, self.pending = waited_s, True, False
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef double asked = _seconds()
        if self.pending:
            self.pending = False
            self.ring.put(self.wait_s, asked - self.got, self.samples, self.first)
            self.first = False
        batch = next(self.iterator)
        self.got = _seconds()
        self.wait_s = self.got - asked
        self.wait_s += self.waited_s
        self.waited_s = 0
        if self.on_first is not None:
            self.on_first(batch)
            self.on_first = None
        self.samples = self._samples_of(batch)
        if self.samples < 0:
            raise _errors.ArgumentError(f"count(batch) gave {self.samples}: a batch has no fewer than 0 samples")
        self.pending = True
        return batch

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

    def __len__(self):
        return len(self.iterator)

    def __getattr__(self, name):
        return getattr(self.iterator, name)
