# Tables in files for Python: rows of one width, read in place and checked by blocks. See NOTE [ table: read
# in place ].

from fastload._native.c_common cimport fl_code, fl_error, FL_ENOTFOUND
from fastload._native.c_store cimport (
    fl_table, fl_table_blocks, fl_table_file, fl_table_file_create, fl_table_file_free, fl_table_read,
    fl_table_row,
    fl_tables, fl_table_sample_row, FL_TABLE_BLOCK,
)

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

TABLE_BLOCK = FL_TABLE_BLOCK


cdef class TableFile:
    """An open file with tables; it is closed with the last table that uses it.

    Args:
        fd: the file's descriptor, which is the object's from then on.
        name: name of the file, for messages.
    """

    cdef fl_table_file *ptr

    def __cinit__(self, int fd, name):
        cdef fl_error err
        encoded = _os.fsencode(name)
        cdef fl_code code = fl_table_file_create(&self.ptr, fd, encoded, &err)
        if code:
            _os.close(fd)
        check(code, &err)

    def __dealloc__(self):
        fl_table_file_free(self.ptr)


cdef class Table:
    """Rows of one width in a file. Any thread may read.

    Args:
        file: the file.
        offset: place of the first row in it, in bytes.
        rows: number of rows.
        width: bytes of a row, 1 to TABLE_BLOCK.
        crcs: uint32 CRC32C of each block of TABLE_BLOCK // width rows.

    Raises:
        ArgumentError: the width is out of range, or there is not a checksum for each block.
    """

    cdef fl_table c
    cdef TableFile file
    cdef object owner  # of the checksums

    def __cinit__(self, TableFile file not None, uint64_t offset, uint64_t rows, uint32_t width,
                  crcs not None):
        cdef const uint32_t[::1] sums = crcs
        if not 1 <= width <= FL_TABLE_BLOCK or <uint64_t>sums.shape[0] != fl_table_blocks(rows, width):
            raise _errors.ArgumentError(f"{sums.shape[0]} checksums for {rows} rows of {width} bytes")
        self.file, self.owner = file, crcs if crcs.base is None else crcs.base
        self.c.file = file.ptr
        self.c.offset, self.c.rows, self.c.width = offset, rows, width
        self.c.crcs = &sums[0] if sums.shape[0] else NULL

    def __len__(self):
        return self.c.rows

    @property
    def width(self):
        """Bytes of a row."""
        return self.c.width

    def read(self, uint64_t first, uint64_t count):
        """Rows first .. first+count-1 as a uint8 array (count, width).

        Raises:
            ArgumentError: there are no such rows.
            DatasetError: the file was cut, or is not what was written.
        """
        cdef fl_error err
        cdef fl_code code
        if first > self.c.rows or count > self.c.rows - first:
            raise _errors.ArgumentError(f"there are no rows {first}+{count} of {self.c.rows}")
        out = _np.empty((count, self.c.width), _np.uint8)
        cdef uint8_t[:, ::1] into = out
        if count:
            with nogil:
                code = fl_table_read(&self.c, first, count, &into[0, 0], &err)
            check(code, &err)
        return out

    def take(self, const int64_t[::1] rows not None):
        """Rows of these numbers as a uint8 array (len(rows), width). Raises as `read` does."""
        cdef fl_error err
        cdef fl_code code = <fl_code>0
        cdef Py_ssize_t i, count = rows.shape[0]
        out = _np.empty((count, self.c.width), _np.uint8)
        cdef uint8_t[:, ::1] into = out
        if count:
            with nogil:
                for i in range(count):
                    code = fl_table_row(&self.c, <uint64_t>rows[i], &into[i, 0], &err)
                    if code:
                        break
            check(code, &err)
        return out


cdef class JoinedTables:
    """The rows of a dataset's samples in tables of its shards, a table for each. Any thread may read.

    Args:
        firsts: int64 number of each shard's first sample, ascending from 0.
        tables: table of each shard's stored samples, all of one width; their arrays of checksums are kept, or
            what those are views of.
        rows: uint32 numbers of the stored samples that count, for each shard; None: its first ones.
        count: number of all samples.

    Raises:
        ArgumentError: the lengths or widths differ, or a table has fewer rows than its shard has samples.
    """

    cdef fl_tables c
    cdef fl_table *ptr  # c.tables
    cdef const uint32_t **numbers  # c.rows
    cdef dict owners  # what the tables point to, by id
    cdef list rows
    cdef const int64_t[::1] firsts
    cdef readonly uint32_t width

    def __cinit__(self, const int64_t[::1] firsts not None, list tables not None, list rows not None,
                  int64_t count):
        cdef Py_ssize_t i, shards = firsts.shape[0]
        cdef int64_t samples
        cdef Table table
        cdef const uint32_t[::1] kept
        self.firsts, self.owners, self.rows = firsts, {}, rows
        if not shards or len(tables) != shards or len(rows) != shards:
            raise _errors.ArgumentError(
                f"{len(tables)} tables and {len(rows)} lists of rows for {shards} shards"
            )
        self.c.firsts, self.c.shards, self.c.count = &firsts[0], <uint32_t>shards, <uint64_t>count
        self.ptr = <fl_table *>malloc(shards * sizeof(fl_table))
        self.numbers = <const uint32_t **>malloc(shards * sizeof(uint32_t *))
        if self.ptr is NULL or self.numbers is NULL:
            raise _errors.ResourceError(f"no memory for {shards} tables")
        self.c.tables, self.c.rows = self.ptr, self.numbers
        self.width = (<Table?>tables[0]).c.width
        for i in range(shards):
            table = <Table?>tables[i]
            samples = (firsts[i + 1] if i + 1 < shards else count) - firsts[i]
            self.numbers[i] = NULL
            fits = samples <= <int64_t>table.c.rows
            if rows[i] is not None:
                kept = rows[i]
                self.numbers[i] = &kept[0] if kept.shape[0] else NULL
                fits = samples == kept.shape[0]
            if samples < 1 or table.c.width != self.width or not fits:
                raise _errors.ArgumentError(
                    f"the table of shard {i} has other rows than its {samples} samples"
                )
            self.ptr[i] = table.c
            self.owners[id(table.file)], self.owners[id(table.owner)] = table.file, table.owner

    def __dealloc__(self):
        free(self.ptr)
        free(self.numbers)

    def __len__(self):
        return self.c.count

    def take(self, const int64_t[::1] indices not None):
        """Rows of samples as a uint8 array (len(indices), width).

        Raises:
            IndexError: there is no such sample.
            DatasetError: a file was cut, or is not what was written.
        """
        cdef fl_error err
        cdef fl_code code = <fl_code>0
        cdef Py_ssize_t i, count = indices.shape[0]
        out = _np.empty((count, self.width), _np.uint8)
        cdef uint8_t[:, ::1] into = out
        if count:
            with nogil:
                for i in range(count):
                    code = fl_table_sample_row(&self.c, <uint64_t>indices[i], &into[i, 0], &err)
                    if code:
                        break
            if code == FL_ENOTFOUND:
                raise IndexError(f"index {indices[i]} is out of range for {self.c.count} samples")
            check(code, &err)
        return out
