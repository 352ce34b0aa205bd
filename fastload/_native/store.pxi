# Packed shards for Python: the store that the engine reads from too, records built and taken apart, CRC32C.

from fastload._native.c_common cimport fl_buffer, fl_buffer_free, fl_bytes_put_le16, fl_bytes_put_le32, fl_code, fl_crc32c, fl_error, fl_span
from fastload._native.c_store cimport (
    fl_record_check, FL_RECORD_ENTRIES_MAX, FL_RECORD_ENTRY, fl_record_entry, fl_record_field, FL_RECORD_HEADER,
    FL_RECORD_INDEX, FL_RECORD_KIND_BYTES, FL_RECORD_KIND_INDEX, FL_RECORD_KIND_JPEG, FL_RECORD_KIND_JSON,
    FL_RECORD_KIND_PLACE, FL_RECORD_KIND_RAW, FL_RECORD_KIND_TEXT, FL_RECORD_MAGIC, FL_RECORD_VERSION, fl_attached_read,
    fl_shard_spec, fl_store, fl_store_add, fl_store_base, fl_store_close,
    fl_store_column, fl_store_column_size, fl_store_count, fl_store_create, fl_store_reader, fl_store_reader_create,
    fl_store_reader_free, fl_store_reader_get, fl_store_set_checksums, fl_store_set_rows,
    fl_store_shard_count, fl_store_shard_of, fl_store_shards,
)

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

import os as _os

cdef extern from "<fcntl.h>" nogil:
    unsigned int SYNC_FILE_RANGE_WRITE
    int sync_file_range(int fd, long long offset, long long size, unsigned int flags)

KIND_JPEG = FL_RECORD_KIND_JPEG
KIND_RAW = FL_RECORD_KIND_RAW
KIND_BYTES = FL_RECORD_KIND_BYTES
KIND_TEXT = FL_RECORD_KIND_TEXT
KIND_JSON = FL_RECORD_KIND_JSON
KIND_INDEX = FL_RECORD_KIND_INDEX
KIND_PLACE = FL_RECORD_KIND_PLACE
RECORD_INDEX = FL_RECORD_INDEX

# what is copied and summed at a time when a record is built: small enough to be summed out of the nearest cache
cdef enum:
    RECORD_STRIDE = 16384


def crc32c(data, uint32_t crc=0):
    """CRC32C (Castagnoli) of a bytes-like object; crc continues an earlier one."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        crc = fl_crc32c(crc, view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def start_writeback(int fd):
    """Has the kernel begin to write a file's dirty pages to the disk, and returns: a later fsync has less to wait for. A hint."""
    with nogil:
        sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE)


cdef uint32_t _gather(uint8_t *out, size_t head, const Py_buffer *parts, size_t count) noexcept nogil:
    """Copies the parts behind the head and sums everything, a stride at a time."""
    cdef uint32_t crc = fl_crc32c(0, out, head)
    cdef const uint8_t *source
    cdef size_t i, left, take
    out += head
    for i in range(count):
        source = <const uint8_t *>parts[i].buf
        left = parts[i].len
        while left:
            take = left if left < RECORD_STRIDE else RECORD_STRIDE
            memcpy(out, source, take)
            crc = fl_crc32c(crc, out, take)
            out += take
            source += take
            left -= take
    return crc


def build_record(entries):
    """One sample's record (see store/record.h) and its CRC32C, made in one pass.

    Args:
        entries: (field number, kind, data) each; data is bytes-like, or a tuple of bytes-likes that are joined.

    Returns:
        (record, crc32c).

    Raises:
        ArgumentError: more than 4096 fields, or a record of 4 GiB or more.
    """
    cdef size_t head, n = len(entries), count = 0, i = 0, part = 0, held = 0
    cdef uint64_t at, start
    cdef Py_buffer *parts
    cdef uint8_t *out
    cdef uint32_t crc
    flat = []
    for field, kind, data in entries:
        pieces = data if isinstance(data, tuple) else (data,)
        flat.append((field, kind, pieces))
        count += len(pieces)
    if n > FL_RECORD_ENTRIES_MAX:
        raise _errors.ArgumentError(f"a record holds at most {FL_RECORD_ENTRIES_MAX} fields, this one has {n}")
    head = FL_RECORD_HEADER + n * FL_RECORD_ENTRY
    parts = <Py_buffer *>malloc((count + 1) * sizeof(Py_buffer))
    if parts is NULL:
        raise _errors.ResourceError(f"no memory for a record of {n} fields")
    try:
        at = head
        for field, kind, pieces in flat:
            for piece in pieces:
                PyObject_GetBuffer(piece, &parts[held], PyBUF_SIMPLE)
                at += <uint64_t>parts[held].len
                held += 1
        if at > 0xFFFFFFFF:
            raise _errors.ArgumentError(f"a record of {at} bytes is longer than the 4 GiB that one sample may have")
        record = PyBytes_FromStringAndSize(NULL, at)
        out = <uint8_t *>PyBytes_AS_STRING(record)
        fl_bytes_put_le32(out, FL_RECORD_MAGIC)
        fl_bytes_put_le16(out + 4, FL_RECORD_VERSION)
        fl_bytes_put_le16(out + 6, n)
        fl_bytes_put_le32(out + 8, at)
        fl_bytes_put_le32(out + 12, 0)
        at = head
        for field, kind, pieces in flat:
            start = at
            for piece in pieces:
                at += <uint64_t>parts[part].len
                part += 1
            fl_bytes_put_le16(out + FL_RECORD_HEADER + i * FL_RECORD_ENTRY, field)
            fl_bytes_put_le16(out + FL_RECORD_HEADER + i * FL_RECORD_ENTRY + 2, <uint8_t>kind)
            fl_bytes_put_le32(out + FL_RECORD_HEADER + i * FL_RECORD_ENTRY + 4, start)
            fl_bytes_put_le32(out + FL_RECORD_HEADER + i * FL_RECORD_ENTRY + 8, at - start)
            fl_bytes_put_le32(out + FL_RECORD_HEADER + i * FL_RECORD_ENTRY + 12, 0)
            i += 1
        with nogil:
            crc = _gather(out, head, parts, held)
        return record, crc
    finally:
        for i in range(held):
            PyBuffer_Release(&parts[i])
        free(parts)


def split_record(bytes record not None):
    """A record's fields: (field number, kind, bytes) each. Raises SampleError when its lengths do not hold."""
    cdef fl_error err
    cdef fl_span span
    cdef fl_record_field field
    cdef uint32_t entries = 0, i
    span.bytes = <const uint8_t *>PyBytes_AS_STRING(record)
    span.size = len(record)
    check(fl_record_check(span, &entries, &err), &err)
    out = []
    for i in range(entries):
        field = fl_record_entry(span, i)
        out.append((field.field, field.kind, PyBytes_FromStringAndSize(<const char *>field.data.bytes, field.data.size)))
    return out


def read_attached(bytes entry not None, base):
    """The image that an entry of kind KIND_PLACE names: the bytes of a JPEG. See csrc/store/attached.h.

    Args:
        entry: the entry's bytes.
        base: the folder that its path is relative to; None: there is none.

    Raises:
        SampleError: the entry is damaged, or the file was changed since it was attached; the message is the bare reason.
        DatasetError: the file is missing, cannot be read, or is no regular file.
    """
    cdef fl_error err
    cdef fl_code code
    cdef fl_buffer buffer
    cdef fl_span span, image
    cdef const char *folder = NULL
    encoded = None if base is None else _os.fsencode(base)
    if encoded is not None:
        folder = encoded
    span.bytes, span.size = <const uint8_t *>PyBytes_AS_STRING(entry), len(entry)
    buffer.bytes, buffer.room = NULL, 0
    with nogil:
        code = fl_attached_read(span, folder, &buffer, &image, &err)
    try:
        check(code, &err)
        return PyBytes_FromStringAndSize(<const char *>image.bytes, image.size)
    finally:
        fl_buffer_free(&buffer)


cdef class Store:
    """A dataset's open shards.

    1. Shards are added in order before anything is read. Any thread may read.
    2. `close` ends reading through this object; files are let go with the object, or with the last engine that borrows it.
    3. It belongs to the process that made it: in another every call raises ClosedError, and nothing of the parent's is touched.
    """

    cdef fl_store *ptr
    cdef fl_store_reader **readers  # idle ones: a call takes one, or makes one, and puts it back; under the GIL
    cdef size_t idle, room
    cdef list borrowed        # keeps the arrays that the store borrows
    cdef readonly bint closed

    def __cinit__(self):
        cdef fl_error err
        self.borrowed = []
        check(fl_store_create(&self.ptr, &err), &err)

    def __dealloc__(self):
        self._free_readers()
        fl_store_close(self.ptr)

    cdef void _free_readers(self) noexcept:
        cdef size_t i
        for i in range(self.idle):
            fl_store_reader_free(self.readers[i])
        free(self.readers)
        self.readers = NULL
        self.idle = self.room = 0

    cdef int _open(self) except -1:
        if self.closed:
            raise _errors.ClosedError("this dataset was closed: open it again")
        return 0

    def close(self):
        """Ends reading through this object; may be called again."""
        self.closed = True
        self._free_readers()

    def add(self, path, uint64_t first, uint64_t count, uint64_t bytes, key=None, stored=None, base=None):
        """Opens the next shard, samples first .. first+count-1, a file of exactly `bytes` bytes.

        Args:
            path: of the file.
            first: the dataset's number of its first sample.
            count: samples of the dataset in it.
            bytes: size of the file.
            key: key of the file's first sample; default: first.
            stored: samples in the file; default: count. Where they are more, `set_rows` says which count.
            base: the folder that paths in its records are relative to; None: it has none.

        Raises:
            ArgumentError: it does not follow the shard before, or `stored` is less than `count`.
            DatasetError: the file is missing, of another size, or its tree is damaged.
        """
        cdef fl_error err
        cdef fl_code code
        cdef fl_shard_spec spec
        self._open()
        encoded = _os.fsencode(path)
        folder = None if base is None else _os.fsencode(base)
        spec.path = encoded
        spec.first = first
        spec.count = count
        spec.bytes = bytes
        spec.key = first if key is None else key
        spec.stored = count if stored is None else stored
        spec.base = NULL
        if folder is not None:
            spec.base = folder
        with nogil:
            code = fl_store_add(self.ptr, &spec, &err)
        check(code, &err)

    def base(self, uint64_t index):
        """The base of the shard that holds a sample; None where it has none, or there is no such sample."""
        self._open()
        cdef const char *found = fl_store_base(self.ptr, index)
        return None if found is NULL else _os.fsdecode(<bytes>found)

    def set_rows(self, uint32_t shard, const uint32_t[::1] rows not None):
        """Says which of a shard's stored samples the dataset has: their numbers in the file, as many as its count, ascending.

        Raises:
            ArgumentError: no such shard, or another number of rows.
            DatasetError: they are not ascending, or beyond the file's samples.
        """
        cdef fl_error err
        self._counted(shard, rows.shape[0], "rows")
        check(fl_store_set_rows(self.ptr, shard, &rows[0], &err), &err)
        self.borrowed.append(rows)

    cdef int _counted(self, uint32_t shard, Py_ssize_t size, what) except -1:
        """Raises ArgumentError unless there is such a shard with so many samples."""
        self._open()
        if shard >= fl_store_shards(self.ptr):
            raise _errors.ArgumentError(f"there is no shard {shard} of {fl_store_shards(self.ptr)}")
        cdef uint64_t count = fl_store_shard_count(self.ptr, shard)
        if <uint64_t>size != count:
            raise _errors.ArgumentError(f"{size} {what} for the {count} samples of shard {shard}")
        return 0

    def column_bytes(self, uint32_t shard, name):
        """The size of a shard's column chunk. Raises DatasetError where there is no such column."""
        cdef fl_error err
        cdef size_t size
        self._open()
        encoded = name.encode()
        check(fl_store_column_size(self.ptr, shard, encoded, &size, &err), &err)
        return size

    def column(self, uint32_t shard, name, into):
        """Reads a shard's column chunk into a writable buffer of exactly its size. What was read is the caller's to check.

        Raises:
            DatasetError: there is no such column, or the file was cut.
        """
        cdef fl_error err
        cdef fl_code code
        cdef const char *key
        cdef Py_buffer view
        self._open()
        encoded = name.encode()
        key = encoded
        PyObject_GetBuffer(into, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        with nogil:
            code = fl_store_column(self.ptr, shard, key, view.buf, view.len, &err)
        PyBuffer_Release(&view)
        check(code, &err)

    def set_checksums(self, uint32_t shard, const uint32_t[::1] crc not None):
        """Has every read of a shard's record compared with its CRC32C: one uint32 per sample of the shard, in order."""
        self._counted(shard, crc.shape[0], "checksums")
        self.borrowed.append(crc)
        fl_store_set_checksums(self.ptr, shard, &crc[0])

    def shard_of(self, uint64_t index):
        """The number of the shard that holds a sample; index < len(store)."""
        self._open()
        return fl_store_shard_of(self.ptr, index)

    def __len__(self):
        return fl_store_count(self.ptr)

    @property
    def shards(self):
        """The number of shards."""
        return fl_store_shards(self.ptr)

    cdef fl_store_reader *_take(self) except NULL:
        cdef fl_error err
        cdef fl_store_reader *reader
        if self.idle:
            self.idle -= 1
            return self.readers[self.idle]
        check(fl_store_reader_create(&reader, &err), &err)
        return reader

    cdef int _give(self, fl_store_reader *reader) noexcept:
        cdef fl_store_reader **grown
        if self.closed:
            fl_store_reader_free(reader)
            return 0
        if self.idle == self.room:
            grown = <fl_store_reader **>realloc(self.readers, (self.room + 4) * sizeof(fl_store_reader *))
            if grown is NULL:
                fl_store_reader_free(reader)
                return 0
            self.readers = grown
            self.room += 4
        self.readers[self.idle] = reader
        self.idle += 1
        return 0

    def get(self, uint64_t index):
        """A copy of sample index's record.

        Raises:
            SampleError: no such sample, or its bytes are not those that were packed; the message is the bare reason.
            DatasetError: the shard cannot be read.
            ClosedError: closed, or opened by another process.
        """
        cdef fl_error err
        cdef fl_code code
        cdef fl_span span
        self._open()
        cdef fl_store_reader *reader = self._take()
        try:
            with nogil:
                code = fl_store_reader_get(reader, self.ptr, index, &span, &err)
            check(code, &err)
            return PyBytes_FromStringAndSize(<const char *>span.bytes, span.size)
        finally:
            self._give(reader)
