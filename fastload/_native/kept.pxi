# What is kept of image files on a local disk: see csrc/store/kept.h, NOTE [ kept: the files ].

from fastload._native.c_common cimport fl_buffer, fl_buffer_free, fl_code, fl_error, fl_span
from fastload._native.c_store cimport (
    FL_KEPT_BYTES, FL_KEPT_ENTRY, FL_KEPT_FACTS, FL_KEPT_FORM, FL_KEPT_HEAD, FL_KEPT_LOGS, FL_KEPT_MAGIC,
    FL_KEPT_PARTS, fl_kept, fl_kept_append, fl_kept_count, fl_kept_counts, fl_kept_create, fl_kept_entries,
    fl_kept_find, fl_kept_free, fl_kept_grant, fl_kept_log, fl_kept_part, fl_kept_put, fl_kept_stamp,
)

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

KEPT_LOGS = FL_KEPT_LOGS
KEPT_MAGIC = FL_KEPT_MAGIC[:8]
KEPT_HEAD, KEPT_ROW = FL_KEPT_HEAD, FL_KEPT_ENTRY * FL_KEPT_PARTS
KEPT_PARTS = <int>FL_KEPT_PARTS
cdef int _PROBES = 8


cdef class Kept:
    """Facts and bytes of the images of one list that are kept on a disk, by a table and logs. Any thread.

    Args:
        table: descriptor of the table, open for reading and writing; it becomes this object's.
        count: number of images.

    Raises:
        DatasetError: the table cannot be written.
        ResourceError: no memory.
    """

    cdef fl_kept *ptr
    cdef uint64_t count

    def __cinit__(self, int table, uint64_t count):
        cdef fl_error err
        cdef fl_code code
        with nogil:
            code = fl_kept_create(&self.ptr, table, count, &err)
        check(code, &err)
        self.count = count

    def __dealloc__(self):
        fl_kept_free(self.ptr)

    def add_log(self, uint32_t number, int fd):
        """Takes the descriptor of a log, to read from it.

        Raises:
            ArgumentError: it has that log, or takes none of that number; the descriptor stays the caller's.
        """
        cdef fl_error err
        check(fl_kept_log(self.ptr, number, fd, &err), &err)

    def append(self, uint32_t number, uint64_t end):
        """Appends from now on to a log that it has, whose size is `end`, and which nobody else writes: facts
        to an odd one, all else to an even one.

        Raises:
            ArgumentError: it has no such log.
        """
        cdef fl_error err
        check(fl_kept_append(self.ptr, number, end, &err), &err)

    def grant(self, uint64_t size):
        """Grants so many more bytes."""
        fl_kept_grant(self.ptr, size)

    def entries(self):
        """(facts, bytes of files, DCT forms): of how many images they are kept; the whole table is read."""
        cdef uint64_t found[3]
        with nogil:
            fl_kept_entries(self.ptr, found)
        return found[0], found[1], found[2]

    def bytes_of(self, uint64_t index, uint64_t stamp):
        """The bytes of a file, if they are kept for that stamp; else None. Raises SampleError: there is no such
        image."""
        if index >= self.count:
            raise _errors.SampleError(f"image {index} of {self.count}")
        return self._found(index, FL_KEPT_BYTES, stamp)

    def form_of(self, uint64_t key):
        """The DCT form of a file of this key, b"" if it has none; None if neither is kept. The table is one
        of files by their keys, which are no 0."""
        cdef int64_t row = self._row(key)
        return None if row < 0 else self._found(row, FL_KEPT_FORM, key)

    def put_form(self, uint64_t key, bytes form not None):
        """Keeps what form_of() is to return, where there is room; True if it did."""
        cdef int64_t row = self._row(key)
        cdef fl_span given
        cdef bint kept = False
        if row >= 0:
            given.bytes, given.size = <const uint8_t *>PyBytes_AS_STRING(form), len(form)
            with nogil:
                kept = fl_kept_put(self.ptr, row, FL_KEPT_FORM, key, given)
        return kept

    cdef int64_t _row(self, uint64_t key) noexcept:
        """The row of a key, or the free one that it would get; -1: others have all that it may have."""
        cdef uint64_t mixed = key, row, stamp
        for _ in range(_PROBES if self.count else 0):
            mixed = (mixed ^ mixed >> 31) * <uint64_t>0x9E3779B97F4A7C15
            row = (mixed ^ mixed >> 32) % self.count
            stamp = fl_kept_stamp(self.ptr, row, FL_KEPT_FORM)
            if stamp == key or stamp == 0:
                return <int64_t>row
        return -1

    cdef object _found(self, uint64_t row, fl_kept_part part, uint64_t stamp):
        """The bytes of a part that is kept for a stamp; None if it is not."""
        cdef fl_buffer buffer
        cdef fl_span found
        cdef bint there
        buffer.bytes, buffer.room = NULL, 0
        with nogil:
            there = fl_kept_find(self.ptr, row, part, stamp, &buffer, &found)
        try:
            return PyBytes_FromStringAndSize(<const char *>found.bytes, found.size) if there else None
        finally:
            fl_buffer_free(&buffer)

    def counts(self):
        """Numbers of this process, by name: parts put and found, bytes granted and written, parts left out
        for want of room, and `failed`, the errno of the first write that failed, or 0."""
        cdef fl_kept_counts c
        fl_kept_count(self.ptr, &c)
        return {
            "facts_put": c.put[<int>FL_KEPT_FACTS], "bytes_put": c.put[<int>FL_KEPT_BYTES],
            "facts_found": c.found[<int>FL_KEPT_FACTS], "bytes_found": c.found[<int>FL_KEPT_BYTES],
            "forms_put": c.put[<int>FL_KEPT_FORM], "forms_found": c.found[<int>FL_KEPT_FORM],
            "granted": c.granted, "written": c.written, "left_out": c.left_out, "failed": c.failed,
        }
