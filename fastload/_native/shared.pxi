# Slots in shared memory, for worker processes.
#
# NOTE [ shared slots: lifetimes ]
# A SharedSlot is this process's mapping of one slot. In a worker its buffer is written; in the parent batches
# are handed out as SharedLeases, each of which holds the slot: it is free again when the lease is gone, and
# `retired` if the process forked meanwhile, because the child may still look at it: then it must not be
# refilled. Under a guard it is pinned at once, is `cooling` after each lease until the event of that lease
# has passed, and is unpinned after the last event. If that event could not be recorded, the slot is
# `retired`, and one is recorded before it is unpinned; if that fails too, or nobody can wait for it, its
# memory stays mapped. In a forked child there is no device: nothing is asked of the guard.

from fastload._native.c_common cimport fl_error
from fastload._native.c_engine cimport (
    fl_shm, fl_shm_accept, fl_shm_attach, fl_shm_attach_sparse, fl_shm_close, fl_shm_create, fl_shm_forks,
    fl_shm_offer, fl_shm_offered, fl_shm_release_fd, fl_ticket_claim, fl_ticket_open, fl_watch_process,
)
from fastload._native.c_jpeg cimport fl_libjpeg_live
from fastload._native.c_store cimport fl_facts_live, fl_files_live, fl_kept_live, fl_store_live, fl_table_live


cdef long _live_shared = 0, _live_shared_leases = 0


def live_handles():
    """Native objects of this process that were made and not yet freed, by kind: all zero when nothing
    leaks."""
    cdef uint32_t stores, readers
    fl_store_live(&stores, &readers)
    return {
        "stores": stores,
        "readers": readers,
        "files": fl_files_live(),
        "facts": fl_facts_live(),
        "kept": fl_kept_live(),
        "tables": fl_table_live(),
        "jpegs": fl_libjpeg_live(),
        "engines": _live_engines,
        "batches": _live_batches,
        "leases": _live_leases,
        "decoders": _live_decoders,
        "region_decoders": _live_regions,
        "shared_slots": _live_shared,
        "shared_leases": _live_shared_leases,
        "shared_indexes": _live_indexes,
    }


def watch_process(int pid):
    """Ends this process with SIGKILL when process `pid` is gone; once per process."""
    cdef fl_error err
    check(fl_watch_process(pid, &err), &err)


# An exception in these is told to sys.unraisablehook: nobody is there to catch it.
cdef void _end_lease(SharedSlot slot) noexcept:
    slot.event = slot.guarded.end_of_lease()


cdef bint _unpin(SharedSlot slot) noexcept:
    """Returns True if no device reads the memory any more."""
    if slot.untold:
        slot.event = slot.guarded.end_of_lease()
    if slot.event is not None:
        slot.event.synchronize()
    slot.guarded.unpin(<size_t>slot.shm.data)
    return True


@_cython.no_gc_clear
cdef class SharedSlot:
    """One slot of shared memory, as a writable buffer; of at least `bytes` when created, as large as it
    was made when attached by its fd. `sparse`: it takes no time to attach, and pages are mapped as they are
    touched."""

    cdef fl_shm shm
    cdef bint counted
    cdef readonly bint leased
    cdef readonly bint retired
    cdef object guarded, event
    # The guard raised at the end of a lease: another event is recorded before the slot is unpinned
    cdef bint untold
    cdef int pinner  # the process that guards it: in another the device is asked for nothing

    def __cinit__(self, size_t bytes=0, *, int fd=-1, bint sparse=False):
        cdef fl_error err
        self.shm.fd = -1
        with nogil:
            if fd < 0:
                code = fl_shm_create(bytes, &self.shm, &err)
            elif sparse:
                code = fl_shm_attach_sparse(fd, &self.shm, &err)
            else:
                code = fl_shm_attach(fd, &self.shm, &err)
        check(code, &err)
        self.counted = True
        _add(&_live_shared, 1)

    def __dealloc__(self):
        if not self._guards() or _unpin(self):
            fl_shm_close(&self.shm)
        if self.counted:
            _add(&_live_shared, -1)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.shm.data, <Py_ssize_t>self.shm.bytes, False, flags)

    @property
    def address(self):
        """Address at which the bytes are mapped in this process."""
        return <size_t>self.shm.data

    @property
    def bytes(self):
        """Its size."""
        return self.shm.bytes

    @property
    def fd(self):
        """The descriptor to send to another process; -1 after release_fd."""
        return self.shm.fd

    def release_fd(self):
        """Closes the descriptor; the mapping stays."""
        fl_shm_release_fd(&self.shm)

    def guard(self, guarded):
        """Pins the slot until it is unmapped. `guarded` has pin(address, bytes) -> bool, unpin(address), and
        end_of_lease() -> an event with query() and synchronize(). False, and no guard, when its pin()
        refuses."""
        if not guarded.pin(self.address, self.bytes):
            return False
        self.guarded, self.pinner = guarded, _getpid()
        return True

    cdef bint _guards(self) noexcept:
        return self.guarded is not None and self.pinner == _getpid()

    @property
    def cooling(self):
        """A device may still be reading: the slot must not be refilled yet."""
        if self.event is not None and self.event.query():
            self.event = None
        return self.event is not None

    def lease(self):
        """The bytes for a batch that the user will hold. The slot is leased until the last object that
        exports them is gone."""
        if self.leased:
            raise _errors.ClosedError("a slot that is leased cannot be leased again")
        cdef SharedLease lease = SharedLease.__new__(SharedLease)
        lease.slot = self
        lease.forks = fl_shm_forks()
        self.leased = True
        _add(&_live_shared_leases, 1)
        return lease

    @property
    def offered(self):
        """True while whoever accepts it first may have the slot. See NOTE [ shm: offers ]."""
        return fl_shm_offered(&self.shm)

    def offer(self):
        """Offers the slot to every process that maps it."""
        fl_shm_offer(&self.shm)

    def accept(self):
        """Takes the slot. False if it is not offered, or if another process was first."""
        return fl_shm_accept(&self.shm)

    def open_ticket(self, uint32_t batch):
        """Makes units of a batch claimable; see NOTE [ shm: tickets ]."""
        fl_ticket_open(&self.shm, batch, batch)

    def claim(self, uint32_t batch, uint32_t limit):
        """The next unclaimed unit of a batch below `limit`, or -1."""
        return fl_ticket_claim(&self.shm, batch, batch, limit)


@_cython.no_gc_clear
cdef class SharedLease:
    """A leased shared slot as a writable buffer."""

    cdef SharedSlot slot
    cdef uint64_t forks

    def __dealloc__(self):
        if self.slot is not None:
            if self.slot._guards():
                self.slot.event = None
                _end_lease(self.slot)
                if self.slot.event is None:
                    self.slot.untold = self.slot.retired = True
            self.slot.leased = False
            if self.forks != fl_shm_forks():
                self.slot.retired = True
            _add(&_live_shared_leases, -1)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.slot.shm.data, <Py_ssize_t>self.slot.shm.bytes, False, flags)
