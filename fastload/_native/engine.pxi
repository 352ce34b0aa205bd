# The engine: threads over sources, and batches; one cdef class per handle.
#
# NOTE [ engine: lifetimes ]
# Batch -> Engine -> Sources -> Store, Batch and Lease -> Ring: each holds a reference to what it points into,
# so Python's counting frees them in order. An Engine joins its threads before it lets go of its Ring and
# Sources. Every object belongs to the process that made it: in a forked child its calls raise ClosedError and
# its end touches nothing that the parent's threads own. close() joins an Engine's threads and frees nothing:
# other threads of Python (one that fetches, one that transfers) may be in a call of its batches. no_gc_clear:
# the collector must not clear these references before __dealloc__ has used them.

from fastload._native.c_common cimport (
    FL_ERECORD, FL_EREMOTE, fl_error, fl_fail, FL_OK, fl_view,
)
from fastload._native.c_engine cimport (
    fl_batch, fl_batch_ahead, fl_batch_cached, fl_batch_outdated, fl_batch_pixels, fl_batch_run, fl_converter,
    fl_converter_free, fl_converter_start, fl_counters, fl_pool, fl_pool_cancel, fl_pool_close, fl_pool_create,
    fl_pool_free, fl_pool_submit, fl_ring_lend, fl_ring_take, fl_row, fl_slot, fl_slot_data, fl_slot_lease,
    FL_SLOT_READY, fl_slot_release, fl_slot_state_of, fl_source, fl_worker, fl_worker_counters,
    fl_worker_create, fl_worker_free,
)
from fastload._native.c_store cimport FL_IN_FLIGHT_MOST

_CONVERTERS_MOST = 8


cdef bint _keep(list sources, int keeping):
    """True if that is what some source's files keep."""
    cdef Source source
    for source in sources:
        if isinstance(source.data, Files) and source.data.keeps(keeping):
            return True
    return False


@_cython.no_gc_clear
cdef class Engine:
    """Threads over a fixed list of sources. While they rest, as many others, at most 8, convert images of
    files that are kept.

    1. threads == 0: rows are made by the thread that waits for them.
    2. close() cancels what is queued, joins the threads and is idempotent; batches waited for afterwards
       raise ClosedError.
    """

    cdef fl_pool *pool
    cdef fl_pool *ahead
    cdef fl_converter *converter
    cdef fl_worker **workers
    cdef uint32_t worker_count
    cdef const fl_source **pointers
    cdef readonly list sources
    cdef readonly Ring ring
    cdef readonly int threads
    cdef readonly int pid
    cdef readonly bint closed
    cdef bint counted
    cdef _Traces traces

    def __cinit__(self, list sources, int threads, int capacity, Ring ring):
        cdef fl_error err
        cdef Source source
        self.pid = _getpid()
        self.sources, self.threads, self.ring = sources, threads, ring
        self.pointers = <const fl_source **>calloc(max(1, len(sources)), sizeof(void *))
        # one worker per thread, one for the thread that waits
        self.workers = <fl_worker **>calloc(threads + 1, sizeof(void *))
        if self.pointers is NULL or self.workers is NULL:
            raise _errors.ResourceError("no memory for an engine")
        for i, source in enumerate(sources):
            self.pointers[i] = &source.source
        _add(&_live_engines, 1)
        self.counted = True
        self.traces = _Traces.__new__(_Traces, threads + 1)
        for i in range(threads + 1):
            check(fl_worker_create(&self.workers[i], &err), &err)
            self.worker_count = i + 1
            self.traces._join(self.workers[i])
        if threads:
            check(fl_pool_create(b"fastload", threads, capacity, <void **>self.workers, &self.pool, &err),
                  &err)
        readers = FL_IN_FLIGHT_MOST if _keep(sources, KEEP_BYTES) else 1
        check(fl_pool_create(b"fl-ahead", readers, capacity, NULL, &self.ahead, &err), &err)
        if threads and _keep(sources, KEEP_FORMS):
            check(fl_converter_start(&self.converter, self.pool, self.pointers, len(sources),
                                     min(threads, _CONVERTERS_MOST), &err), &err)

    def __dealloc__(self):
        with nogil:
            fl_converter_free(self.converter)
            fl_pool_free(self.pool)
            fl_pool_free(self.ahead)
        if self.traces is not None:
            self.traces._end()
        if self.pid == _getpid():  # in a child they may be half-way through the parent's work
            for i in range(self.worker_count):
                fl_worker_free(self.workers[i])
        if self.counted:
            _add(&_live_engines, -1)
        free(self.pointers)
        free(self.workers)

    def close(self):
        """Stops the threads. Batches already leased stay valid."""
        if not self.closed:
            self.closed = True
            with nogil:
                fl_converter_free(self.converter)
                self.converter = NULL
                fl_pool_close(self.pool)
                fl_pool_close(self.ahead)

    cdef int _live(self) except -1:
        if self.closed:
            raise _errors.ClosedError("the loader is closed")
        if self.pid != _getpid():
            raise _errors.ClosedError(
                f"this loader's threads belong to process {self.pid}: make the loader in this process"
            )
        return 0

    def counters(self):
        """Counts of the work since the start: samples, failed, warnings, fallbacks (JPEGs that libjpeg-turbo
        decoded), bytes, and nanoseconds by stage."""
        cdef const fl_counters *c
        total = {"samples": 0, "failed": 0, "warnings": 0, "fallbacks": 0, "bytes": 0, "read_ns": 0,
                 "decode_ns": 0, "resize_ns": 0}
        for i in range(self.worker_count):
            c = fl_worker_counters(self.workers[i])
            for name, value in (("samples", c.samples), ("failed", c.failed), ("warnings", c.warnings),
                                ("fallbacks", c.fallbacks), ("bytes", c.bytes),
                                ("read_ns", c.read_ns), ("decode_ns", c.decode_ns), ("resize_ns",
                                        c.resize_ns)):
                total[name] += value
        return total


@_cython.no_gc_clear
cdef class Batch:
    """Some rows on their way into a slot: announced (read-ahead), submitted, ready, leased.

    1. Made by the loader's thread; from submit() until ready, workers write its rows.
    2. Dropping it at any time is safe: rows not begun are cancelled, rows under way are waited for, the slot
       is given back.
    3. A batch that is held takes its slot at submit(), and its rows are queued at release(): no decoder waits
       for what is still on its way.
    """

    cdef object __weakref__
    cdef fl_batch batch
    cdef readonly bint held
    # It has its slot, and all of the slot is in `batch`: release() is of another thread, and may come in the
    # middle
    cdef bint submitted
    cdef object memory  # keeps the slot's memory, where that was lent to the ring
    cdef list given  # records that rows were given, until they are made
    # Uint32 (rows), or None where all are 0: kept here by the holder of the batch
    cdef public object occurrences
    # The samples of the rows, where they are images of samples that have any number; kept here likewise
    cdef public object listed
    cdef public object fetch  # object for which the batch waits, kept here by the holder of the batch
    # It was submitted before its epoch was asked for: renew() comes before its rows are used
    cdef public bint early
    cdef Engine engine
    cdef _Targets targets
    cdef _Rooms rooms  # None: there are no items
    cdef uint32_t inline_next
    cdef bint counted
    cdef bint read_ahead, finished  # what the engine's two pools may know of it: see __dealloc__

    def __cinit__(self, Engine engine, const uint32_t[::1] sources, const uint64_t[::1] indices, sizes,
                  list outputs, seed, epoch,
                  str layout="equal", uint32_t pad_to=1, bint even=False, bint bounded=False,
                  const uint64_t[::1] seeds=None, const uint64_t[::1] drawn_as=None):
        """even: whether the rows of each item start at equal steps, and not one right after the other.
        bounded: see _Targets. seeds: of the draws of each row; None: all have `seed`.
        drawn_as: index of the draws of each row; None: its own."""
        cdef Source first
        cdef uint32_t i, n = <uint32_t>indices.shape[0]
        cdef uint64_t common = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)
        cdef fl_error err
        engine._live()
        self.engine, self.targets = engine, _Targets.__new__(_Targets, n, sizes, outputs, layout, pad_to,
                                                             bounded)
        if n == 0 or sources.shape[0] != n or (seeds is not None and seeds.shape[0] != n) or (
                drawn_as is not None and drawn_as.shape[0] != n):
            raise _errors.ArgumentError("a batch needs at least one row")
        for i in range(n):
            if i > 0 and sources[i] == sources[i - 1]:
                continue
            if sources[i] >= <uint32_t>len(engine.sources):
                raise _errors.ArgumentError(f"row {i} names source {sources[i]}")
            self._require_alike(sources[i])
        first = engine.sources[0]
        self.batch.row = <fl_row *>calloc(n, sizeof(fl_row))
        self.batch.errors = <fl_error *>calloc(n, sizeof(fl_error))
        if self.batch.row is NULL or self.batch.errors is NULL:
            raise _errors.ResourceError(f"no memory for a batch of {n} rows")
        for i in range(n):
            self.batch.row[i].source, self.batch.row[i].index = sources[i], indices[i]
            self.batch.row[i].seed = common if seeds is None else seeds[i]
            self.batch.row[i].drawn_as = indices[i] if drawn_as is None else drawn_as[i]
        self.batch.rows = self.batch.left = n
        self.batch.sources = engine.pointers
        self.batch.ring = engine.ring.ptr
        self.batch.epoch = <uint32_t>(int(epoch) & 0xFFFFFFFF)
        self.batch.target, self.batch.parts = self.targets.target, self.targets.count
        if first.source.item_count:
            self.rooms = _Rooms.__new__(_Rooms, first.items, n, even)
            self.rooms._lay(self.batch.sources, self.batch.row, self.batch.errors, self.targets.target)
            self.batch.room, self.batch.items = self.rooms.room, self.rooms.count
        _add(&_live_batches, 1)
        self.counted = True
        if not fl_batch_cached(&self.batch):  # a full queue only means that the hint is not needed yet
            self.read_ahead = fl_pool_submit(engine.ahead, fl_batch_ahead, &self.batch, n, &err) == FL_OK

    cdef int _require_alike(self, uint32_t number) except -1:
        """Checks that a source makes rows of the form for which the batch has room. Raises an error if
        not."""
        cdef Source source = self.engine.sources[number], first = self.engine.sources[0]
        if source.source.count != self.targets.count:
            raise _errors.ArgumentError(f"source {number} makes other parts than the batch has")
        if source.source.item_count != first.source.item_count or (
                first.source.item_count and source is not first and source.items.form != first.items.form):
            raise _errors.ArgumentError(f"source {number} has other fields beside the image than the first")
        return 0

    def __dealloc__(self):
        if self.counted:
            _add(&_live_batches, -1)
            with nogil:
                if self.read_ahead:
                    fl_pool_cancel(self.engine.ahead, &self.batch)
                # Nobody touches a batch after its slot is READY
                if self.engine.pool is not NULL and not self.finished:
                    fl_pool_cancel(self.engine.pool, &self.batch)
            if self.batch.slot is not NULL:
                fl_slot_release(self.engine.ring.ptr, self.batch.slot)
        free(self.batch.row)
        free(self.batch.errors)

    @property
    def rows(self):
        return self.batch.rows

    @property
    def samples(self):
        """The number of samples that the rows are of."""
        return self.batch.rows if self.listed is None else len(self.listed.indices)

    def row_arrays(self):
        """(source, index) of each row now, as uint32 and int64 arrays."""
        sources, indices = _np.empty(self.batch.rows, _np.uint32), _np.empty(self.batch.rows, _np.int64)
        cdef uint32_t[::1] s = sources
        cdef int64_t[::1] k = indices
        cdef uint32_t i
        for i in range(self.batch.rows):
            s[i], k[i] = self.batch.row[i].source, <int64_t>self.batch.row[i].index
        return sources, indices

    def hold(self):
        """Keeps the rows from being made until release(). Before submit()."""
        self.held = True

    def give(self, uint32_t row, const uint8_t[::1] record not None):
        """The record of a row that is not made yet, where the store's file does not have it. It is checked
        as one of the file."""
        if row >= self.batch.rows or record.shape[0] == 0:
            raise _errors.ArgumentError(f"row {row} cannot be given a record of {record.shape[0]} bytes")
        if self.given is None:
            self.given = []
        self.given.append(record)
        self.batch.row[row].given.bytes = &record[0]
        self.batch.row[row].given.size = record.shape[0]

    def fail(self, uint32_t row, reason, bint remote=True):
        """Marks a row that is not made yet as one whose record cannot be fetched; remote=False: or cannot
        be made."""
        if row >= self.batch.rows:
            raise _errors.ArgumentError(f"there is no row {row} of {self.batch.rows}")
        fl_fail(&self.batch.errors[row], FL_EREMOTE if remote else FL_ERECORD, b"%s", <bytes>reason.encode())

    def release(self):
        """Lets the rows of a batch that is held be made."""
        if self.held:
            self.held = False
            if self.submitted:
                self._queue()

    @property
    def parts(self):
        """(first byte in the lease, width and height in pixels, Output) of each part. The size is that of
        each row, or of the frame of a "padded" part; for a "list" it is 0 x 0."""
        return [
            (self.targets.at[i], self.batch.target[i].sink.width, self.batch.target[i].sink.height,
             self.targets.outputs[i])
            for i in range(self.batch.parts)
        ]

    @property
    def bytes(self):
        """Bytes that it needs of a slot."""
        return self._bytes()

    @property
    def places(self):
        """For each part None, or, if rows have sizes of their own, int64 (rows, 3): first byte in the
        lease, width, height."""
        return [self.targets._placed(i) for i in range(self.batch.parts)]

    def submit(self):
        """Takes a slot and queues the rows."""
        cdef fl_error err
        self.engine._live()
        if self.batch.slot is not NULL:
            raise _errors.FastloadError("this batch was submitted already")
        lent = None if self.engine.ring.memory is None else self.engine.ring.memory(self._bytes())
        if lent is None:
            check(fl_ring_take(self.engine.ring.ptr, self._bytes(), &self.batch.slot, &err), &err)
        else:
            address, self.memory = lent
            check(fl_ring_lend(self.engine.ring.ptr, <void *><size_t>address, self._bytes(), &self.batch.slot,
                               &err), &err)
        self.targets._lie(fl_slot_data(self.batch.slot))
        if self.rooms is not None:
            self.rooms._lie(<uint8_t *>fl_slot_data(self.batch.slot) + self.targets.bytes)
        self.submitted = True
        if not self.held:
            self._queue()

    cdef size_t _bytes(self) noexcept:
        """Bytes of the batch's slot."""
        return self.targets.bytes + (0 if self.rooms is None else self.rooms.bytes)

    cdef int _queue(self) except -1:
        cdef fl_error err
        if self.engine.pool is not NULL and not self.engine.closed:
            check(fl_pool_submit(self.engine.pool, fl_batch_run, &self.batch, self.batch.rows, &err), &err)

    def make(self):
        """Takes a slot and makes all rows in the calling thread, of which one at a time may: the batch is
        then ready."""
        self.hold()
        self.submit()
        self._run_inline()

    @property
    def ready(self):
        return self.batch.slot is not NULL and fl_slot_state_of(self.batch.slot) == FL_SLOT_READY

    cdef int _run_inline(self) except -1:
        cdef fl_worker *worker = self.engine.workers[self.engine.threads]
        while self.inline_next < self.batch.rows:
            with nogil:
                fl_batch_run(&self.batch, self.inline_next, worker)
            self.inline_next += 1
            PyErr_CheckSignals()
        return 0

    def failures(self):
        """(row, index, source, code, reason) of each row that could not be made."""
        cdef uint32_t i
        if self.batch.failed == 0:
            return []
        return [
            (i, self.batch.row[i].index, self.batch.row[i].source, <int>self.batch.errors[i].code,
             error_text(&self.batch.errors[i]))
            for i in range(self.batch.rows) if self.batch.errors[i].code != FL_OK
        ]

    def redo(self, uint32_t row, uint32_t source, uint64_t index, record=None, seed=None):
        """Makes another sample into a row of a batch that is ready, in the calling thread; True when it could
        be made. `record`: as give()'s. `seed`: of its draws; None: the row keeps its own."""
        cdef fl_worker *worker = self.engine.workers[self.engine.threads]
        self.engine._live()
        if row >= self.batch.rows or source >= <uint32_t>len(self.engine.sources) or not self.ready:
            raise _errors.ArgumentError(f"row {row} cannot be made again")
        self._require_alike(source)
        self.batch.row[row].source, self.batch.row[row].index = source, index
        if seed is not None:
            self.batch.row[row].seed = <uint64_t>int(seed)
            self.batch.row[row].drawn_as = index
        self.batch.row[row].given.bytes = NULL
        if record is not None:
            self.give(row, record)
        self.batch.errors[row].code = FL_OK
        if self.rooms is not None:
            self.rooms._make_room(row, self.batch.sources[source], index, &self.batch.errors[row])
        self.batch.left += 1
        with nogil:
            fl_batch_run(&self.batch, row, worker)
        return self.batch.errors[row].code == FL_OK

    def renew(self):
        """Makes the rows of a batch that is ready again whose files have changed since they were read, in the
        calling thread. Rows that are made of the store alone stay as they are, and no file of theirs is
        looked at."""
        cdef fl_worker *worker = self.engine.workers[self.engine.threads]
        cdef uint32_t row
        cdef bint outdated
        self.engine._live()
        if not self.ready:
            raise _errors.FastloadError("this batch is not ready")
        for row in range(self.batch.rows):
            with nogil:
                outdated = fl_batch_outdated(&self.batch, row, worker)
            if outdated:
                self.redo(row, self.batch.row[row].source, self.batch.row[row].index)

    def redo_with(self, uint32_t row, const uint8_t[:, :, ::1] pixels not None):
        """Makes a row of a batch that is ready of its image as it was decoded elsewhere, in the calling
        thread.

        Args:
            row: the row.
            pixels: the whole image, RGB, (height, width, 3).

        Raises:
            SampleError: the transform cannot be done to it; the message is the bare reason.
        """
        cdef fl_worker *worker = self.engine.workers[self.engine.threads]
        cdef fl_view view
        self.engine._live()
        if row >= self.batch.rows or not self.ready:
            raise _errors.ArgumentError(f"row {row} cannot be made again")
        _rgb_view(pixels, &view)
        with nogil:
            fl_batch_pixels(&self.batch, row, &view, worker)
        check(self.batch.errors[row].code, &self.batch.errors[row])

    def compact(self):
        """Closes the gaps that dropped rows, and rows that failed, left in the items of a batch that is
        ready."""
        if not self.ready:
            raise _errors.FastloadError("this batch is not ready")
        if self.rooms is not None:
            with nogil:
                self.rooms._compact()

    def tighten(self):
        """Makes the frames of a batch that is ready, where sizes were bounds, as small as the images that
        were made need; before compact(). No row can be made again then."""
        if not self.ready:
            raise _errors.FastloadError("this batch is not ready")
        with nogil:
            self.targets._tighten()
            if self.rooms is not None:
                self.rooms._narrow(self.targets.target)

    @property
    def items(self):
        """For each item None if it is hidden, else (memory, starts, kept): the array that it lies in, None
        for the lease; int64 (rows + 1): the first byte of each row, and the end; and uint32 (rows): number of
        rows of each that were kept, None for masks."""
        return [] if self.rooms is None else self.rooms._described(self.targets.bytes)

    def lease(self):
        """The finished memory, handed over: of each part rows x width x height x 3 values, in its output's
        layout, where `parts` and `places` say. A Lease, or the object that keeps memory which was lent to the
        ring."""
        cdef Lease lease
        cdef fl_slot *slot = self.batch.slot
        if not self.ready:
            raise _errors.FastloadError("this batch is not ready")
        self.batch.slot = NULL
        self.finished = True
        self.given = None
        if self.memory is not None:
            fl_slot_release(self.engine.ring.ptr, slot)
            memory, self.memory = self.memory, None
            return memory
        lease = Lease.__new__(Lease)
        lease.ring, lease.slot = self.engine.ring, slot
        lease.size = self._bytes()
        fl_slot_lease(slot)
        _add(&_live_leases, 1)
        return lease
