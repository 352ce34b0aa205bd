# Packed shards for Python: the store that the engine reads from too.

from fastload._native.c_common cimport fl_code, fl_error, fl_span
from fastload._native.c_store cimport (
    FL_RECORD_ENTRY, FL_RECORD_HEADER, fl_shard_spec, fl_store, fl_store_add, fl_store_base, fl_store_close,
    fl_store_column, fl_store_column_size, fl_store_count, fl_store_create, fl_store_reader,
    fl_store_reader_create,
    fl_facts, fl_facts_create, fl_facts_free, fl_facts_keep, fl_store_reader_free, fl_store_reader_get,
    fl_store_set_checksums, fl_store_set_facts, fl_store_set_rows, fl_store_vouches, fl_store_is_foreign, fl_store_knows, fl_store_learn,
    fl_store_place, fl_store_place_at, fl_store_place_offset, fl_store_shard_count, fl_store_shard_of,
    fl_store_shard_tree,
    fl_store_shards, fl_store_tree, fl_store_tree_column, FL_STORE_COLUMN_NAME,
)

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

import os as _os


cdef int _fill_columns(fl_store_tree *tree, columns, bytes names) except -1:
    """Makes a tree's columns of (name, offset, size) each; `names` are all names, one after another. They are
    the caller's to free, after an error too."""
    cdef uint64_t offset
    cdef uint32_t size
    cdef bytes name
    cdef size_t at = 0
    tree.names = PyBytes_AS_STRING(names)
    tree.names_size = len(names)
    tree.column_count = 0
    tree.columns = <fl_store_tree_column *>malloc((len(columns) + 1) * sizeof(fl_store_tree_column))
    if tree.columns is NULL:
        raise _errors.ResourceError(f"no memory for {len(columns)} columns")
    for name, offset, size in columns:
        if len(name) > FL_STORE_COLUMN_NAME:
            raise _errors.ArgumentError(f"the name of a column has {len(name)} bytes")
        tree.columns[tree.column_count].place = fl_store_place_at(offset, size)
        tree.columns[tree.column_count].name_at = at
        tree.columns[tree.column_count].name_size = len(name)
        tree.column_count += 1
        at += len(name)
    return 0


cdef class Store:
    """A dataset's open shards.

    1. Shards are added in order before anything is read. Any thread may read.
    2. `close` ends reading through this object; files are let go with the object, or with the last engine
       that borrows it.
    3. It belongs to the process that made it: in another every call raises ClosedError, and nothing of the
       parent's is touched.
    """

    cdef fl_store *ptr
    cdef fl_facts *facts      # NULL: nothing is learnt of its images
    cdef Kept kept
    # Idle ones: a call takes one, or makes one, and puts it back; under the GIL
    cdef fl_store_reader **readers
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
        fl_facts_free(self.facts)

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

    def add(self, path, uint64_t first, uint64_t count, uint64_t bytes, key=None, stored=None, base=None,
            Table places=None, columns=(), bint absent=False, bint guarded=False, field=None,
            bint pointed=False):
        """Opens the next shard, samples first .. first+count-1, a file of exactly `bytes` bytes.

        Args:
            path: path of the file.
            first: the dataset's number of its first sample.
            count: samples of the dataset in it.
            bytes: size of the file.
            key: key of the file's first sample; default: first.
            stored: samples in the file; default: count. Where they are more, `set_rows` says which count.
            base: the folder that paths in its records are relative to; None: it has none.
            places: table of its samples' places and checksums, a row of four u32 each: offset, low and high,
                size, CRC32C; None: the trees of the file name the places, and `set_checksums` the checksums.
            columns: places of its columns, as `columns` returns them; with `places`.
            absent: nothing of the file is on this machine: it is not opened, and `path` is its name; with
                `places`.
            guarded: the file lies where others may write: a link in its place is not followed.
            field: its samples are image files, and no records: the number of the image in records that are made
                of them; with `places`, in which a checksum of 0 is one that is not known; None: they are records.
            pointed: with `field`: each place begins with where the image lies in it, two u32: bytes from the
                place's first one, and the image's size.

        Raises:
            ArgumentError: it does not follow the shard before, `stored` is less than `count`, or the table
                has not a row for each.
            DatasetError: the file is missing, of another size, its tree is damaged, or what is given lies
                outside of it.
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
        spec.absent = absent
        spec.guarded = guarded
        spec.foreign = field is not None
        spec.pointed = pointed
        spec.field = 0 if field is None else field
        spec.base = NULL
        if folder is not None:
            spec.base = folder
        cdef fl_store_tree given
        given.columns = NULL
        spec.given = NULL
        spec.places = NULL
        try:
            if places is not None:
                given.samples = NULL
                spec.places = &places.c
                names = b"".join([name for name, _, _ in columns])
                _fill_columns(&given, columns, names)
                spec.given = &given
            with nogil:
                code = fl_store_add(self.ptr, &spec, &err)
        finally:
            free(given.columns)
        check(code, &err)
        if places is not None:
            self.borrowed.append(places)

    def places(self, uint32_t shard):
        """Places of the stored samples in the file of a shard that was walked, as bytes: for each, u64
        offset and u32 size."""
        self._known(shard)
        cdef uint64_t stored
        cdef const fl_store_tree *tree = fl_store_shard_tree(self.ptr, shard, &stored)
        if tree.samples is NULL:
            raise _errors.ArgumentError(f"the places of shard {shard} are in a table")
        return PyBytes_FromStringAndSize(<const char *>tree.samples, stored * sizeof(fl_store_place))

    def columns(self, uint32_t shard):
        """A shard's columns, in the order of the file: (name, offset, size) of each, the name as bytes."""
        self._known(shard)
        cdef uint64_t stored
        cdef uint32_t i
        cdef const fl_store_tree *tree = fl_store_shard_tree(self.ptr, shard, &stored)
        return [
            (
                PyBytes_FromStringAndSize(tree.names + tree.columns[i].name_at, tree.columns[i].name_size),
                fl_store_place_offset(tree.columns[i].place),
                tree.columns[i].place.size,
            )
            for i in range(tree.column_count)
        ]

    cdef int _known(self, uint32_t shard) except -1:
        self._open()
        if shard >= fl_store_shards(self.ptr):
            raise _errors.ArgumentError(f"there is no shard {shard} of {fl_store_shards(self.ptr)}")
        return 0

    def base(self, uint64_t index):
        """The base of the shard that holds a sample; None where it has none, or there is no such sample."""
        self._open()
        cdef const char *found = fl_store_base(self.ptr, index)
        return None if found is NULL else _os.fsdecode(<bytes>found)

    def set_rows(self, uint32_t shard, const uint32_t[::1] rows not None):
        """Says which of a shard's stored samples the dataset has: their numbers in the file, as many as its
        count, ascending.

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
        self._known(shard)
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
        """Reads a shard's column chunk into a writable buffer of exactly its size. What was read is the
        caller's to check.

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
        """Has every read of a shard's record compared with its CRC32C: one uint32 per sample of the shard,
        in order."""
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

    def learn(self, size_t room, Kept kept=None):
        """Has readers learn of images of foreign shards that they are sound, and their entropy indexes; before
        anything is read, after the last `add`.

        Args:
            room: bytes of memory that indexes may take.
            kept: keeps all that on a disk; None: it stays in memory.

        Raises:
            ResourceError: no memory.
        """
        cdef fl_error err
        self._open()
        if self.facts is not NULL:
            raise _errors.ArgumentError("this store learns already")
        check(fl_facts_create(&self.facts, fl_store_count(self.ptr), room, &err), &err)
        if kept is not None:
            fl_facts_keep(self.facts, kept.ptr)
            self.kept = kept
        fl_store_set_facts(self.ptr, self.facts)

    def knows(self, uint64_t index):
        """True if something is learnt of the image of a sample."""
        self._sample(index)
        return bool(fl_store_knows(self.ptr, index))

    def take_index(self, uint64_t index, uint32_t crc, const uint8_t[::1] entropy not None):
        """Has readers know that the image of a sample with that CRC32C is sound, and its entropy index."""
        cdef fl_span found
        self._sample(index)
        found.bytes, found.size = _first(entropy), <size_t>entropy.shape[0]
        fl_store_learn(self.ptr, index, crc, found)

    cdef int _sample(self, uint64_t index) except -1:
        self._open()
        if index >= fl_store_count(self.ptr):
            raise _errors.ArgumentError(f"there is no sample {index} of {fl_store_count(self.ptr)}")
        return 0

    def vouches(self, uint64_t index):
        """True if there is a checksum for the bytes of a sample in its shard's file, packed or learnt."""
        self._open()
        return bool(fl_store_vouches(self.ptr, index))

    cdef object _got(self, uint64_t index, given, size_t head):
        cdef fl_error err
        cdef fl_code code
        cdef fl_span span, elsewhere
        cdef const uint8_t[::1] view
        elsewhere.bytes, elsewhere.size = NULL, 0
        self._open()
        if given is not None:
            view = given
            elsewhere.bytes, elsewhere.size = _first(view), <size_t>view.shape[0]
        cdef fl_store_reader *reader = self._take()
        try:
            with nogil:
                code = fl_store_reader_get(reader, self.ptr, index, elsewhere, &span, &err)
            check(code, &err)
            return PyBytes_FromStringAndSize(<const char *>span.bytes + head, span.size - head)
        finally:
            self._give(reader)

    def get(self, uint64_t index, given=None):
        """A copy of sample index's record. `given`: its bytes, where the shard's file lacks them.

        Raises:
            SampleError: no such sample, or its bytes are not those that were packed; the message is the bare
                reason.
            DatasetError: the shard cannot be read.
            ClosedError: closed, or opened by another process.
        """
        return self._got(index, given, 0)

    def stored(self, uint64_t index):
        """A copy of the bytes of sample index as its shard's file has them: its record, or, of a foreign shard, the
        image's file. Raises as `get`."""
        self._open()
        cdef bint foreign = index < fl_store_count(self.ptr) and fl_store_is_foreign(self.ptr, index)
        return self._got(index, None, FL_RECORD_HEADER + FL_RECORD_ENTRY if foreign else 0)
