# Entropy indexes in memory that processes share: see csrc/engine/shm_indexes.h, NOTE [ shared indexes:
# nothing is found half-written ].

from fastload._native.c_common cimport fl_buffer, fl_buffer_free, fl_code, fl_error, fl_span
from fastload._native.c_engine cimport (
    FL_SHM_INDEXES_EACH, fl_shm, fl_shm_close, fl_shm_indexes_at, fl_shm_indexes_attach,
    fl_shm_indexes_count, fl_shm_indexes_counts, fl_shm_indexes_create, fl_shm_indexes_find,
    fl_shm_indexes_keep, fl_shm_indexes_key, fl_shm_indexes_slots, fl_shm_release_fd,
)

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

import numpy as _np

cdef long _live_indexes = 0
SHARED_INDEX_EXTRA = FL_SHM_INDEXES_EACH


def index_key(bytes data not None, size_t size):
    """The key of a file by its first `size` bytes: a number other than 0 that no two files of a dataset
    share, but for one pair of 2^64.

    Raises:
        ArgumentError: there are fewer bytes.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef uint64_t key
    if size > <size_t>len(data):
        raise _errors.ArgumentError(f"the first {size} of {len(data)} bytes")
    with nogil:
        key = fl_shm_indexes_key(start, size)
    return key


@_cython.no_gc_clear
cdef class SharedIndexes:
    """Entropy indexes of files by their keys, in memory that processes share.

    1. It is made with the bytes that it may take, or attached by its descriptor, which it then owns.
    2. Indexes are added, and never changed or removed; what does not fit is not kept.
    3. Any thread and process may call, at any time; one that is killed leaves nothing half-written.
    4. An index that is found is hostile, as the memory is: the decoder checks it.

    Raises:
        ArgumentError: fewer bytes than can be used, or a descriptor of something else.
        ResourceError: no memory, or no descriptor.
    """

    cdef fl_shm shm
    cdef fl_buffer copy  # used with the GIL held
    cdef bint counted

    def __cinit__(self, size_t room=0, *, int fd=-1):
        cdef fl_error err
        cdef fl_code code
        self.shm.fd = -1
        with nogil:
            if fd >= 0:
                code = fl_shm_indexes_attach(fd, &self.shm, &err)
            else:
                code = fl_shm_indexes_create(room, &self.shm, &err)
        check(code, &err)
        self.counted = True
        _add(&_live_indexes, 1)

    def __dealloc__(self):
        fl_shm_close(&self.shm)
        fl_buffer_free(&self.copy)
        if self.counted:
            _add(&_live_indexes, -1)

    @property
    def fd(self):
        """The descriptor to give to another process; -1 after release_fd()."""
        return self.shm.fd

    def release_fd(self):
        """Closes the descriptor; the memory stays."""
        fl_shm_release_fd(&self.shm)

    @property
    def room(self):
        """Bytes that it may take."""
        return self.shm.bytes

    @property
    def found(self):
        """Times that find() has found an index, in all processes."""
        cdef fl_shm_indexes_counts counts
        fl_shm_indexes_count(&self.shm, &counts)
        return counts.found

    @property
    def full(self):
        """True if an index was not kept, by any process, for want of room or memory."""
        cdef fl_shm_indexes_counts counts
        fl_shm_indexes_count(&self.shm, &counts)
        return bool(counts.full)

    def find(self, uint64_t key):
        """The index of the file with that key; None: there is none."""
        cdef fl_span found
        if not fl_shm_indexes_find(&self.shm, key, &self.copy, &found):
            return None
        return PyBytes_FromStringAndSize(<const char *>found.bytes, found.size)

    def keep(self, uint64_t key, bytes index not None):
        """Keeps the index of a file, unless one as long is there. Returns True if there is one then."""
        cdef fl_span given
        given.bytes, given.size = <const uint8_t *>PyBytes_AS_STRING(index), len(index)
        return bool(fl_shm_indexes_keep(&self.shm, key, given))

    def learnt(self):
        """(files, bytes): how many files have an index here, and the memory that all takes."""
        cdef fl_shm_indexes_counts counts
        fl_shm_indexes_count(&self.shm, &counts)
        return counts.indexes, counts.bytes

    def export(self):
        """(keys, sizes, indexes): of each file its key and the size of its index; the bytes of the indexes,
        all in one."""
        cdef uint64_t slot, key
        cdef fl_span found
        keys, sizes, parts = [], [], []
        for slot in range(fl_shm_indexes_slots(&self.shm)):
            if fl_shm_indexes_at(&self.shm, slot, &key, &self.copy, &found):
                keys.append(key)
                sizes.append(found.size)
                parts.append(PyBytes_FromStringAndSize(<const char *>found.bytes, found.size))
        return _np.array(keys, _np.uint64), _np.array(sizes, _np.uint32), b"".join(parts)

    def learn(self, const uint64_t[::1] keys not None, const uint32_t[::1] sizes not None,
              bytes indexes not None):
        """Takes over what export() gave, as far as there is room; key 0 is no file's.

        Raises:
            ArgumentError: the lengths do not fit each other.
        """
        cdef uint64_t i, count = keys.shape[0], at = 0
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(indexes)
        cdef fl_span found
        for i in range(<uint64_t>sizes.shape[0]):
            at += sizes[i]
        if <uint64_t>sizes.shape[0] != count or at != <uint64_t>len(indexes):
            raise _errors.ArgumentError(
                f"{count} keys, {sizes.shape[0]} sizes of {at} bytes, and {len(indexes)} bytes are given"
            )
        at = 0
        for i in range(count):
            if keys[i] and not fl_shm_indexes_find(&self.shm, keys[i], &self.copy, &found):
                found.bytes, found.size = start + at, sizes[i]
                fl_shm_indexes_keep(&self.shm, keys[i], found)
            at += sizes[i]
