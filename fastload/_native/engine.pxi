# The engine: programs, sources, thread pool, ring and batches of csrc, one cdef class per handle.
#
# NOTE [ engine: lifetimes ]
# Batch -> Engine -> Sources -> Store, Batch and Lease -> Ring: each holds a reference to what it points into, so Python's counting
# frees them in order. An Engine joins its threads before it lets go of its Ring and Sources. Every object belongs to the process
# that made it: in a forked child its calls raise ClosedError and its end touches nothing that the parent's threads own.
# no_gc_clear: the collector must not clear these references before __dealloc__ has used them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport getpid as _getpid
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc

import threading as _threading

cimport cython as _cython

import numpy as _np

cdef extern from "fl_crop.h" nogil:
    ctypedef struct fl_key:
        uint64_t seed
        uint32_t epoch
        uint64_t index
    ctypedef struct fl_op:
        int kind
        uint16_t stream
        uint32_t width, height, max_size
        double scale[2]
        double ratio[2]
        double p
        uint32_t padding[4]
        bint pad_if_needed
        uint8_t fill[3]
        int filter
        bint antialias, dct_scale
    ctypedef struct fl_program:
        uint32_t count
        fl_op ops[16]
    ctypedef struct fl_rect:
        int64_t x, y, width, height
    ctypedef struct fl_crop_box "fl_box":
        uint32_t x, y, width, height
    ctypedef struct fl_geometry:
        fl_crop_box box
        uint32_t width, height
        bint resized
        fl_rect window, visible
        bint hflip, vflip
    int FL_OPS_MAX
    fl_code fl_geometry_resolve(const fl_program *, uint32_t, uint32_t, fl_key, fl_geometry *, fl_error *)
    fl_code fl_geometry_size(const fl_program *, uint32_t, uint32_t, uint32_t *, uint32_t *, fl_error *)

cdef extern from "fl_rng.h" nogil:
    ctypedef struct fl_rng:
        pass
    fl_rng fl_rng_start(fl_key, uint16_t)
    uint32_t fl_rng_word(fl_rng *)
    double fl_rng_uniform(fl_rng *)
    void fl_philox(const uint32_t *, const uint32_t *, uint32_t *)

cdef extern from "fl_ring.h" nogil:
    ctypedef struct fl_ring:
        pass
    ctypedef struct fl_slot:
        pass
    ctypedef struct fl_stop:
        uint32_t set
    ctypedef void (*fl_unmapping)(void *, void *) noexcept
    ctypedef struct fl_ring_counts:
        uint32_t slots, free, filling, ready, leased
        uint64_t bytes
    int FL_READY
    fl_code fl_ring_create(uint32_t, size_t, fl_ring **, fl_error *)
    void fl_ring_tell(fl_ring *, fl_unmapping, void *)
    void fl_ring_free(fl_ring *)
    fl_code fl_ring_take(fl_ring *, size_t, fl_slot **, fl_error *)
    void fl_slot_lease(fl_slot *)
    void fl_slot_release(fl_ring *, fl_slot *)
    void *fl_slot_data(const fl_slot *)
    size_t fl_slot_bytes(const fl_slot *)
    int fl_slot_state_of(const fl_slot *)
    fl_code fl_ring_wait(fl_ring *, fl_slot **, uint32_t, int64_t, const fl_stop *, uint32_t *, fl_error *)
    void fl_ring_stop(fl_ring *, fl_stop *)
    void fl_ring_count(fl_ring *, fl_ring_counts *)

cdef extern from "fl_shm.h" nogil:
    uint64_t fl_shm_forks()

cdef extern from "fl_pool.h" nogil:
    ctypedef struct fl_pool:
        pass
    ctypedef void (*fl_work)(void *, uint32_t, void *) noexcept nogil
    fl_code fl_pool_create(const char *, uint32_t, uint32_t, void **, fl_pool **, fl_error *)
    fl_code fl_pool_submit(fl_pool *, fl_work, void *, uint32_t, fl_error *)
    void fl_pool_cancel(fl_pool *, const void *)
    void fl_pool_close(fl_pool *)

cdef extern from "fl_pipeline.h" nogil:
    ctypedef struct fl_pipe_sink "fl_sink":
        void *data
        uint32_t width, height
        int dtype, layout
        const void *lut
        bint hflip, vflip
    ctypedef struct fl_source:
        fl_store *store
        fl_program program
        uint16_t image_field
        uint64_t max_pixels
    ctypedef struct fl_counters:
        uint64_t samples, failed, warnings, bytes, read_ns, decode_ns, resize_ns
    ctypedef struct fl_worker:
        pass
    ctypedef struct fl_row:
        uint32_t source
        uint64_t index
    ctypedef struct fl_batch:
        fl_ring *ring
        fl_slot *slot
        const fl_source **sources
        uint32_t rows
        fl_row *row
        fl_error *errors
        fl_pipe_sink sink
        size_t image_bytes
        uint64_t seed
        uint32_t epoch
        uint32_t left, failed
    fl_code fl_worker_create(fl_worker **, fl_error *)
    void fl_worker_free(fl_worker *)
    const fl_counters *fl_worker_counters(const fl_worker *)
    fl_code fl_pipeline_row(fl_worker *, const fl_source *, fl_key, const fl_pipe_sink *, fl_error *)
    void fl_batch_run(void *, uint32_t, void *) noexcept
    void fl_batch_ahead(void *, uint32_t, void *) noexcept

# C integers, not a dict: objects may end after the module's own globals are gone
cdef long _live_engines = 0, _live_batches = 0, _live_leases = 0, _live_decoders = 0

_OP_KINDS = {"resized_crop": 1, "resize": 2, "center_crop": 3, "random_crop": 4, "hflip": 5, "vflip": 6}
_OP_FILTERS = {"bilinear": 0, "bicubic": 1}
_OUT_DTYPES = {"uint8": (0, 1), "float32": (1, 4), "float16": (2, 2), "bfloat16": (3, 2)}
_OUT_LAYOUTS = {"HWC": 0, "CHW": 1}


cdef void _add(long *counter, long by) noexcept:
    counter[0] += by


def engine_handles():
    """Live native objects by kind: all zero when nothing leaks."""
    return {"engines": _live_engines, "batches": _live_batches, "leases": _live_leases, "decoders": _live_decoders}


def philox(counter, key):
    """The four words of Philox4x32-10 for a counter of four words and a key of two."""
    cdef uint32_t c[4]
    cdef uint32_t k[2]
    cdef uint32_t out[4]
    for i in range(4):
        c[i] = counter[i]
    for i in range(2):
        k[i] = key[i]
    fl_philox(c, k, out)
    return (out[0], out[1], out[2], out[3])


def random_words(seed, epoch, index, stream, int count):
    """The first `count` 32-bit words of the stream (seed, epoch, index, stream)."""
    cdef fl_key key = _key(seed, epoch, index)
    cdef fl_rng rng = fl_rng_start(key, <uint16_t>stream)
    return [fl_rng_word(&rng) for _ in range(count)]


cdef fl_key _key(seed, epoch, index):
    cdef fl_key key
    key.seed = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)
    key.epoch = <uint32_t>(int(epoch) & 0xFFFFFFFF)
    key.index = <uint64_t>int(index)
    return key


cdef class Program:
    """A transform list, compiled: a sequence of dicts with "kind" and the parameters of fl_op."""

    cdef fl_program program

    def __init__(self, ops):
        if len(ops) > FL_OPS_MAX:
            raise _errors.TransformError(f"{len(ops)} transforms in one list: at most {FL_OPS_MAX} run natively")
        memset(&self.program, 0, sizeof(fl_program))
        for i, op in enumerate(ops):
            self._set(&self.program.ops[i], op)
        self.program.count = len(ops)

    cdef int _set(self, fl_op *out, dict op) except -1:
        out.kind = _OP_KINDS[op["kind"]]
        out.stream = op.get("stream", 0)
        out.width = op.get("width", 0)
        out.height = op.get("height", 0)
        out.max_size = op.get("max_size", 0)
        out.p = op.get("p", 0.0)
        scale = op.get("scale", (0.0, 0.0))
        ratio = op.get("ratio", (0.0, 0.0))
        padding = op.get("padding", (0, 0, 0, 0))
        fill = op.get("fill", (0, 0, 0))
        for i in range(2):
            out.scale[i] = scale[i]
            out.ratio[i] = ratio[i]
        for i in range(4):
            out.padding[i] = padding[i]
        for i in range(3):
            out.fill[i] = fill[i]
        out.pad_if_needed = op.get("pad_if_needed", False)
        out.filter = _OP_FILTERS[op.get("filter", "bilinear")]
        out.antialias = op.get("antialias", True)
        out.dct_scale = op.get("dct_scale", True)
        return 0

    def size(self, uint32_t width, uint32_t height):
        """(width, height) of what the program makes of a width x height image; independent of the random draws."""
        cdef uint32_t w, h
        cdef fl_error err
        check(fl_geometry_size(&self.program, width, height, &w, &h, &err), &err)
        return w, h

    def resolve(self, uint32_t width, uint32_t height, seed, epoch, index):
        """The geometry drawn for one sample, as a dict: box, size, window, visible (x, y, width, height), hflip, vflip."""
        cdef fl_geometry g
        cdef fl_error err
        check(fl_geometry_resolve(&self.program, width, height, _key(seed, epoch, index), &g, &err), &err)
        return {
            "box": (g.box.x, g.box.y, g.box.width, g.box.height),
            "size": (g.width, g.height),
            "window": (g.window.x, g.window.y, g.window.width, g.window.height),
            "visible": (g.visible.x, g.visible.y, g.visible.width, g.visible.height),
            "hflip": bool(g.hflip),
            "vflip": bool(g.vflip),
        }


@_cython.no_gc_clear
cdef class Source:
    """One dataset as the engine sees it: its open store, its program, which field is the image, the pixel limit."""

    cdef fl_source source
    cdef readonly Store store
    cdef readonly Program program

    def __init__(self, Store store, Program program, uint16_t image_field, uint64_t max_pixels):
        self.store = store
        self.program = program
        self.source.store = store.ptr
        self.source.program = program.program
        self.source.image_field = image_field
        self.source.max_pixels = max_pixels


cdef class Output:
    """What a batch is made of: dtype, layout ("HWC" or "CHW") and, for float dtypes, the 3 x 256 table of values."""

    cdef readonly str dtype
    cdef readonly str layout
    cdef readonly int itemsize
    cdef int dtype_code, layout_code
    cdef object lut
    cdef const uint8_t[::1] lut_bytes

    def __init__(self, dtype="uint8", layout="HWC", lut=None):
        self.dtype, self.layout = dtype, layout
        self.dtype_code, self.itemsize = _OUT_DTYPES[dtype]
        self.layout_code = _OUT_LAYOUTS[layout]
        if (lut is None) != (dtype == "uint8"):
            raise _errors.ArgumentError("a float batch needs a table of values, a uint8 batch none")
        if lut is not None:
            self.lut = _np.ascontiguousarray(lut).reshape(-1).view(_np.uint8)
            if self.lut.size != 768 * self.itemsize:
                raise _errors.ArgumentError(f"a table of {self.lut.size} bytes, expected 768 values")
            self.lut_bytes = self.lut

    cdef void _sink(self, fl_pipe_sink *sink, void *data, uint32_t width, uint32_t height) noexcept:
        sink.data = data
        sink.width, sink.height = width, height
        sink.dtype, sink.layout = self.dtype_code, self.layout_code
        sink.lut = <const void *>&self.lut_bytes[0] if self.lut is not None else NULL
        sink.hflip = sink.vflip = False


@_cython.no_gc_clear
cdef class Decoder:
    """Makes single samples in the calling thread: what dataset[i] runs on. Any thread may call; one at a time runs.

    1. Sources handed in stay referenced, so that their stores outlive the readers kept here.
    2. Not for use after a fork: make a new one (check `pid`).
    """

    cdef fl_worker *worker
    cdef readonly int pid
    cdef dict _sources
    cdef object _lock

    def __cinit__(self):
        cdef fl_error err
        self.pid = _getpid()
        self._sources = {}
        self._lock = _threading.Lock()
        check(fl_worker_create(&self.worker, &err), &err)
        _add(&_live_decoders, 1)

    def __dealloc__(self):
        if self.worker is not NULL:
            if self.pid == _getpid():
                fl_worker_free(self.worker)
            _add(&_live_decoders, -1)

    def decode(self, Source source, index, seed, epoch, Output output, uint8_t[::1] into, uint32_t width, uint32_t height):
        """Makes sample index into `into`, width x height pixels of the output's type. Raises SampleError with the bare reason."""
        cdef fl_error err
        cdef fl_pipe_sink sink
        cdef fl_code code
        cdef fl_key key = _key(seed, epoch, index)
        if self.pid != _getpid():
            raise _errors.ClosedError("this decoder belongs to another process")
        if <uint64_t>into.shape[0] < <uint64_t>width * height * 3 * output.itemsize:
            raise _errors.ArgumentError("the buffer is too small for the image")
        output._sink(&sink, &into[0], width, height)
        with self._lock:
            self._sources[id(source)] = source
            with nogil:
                code = fl_pipeline_row(self.worker, &source.source, key, &sink, &err)
        check(code, &err)


# NOTE [ engine: pinned slots ]
# A guard, where a ring has one, pins each slot's memory when a batch first takes it, and unpins it before it is unmapped. The end of a
# pinned slot's lease asks the guard for an event; until its query() is true the slot cools: it stays LEASED for the ring, so that nobody
# refills or unmaps what a device may still be reading. Each submit() first gives back the slots that have cooled, and the end of the ring
# waits for the rest. Memory pinned before this process forked is pinned anew: writing to it after the fork may have moved its pages away
# from under the device. In the forked child there is no device: slots go back at once, and nothing is unpinned.
@_cython.no_gc_clear
cdef class Ring:
    """The slots of one loader. Outlives the leases of its batches by their references."""

    cdef fl_ring *ptr
    cdef int pid
    cdef bint refused
    cdef object guarded, event
    cdef dict pinned
    cdef list cooling

    def __cinit__(self, uint32_t keep, size_t slot_bytes):
        cdef fl_error err
        self.pid = _getpid()
        self.pinned, self.cooling = {}, []
        check(fl_ring_create(keep, slot_bytes, &self.ptr, &err), &err)
        fl_ring_tell(self.ptr, _unmapping, <void *>self)

    def __dealloc__(self):
        if self.cooling and self.pid == _getpid():
            _wait_cold(self)
        if self.ptr is not NULL:
            for _, slot in self.cooling:
                fl_slot_release(self.ptr, <fl_slot *><size_t>slot)
        fl_ring_free(self.ptr)

    def guard(self, guarded):
        """Pins slots from now on. `guarded` has pin(address, bytes) -> bool, unpin(address), and end_of_lease() -> an event with query()
        and synchronize(). After a pin() that is False it is not asked again."""
        self.guarded = guarded

    cdef int _pin(self, fl_slot *slot) except -1:
        cdef size_t address = <size_t>fl_slot_data(slot)
        if self.guarded is None or self.refused or self.pinned.get(address) == fl_shm_forks():
            return 0
        if self.pinned.pop(address, None) is not None:
            self.guarded.unpin(address)
        forks = fl_shm_forks()
        if self.guarded.pin(address, fl_slot_bytes(slot)):
            self.pinned[address] = forks
        else:
            self.refused = True
        return 0

    cdef int _give_back(self, fl_slot *slot) except -1:
        """The end of a lease."""
        if self.pid != _getpid() or <size_t>fl_slot_data(slot) not in self.pinned:
            fl_slot_release(self.ptr, slot)
            return 0
        self.event = None
        _record(self)
        # Without an event nobody knows when the device is done: such a slot stays out for good.
        self.cooling.append((self.event, <size_t>slot))
        self.event = None
        return 0

    cdef int _settle(self) except -1:
        """Gives back the slots that have cooled."""
        if not self.cooling:
            return 0
        waiting, self.cooling = self.cooling, []  # query() lets other threads run, which may append
        for event, slot in waiting:
            if event is not None and event.query():
                fl_slot_release(self.ptr, <fl_slot *><size_t>slot)
            else:
                self.cooling.append((event, slot))
        return 0

    def counts(self):
        """Slots by state, and the bytes mapped."""
        cdef fl_ring_counts c
        fl_ring_count(self.ptr, &c)
        return {"slots": c.slots, "free": c.free, "filling": c.filling, "ready": c.ready, "leased": c.leased, "bytes": c.bytes}


# An exception in these is told to sys.unraisablehook: nobody is there to catch it.
cdef void _record(Ring ring) noexcept:
    ring.event = ring.guarded.end_of_lease()


cdef void _end_of_lease(Ring ring, fl_slot *slot) noexcept:
    ring._give_back(slot)


cdef void _wait_cold(Ring ring) noexcept:
    for event, _ in ring.cooling:
        if event is not None:
            event.synchronize()


cdef void _unmapping(void *ring, void *data) noexcept with gil:
    cdef Ring mine = <Ring>ring
    if mine.pinned.pop(<size_t>data, None) is not None and mine.pid == _getpid():
        mine.guarded.unpin(<size_t>data)


cdef class Stop:
    """Ends the waits that were given it, now and later."""

    cdef fl_stop stop

    def __cinit__(self):
        memset(&self.stop, 0, sizeof(fl_stop))

    def set(self, Ring ring):
        """Sets it for good, and wakes who waits with it for slots of this ring."""
        fl_ring_stop(ring.ptr, &self.stop)


@_cython.no_gc_clear
cdef class Lease:
    """A leased slot as a writable buffer of bytes. The slot returns to the ring when the last object that exports it is gone."""

    cdef Ring ring
    cdef fl_slot *slot
    cdef size_t size

    def __dealloc__(self):
        if self.slot is not NULL:
            _end_of_lease(self.ring, self.slot)
            _add(&_live_leases, -1)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, fl_slot_data(self.slot), <Py_ssize_t>self.size, False, flags)


@_cython.no_gc_clear
cdef class Engine:
    """Threads over a fixed list of sources.

    1. threads == 0: rows are made by the thread that waits for them.
    2. close() cancels what is queued, joins the threads and is idempotent; batches waited for afterwards raise ClosedError.
    """

    cdef fl_pool *pool
    cdef fl_pool *ahead
    cdef fl_worker **workers
    cdef uint32_t worker_count
    cdef const fl_source **pointers
    cdef readonly list sources
    cdef readonly Ring ring
    cdef readonly int threads
    cdef readonly int pid
    cdef readonly bint closed
    cdef bint counted

    def __cinit__(self, list sources, int threads, int capacity, Ring ring):
        cdef fl_error err
        cdef Source source
        self.pid = _getpid()
        self.sources, self.threads, self.ring = sources, threads, ring
        self.pointers = <const fl_source **>calloc(max(1, len(sources)), sizeof(void *))
        # one worker per thread, one for the thread that waits, one for the read-ahead
        self.workers = <fl_worker **>calloc(threads + 2, sizeof(void *))
        if self.pointers is NULL or self.workers is NULL:
            raise _errors.ResourceError("no memory for an engine")
        for i, source in enumerate(sources):
            self.pointers[i] = &source.source
        _add(&_live_engines, 1)
        self.counted = True
        for i in range(threads + 2):
            check(fl_worker_create(&self.workers[i], &err), &err)
            self.worker_count = i + 1
        if threads:
            check(fl_pool_create(b"fastload", threads, capacity, <void **>self.workers, &self.pool, &err), &err)
        check(fl_pool_create(b"fl-ahead", 1, capacity, <void **>(self.workers + threads + 1), &self.ahead, &err), &err)

    def __dealloc__(self):
        self._stop()
        if self.counted:
            _add(&_live_engines, -1)
        free(self.pointers)
        free(self.workers)

    cdef void _stop(self) noexcept:
        self.closed = True
        with nogil:
            fl_pool_close(self.pool)
            fl_pool_close(self.ahead)
        self.pool = self.ahead = NULL
        if self.pid == _getpid():  # in a child they may be half-way through the parent's work
            for i in range(self.worker_count):
                fl_worker_free(self.workers[i])
        self.worker_count = 0

    def close(self):
        """Stops the threads. Batches already leased stay valid."""
        if not self.closed:
            self._stop()

    cdef int _live(self) except -1:
        if self.closed:
            raise _errors.ClosedError("the loader is closed")
        if self.pid != _getpid():
            raise _errors.ClosedError(f"this loader's threads belong to process {self.pid}: make the loader in this process")
        return 0

    def counters(self):
        """What the threads have done since the start: samples, failed, warnings, bytes, and nanoseconds by stage."""
        cdef const fl_counters *c
        total = {"samples": 0, "failed": 0, "warnings": 0, "bytes": 0, "read_ns": 0, "decode_ns": 0, "resize_ns": 0}
        for i in range(self.worker_count):
            c = fl_worker_counters(self.workers[i])
            for name, value in (("samples", c.samples), ("failed", c.failed), ("warnings", c.warnings), ("bytes", c.bytes),
                                ("read_ns", c.read_ns), ("decode_ns", c.decode_ns), ("resize_ns", c.resize_ns)):
                total[name] += value
        return total


@_cython.no_gc_clear
cdef class Batch:
    """Some rows on their way into a slot: announced (read-ahead), submitted, ready, leased.

    1. Made by the loader's thread; from submit() until ready, workers write its rows.
    2. Dropping it at any time is safe: rows not begun are cancelled, rows under way are waited for, the slot is given back.
    """

    cdef fl_batch batch
    cdef Engine engine
    cdef Output output
    cdef uint32_t inline_next
    cdef bint counted

    def __cinit__(self, Engine engine, const uint32_t[::1] sources, const uint64_t[::1] indices, uint32_t width, uint32_t height,
                  Output output, seed, epoch):
        cdef uint32_t i, n = <uint32_t>indices.shape[0]
        cdef fl_error err
        engine._live()
        self.engine, self.output = engine, output
        if n == 0 or sources.shape[0] != n:
            raise _errors.ArgumentError("a batch needs at least one row")
        for i in range(n):
            if sources[i] >= <uint32_t>len(engine.sources):
                raise _errors.ArgumentError(f"row {i} names source {sources[i]}")
        self.batch.row = <fl_row *>calloc(n, sizeof(fl_row))
        self.batch.errors = <fl_error *>calloc(n, sizeof(fl_error))
        if self.batch.row is NULL or self.batch.errors is NULL:
            raise _errors.ResourceError(f"no memory for a batch of {n} rows")
        for i in range(n):
            self.batch.row[i].source, self.batch.row[i].index = sources[i], indices[i]
        self.batch.rows = self.batch.left = n
        self.batch.sources = engine.pointers
        self.batch.ring = engine.ring.ptr
        self.batch.seed = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)
        self.batch.epoch = <uint32_t>(int(epoch) & 0xFFFFFFFF)
        self.batch.image_bytes = <size_t>width * height * 3 * <size_t>output.itemsize
        output._sink(&self.batch.sink, NULL, width, height)
        _add(&_live_batches, 1)
        self.counted = True
        # a full queue only means that the hint is not needed yet
        fl_pool_submit(engine.ahead, fl_batch_ahead, &self.batch, n, &err)

    def __dealloc__(self):
        if self.counted:
            _add(&_live_batches, -1)
            with nogil:
                if self.engine.ahead is not NULL:
                    fl_pool_cancel(self.engine.ahead, &self.batch)
                if self.engine.pool is not NULL:
                    fl_pool_cancel(self.engine.pool, &self.batch)
            if self.batch.slot is not NULL:
                fl_slot_release(self.engine.ring.ptr, self.batch.slot)
        free(self.batch.row)
        free(self.batch.errors)

    @property
    def rows(self):
        return self.batch.rows

    def row_arrays(self):
        """(source, index) of each row now, as uint32 and int64 arrays."""
        sources, indices = _np.empty(self.batch.rows, _np.uint32), _np.empty(self.batch.rows, _np.int64)
        cdef uint32_t[::1] s = sources
        cdef int64_t[::1] k = indices
        cdef uint32_t i
        for i in range(self.batch.rows):
            s[i], k[i] = self.batch.row[i].source, <int64_t>self.batch.row[i].index
        return sources, indices

    @property
    def size(self):
        """(width, height) of each image."""
        return self.batch.sink.width, self.batch.sink.height

    def submit(self):
        """Takes a slot and queues the rows."""
        cdef fl_error err
        self.engine._live()
        if self.batch.slot is not NULL:
            raise _errors.FastloadError("this batch was submitted already")
        self.engine.ring._settle()
        check(fl_ring_take(self.engine.ring.ptr, self.batch.image_bytes * self.batch.rows, &self.batch.slot, &err), &err)
        self.engine.ring._pin(self.batch.slot)
        self.batch.sink.data = fl_slot_data(self.batch.slot)
        if self.engine.pool is not NULL:
            check(fl_pool_submit(self.engine.pool, fl_batch_run, &self.batch, self.batch.rows, &err), &err)

    @property
    def ready(self):
        return self.batch.slot is not NULL and fl_slot_state_of(self.batch.slot) == FL_READY

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
            (i, self.batch.row[i].index, self.batch.row[i].source, <int>self.batch.errors[i].code, error_text(&self.batch.errors[i]))
            for i in range(self.batch.rows) if self.batch.errors[i].code != FL_OK
        ]

    def redo(self, uint32_t row, uint32_t source, uint64_t index):
        """Makes another sample into a row of a batch that is ready, in the calling thread; True when it could be made."""
        cdef fl_worker *worker = self.engine.workers[self.engine.threads]
        self.engine._live()
        if row >= self.batch.rows or source >= <uint32_t>len(self.engine.sources) or not self.ready:
            raise _errors.ArgumentError(f"row {row} cannot be made again")
        self.batch.row[row].source, self.batch.row[row].index = source, index
        self.batch.errors[row].code = FL_OK
        self.batch.left += 1
        with nogil:
            fl_batch_run(&self.batch, row, worker)
        return self.batch.errors[row].code == FL_OK

    def lease(self):
        """The finished slot, handed over: rows x width x height x 3 values, in the output's layout."""
        cdef Lease lease
        if not self.ready:
            raise _errors.FastloadError("this batch is not ready")
        lease = Lease.__new__(Lease)
        lease.ring, lease.slot = self.engine.ring, self.batch.slot
        lease.size = self.batch.image_bytes * self.batch.rows
        fl_slot_lease(lease.slot)
        self.batch.slot = NULL
        _add(&_live_leases, 1)
        return lease


cdef bint _is_set(Stop stop):
    return stop is not None and stop.stop.set != 0


def wait_any(list batches, double timeout, Stop stop=None):
    """The position of a batch that is ready, waiting for at most timeout seconds (0: no limit). -1 once `stop` is set.

    A signal's Python handler runs at once, so Ctrl-C raises KeyboardInterrupt here. LoaderTimeout; ClosedError.
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
            # A signal that lands between the check and the wait does not interrupt the wait: the slice bounds what that can cost.
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
                    check(code, &err)
            elif code != FL_ETIMEOUT and code != FL_EINTR:
                check(code, &err)
    finally:
        PyMem_Free(slots)
