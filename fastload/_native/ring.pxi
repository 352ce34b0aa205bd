# The ring of slots that threads fill, and the leases of its batches.
#
# NOTE [ ring: memory that is lent ]
# A ring may be given a function that finds memory for each batch, such as pinned memory of an allocator that
# knows which copies still read it. The batch keeps the object that keeps the memory, and its slot lasts until
# the batch is leased: lease() then returns that object, and the ring has nothing more to do with it. So a
# filling never meets memory that anyone else can see, whatever reads it.

from fastload._native.c_common cimport fl_error
from fastload._native.c_engine cimport (
    fl_ring, fl_ring_count, fl_ring_counts, fl_ring_create, fl_ring_free, fl_ring_stop, fl_slot, fl_slot_data,
    fl_slot_release, fl_stop,
)


@_cython.no_gc_clear
cdef class Ring:
    """The slots of one loader. Outlives the leases of its batches by their references."""

    cdef fl_ring *ptr
    cdef object memory

    def __cinit__(self, uint32_t keep, size_t slot_bytes, memory=None):
        """memory: by NOTE [ ring: memory that is lent ]; called with a number of bytes it returns (address,
        the object that keeps them), or None for memory of the ring's own."""
        cdef fl_error err
        self.memory = memory
        check(fl_ring_create(keep, slot_bytes, &self.ptr, &err), &err)

    def __dealloc__(self):
        fl_ring_free(self.ptr)

    def counts(self):
        """Slots by state, and the bytes mapped."""
        cdef fl_ring_counts c
        fl_ring_count(self.ptr, &c)
        return {"slots": c.slots, "free": c.free, "filling": c.filling, "ready": c.ready, "leased": c.leased,
                "bytes": c.bytes}


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
    """A leased slot as a writable buffer of bytes. The slot returns to the ring when the last object that
    exports it is gone."""

    cdef Ring ring
    cdef fl_slot *slot
    cdef size_t size

    def __dealloc__(self):
        if self.slot is not NULL:
            fl_slot_release(self.ring.ptr, self.slot)
            _add(&_live_leases, -1)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, fl_slot_data(self.slot), <Py_ssize_t>self.size, False, flags)
