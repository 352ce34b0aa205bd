# Records for Python: built and taken apart, and CRC32C.

from fastload._native.c_common cimport (
    fl_buffer, fl_buffer_free, fl_bytes_put_le16, fl_bytes_put_le32, fl_code, fl_crc32c, fl_error, fl_span,
)
from fastload._native.c_store cimport (
    fl_record_check, FL_RECORD_ENTRIES_MAX, FL_RECORD_ENTRY, fl_record_entry, fl_record_field,
    FL_RECORD_HEADER,
    FL_RECORD_INDEX, FL_RECORD_KIND_BYTES, FL_RECORD_KIND_DCT, FL_RECORD_KIND_INDEX, FL_RECORD_KIND_JPEG,
    FL_RECORD_KIND_FILE, FL_RECORD_KIND_JSON, FL_RECORD_KIND_PLACE, FL_RECORD_KIND_RAW, FL_RECORD_KIND_TEXT, FL_RECORD_MAGIC,
    FL_RECORD_VERSION, fl_attached_read,
)

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
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
KIND_FILE = FL_RECORD_KIND_FILE
KIND_DCT = FL_RECORD_KIND_DCT
RECORD_INDEX = FL_RECORD_INDEX

# bytes copied and summed at a time when a record is built: small enough to be summed out of the nearest cache
cdef enum:
    RECORD_STRIDE = 16384


cdef inline const uint8_t *_first(const uint8_t[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


def crc32c(data, uint32_t crc=0):
    """CRC32C (Castagnoli) of a bytes-like object; crc continues an earlier one."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        crc = fl_crc32c(crc, view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_differ(const uint8_t[::1] data not None, const uint64_t[::1] starts, const uint32_t[::1] sizes,
                  const uint32_t[::1] expected):
    """Numbers, ascending, of the parts of some bytes that have another CRC32C than expected, or that are
    not in the bytes."""
    cdef size_t i, n = starts.shape[0]
    cdef uint64_t room = data.shape[0]
    if sizes.shape[0] != starts.shape[0] or expected.shape[0] != starts.shape[0]:
        raise _errors.ArgumentError(f"{n} starts, {sizes.shape[0]} sizes and {expected.shape[0]} checksums")
    cdef vector = _np.zeros(n, _np.uint8)
    cdef uint8_t[::1] differs = vector
    with nogil:
        for i in range(n):
            if starts[i] > room or sizes[i] > room - starts[i]:
                differs[i] = 1
            elif sizes[i]:
                differs[i] = fl_crc32c(0, &data[starts[i]], sizes[i]) != expected[i]
            else:
                differs[i] = expected[i] != 0
    return _np.flatnonzero(vector).tolist()


def start_writeback(int fd):
    """Has the kernel begin to write a file's dirty pages to the disk, and returns: a later fsync has less
    to wait for. A hint."""
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
        entries: (field number, kind, data) each; data is bytes-like, or a tuple of bytes-likes that are
            joined.

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
        raise _errors.ArgumentError(
            f"a record holds at most {FL_RECORD_ENTRIES_MAX} fields, this one has {n}"
        )
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
            raise _errors.ArgumentError(
                f"a record of {at} bytes is longer than the 4 GiB that one sample may have"
            )
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
    """A record's fields: (field number, kind, bytes) each. Raises SampleError when its lengths do not
    hold."""
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
        out.append((field.field, field.kind, PyBytes_FromStringAndSize(<const char *>field.data.bytes,
                field.data.size)))
    return out


def read_attached(bytes entry not None, base):
    """The image that an entry of kind KIND_PLACE names: the bytes of its file. See csrc/store/attached.h.

    Args:
        entry: the entry's bytes.
        base: the folder that its path is relative to; None: there is none.

    Raises:
        SampleError: the entry is damaged, or the file was changed since it was attached; the message is the
            bare reason.
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
        code = fl_attached_read(span, folder, &buffer, &image, NULL, &err)
    try:
        check(code, &err)
        return PyBytes_FromStringAndSize(<const char *>image.bytes, image.size)
    finally:
        fl_buffer_free(&buffer)
