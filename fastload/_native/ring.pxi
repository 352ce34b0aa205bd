# The ring of slots that threads fill, and the leases of its batches.

from fastload._native.c_common cimport fl_error
from fastload._native.c_engine cimport (
    fl_ring, fl_ring_count, fl_ring_counts, fl_ring_create, fl_ring_free, fl_ring_stop, fl_ring_tell, fl_shm_forks,
    fl_slot, fl_slot_bytes, fl_slot_data, fl_slot_release, fl_stop,
)


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
