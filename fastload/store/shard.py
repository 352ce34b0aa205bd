"""ShardFile: writes one shard, an LMDB file of format 0.9 with the databases `samples` and `columns`.

py-lmdb writes it. Keys come in order, so every put is an append. Measured on 92 KB records in the page cache,
one thread: 2.7 GB/s in transactions of 8 MiB, which stay in the CPU's cache between put and commit, 1.9 GB/s
in those of 64 MiB; `writemap` is no faster, and turns a full disk into SIGBUS instead of an error.

`StoredPlace` is the place of an attached image: an entry of a record that names a file outside of the
dataset. csrc/store/attached.h describes its bytes, and reads the images.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import open_regular, size_limit
from fastload.errors import PackError
from fastload.store.entries import ShardEntry
from fastload.store.kinds.base import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.store.schema import CRC_COLUMN, HIDDEN_COLUMNS, Schema, with_index

_HEAD = struct.Struct("<QQqII")
_PATH_BYTES = 2048
"""Limit on a stored path: who reads ahead looks for it in the first 4 KiB of a record."""


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Place of an attached image, and the facts that identify its file.

    Attributes:
        path: path of the file: absolute, or relative to the shard's base folder.
        offset: first byte of the image in the file.
        size: number of its bytes.
        crc: their CRC32C.
        file_size: bytes of the whole file when it was attached.
        file_time: time of the file's last change then, ns since 1970.
    """

    path: str
    offset: int
    size: int
    crc: int
    file_size: int
    file_time: int

    def to_bytes(self) -> bytes:
        """The entry's bytes.

        Raises:
            PackError: the path is longer than a record takes.
        """
        path = os.fsencode(self.path)
        if len(path) > _PATH_BYTES:
            raise PackError(
                f"{self.path[:80]}...: a path of {len(path):,} bytes, more than the limit of {_PATH_BYTES:,}"
            )
        return _HEAD.pack(self.offset, self.file_size, self.file_time, self.size, self.crc) + path


TRANSACTION_BYTES = 8 << 20
TRANSACTION_RECORDS = 4096
RESUME = "go on with --resume (finished shards are kept), or choose another OUT"
"""The last words of a message about a failed write of a pack."""
COLUMN_LIMIT = 1 << 31
"""Bytes of one column's chunk after which a shard is full: LMDB's values end at 4 GiB."""

_PAGE_HEADER = 16
_SLACK_PAGES = 256
"""Room for the pages that a commit writes besides records: copied branch pages, the free list, the roots."""
_READ_BLOCK = 1 << 20


def _engine_arguments() -> dict[str, Any]:
    """Arguments that select LMDB 0.9: py-lmdb 3 has two engines and takes `lib_version`; 1.x has only that
    one."""
    try:
        lmdb.version(lib_version=0)
    except TypeError:
        return {}
    return {"lib_version": 0}


def file_crc32c(path: str | os.PathLike[str], check: Callable[[], None] | None = None) -> int:
    """CRC32C of a whole file; `check` is called between its blocks. Raises OSError, and what `check`
    raises."""
    crc = 0
    buffer = bytearray(_READ_BLOCK)
    view = memoryview(buffer)
    with open(open_regular(path)[0], "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc = core.crc32c(view[:size], crc)
            if check is not None:
                check()
    return crc


def durable_entry(path: Path, first: int, count: int, columns: Mapping[str, int]) -> ShardEntry:
    """Syncs a closed shard to the disk and returns its manifest entry; `columns` is what `ShardFile.close`
    returned. Raises OSError."""
    with open(open_regular(path)[0], "rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    return ShardEntry(path.name, first, count, size, file_crc32c(path), columns)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sample ready to be appended: its record, the record's CRC32C, and its row in the columns."""

    record: bytes
    crc: int
    row: list[Any]
    height: int
    width: int


def prepare_sample(
    schema: Schema,
    values: Mapping[str, object],
    *,
    image_kind: str | None = None,
    height: int = 0,
    width: int = 0,
    index: bytes = b"",
) -> Prepared:
    """Builds a sample's record, in any thread; see `DatasetWriter.append`. `index` is the entropy index of
    its JPEG."""
    entries, row = schema.encode(values, image_kind, height, width)
    if index:
        entries = with_index(entries, index)
    record, crc = core.build_record(entries)
    return Prepared(record, crc, row, height, width)


def map_bytes(shard_size: int) -> int:
    """Size of LMDB's map for a shard that ends after so many bytes. It is stored in the file, so that all
    who write a shard must agree."""
    room = min(shard_size, 1 << 36)
    return room + min(room // 8, 1 << 28) + (1 << 24)


class ShardFile:
    """Writes one shard, then closes or aborts it.

    1. Call `put` in the order of indices, then `close`, which writes the columns. After a PackError call only
       `abort`.
    2. LMDB's map grows by itself; the records so far are committed first.
    """

    def __init__(self, path: Path, first: int, schema: Schema, map_bytes: int, go_on: str = RESUME) -> None:
        """Creates a shard whose first sample is `first`. `map_bytes` estimates its final size; `go_on`
        ends error messages."""
        self.path = path
        self.first = first
        self.count = 0
        self.record_bytes = 0
        self._schema = schema
        self._go_on = go_on
        self._rows: list[list[Any]] = [[] for name in schema.columns if name not in HIDDEN_COLUMNS]
        self._sizes: tuple[list[int], list[int]] = ([], [])
        self._crcs: list[int] = []
        self._env: Any = None
        self._txn: Any = None
        self._descriptor = -1
        self._pending_pages = self._pending_bytes = self._pending_records = 0
        self._committed_pages = 2
        self._map_bytes = max(map_bytes, 1 << 20)
        try:
            path.unlink(missing_ok=True)
            self._env = lmdb.open(
                os.fsencode(path), map_size=self._map_bytes, subdir=False, mode=0o644, lock=False, sync=False,
                metasync=False,
                writemap=False, max_dbs=2, **_engine_arguments(),
            )  # fmt: skip
            self._page_size = int(self._env.stat()["psize"])
            self._samples = self._env.open_db(b"samples")
            self._columns = self._env.open_db(b"columns")
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._begin()
        except (lmdb.Error, OSError) as error:
            self.abort()
            raise self._failed(error) from None

    @property
    def size(self) -> int:
        """Bytes of the shard so far, with its columns."""
        return self.record_bytes + self.count * self._schema.row_bytes

    @property
    def column_full(self) -> bool:
        """True if the columns together have reached COLUMN_LIMIT."""
        return self.count * self._schema.row_bytes >= COLUMN_LIMIT

    def put(self, sample: Prepared) -> None:
        """Appends a sample.

        Raises:
            PackError: the disk is full or fails.
        """
        self.put_record(sample.record, sample.crc)
        for column, value in zip(self._rows, sample.row, strict=True):
            column.append(value)
        self._sizes[0].append(sample.height)
        self._sizes[1].append(sample.width)

    def put_record(self, record: bytes, crc: int) -> None:
        """Appends a sample whose column values are passed to `close`. Raises as `put` does."""
        try:
            self._put(self._samples, (self.first + self.count).to_bytes(8, "big"), record)
        except (lmdb.Error, OSError) as error:
            raise self._failed(error) from None
        self._crcs.append(crc)
        self.record_bytes += len(record)
        self.count += 1

    def close(self, columns: Mapping[str, npt.NDArray[Any]] | None = None) -> dict[str, int]:
        """Writes the columns and ends the file at its last page (in the page cache: not yet synced).

        Args:
            columns: if samples were appended by `put_record`, every column but the records' checksums.

        Returns:
            CRC32C of each column's chunk.

        Raises:
            PackError: the disk is full or fails.
        """
        rows = iter(self._rows)
        hidden = {HEIGHT_COLUMN: self._sizes[0], WIDTH_COLUMN: self._sizes[1], CRC_COLUMN: self._crcs}
        given = columns or {}
        sums: dict[str, int] = {}
        chunks: dict[str, Any] = {}
        for name, (dtype, shape) in self._schema.columns.items():
            if name in given:
                values = np.ascontiguousarray(given[name], dtype)
            else:
                values = _column_array(hidden[name] if name in hidden else next(rows), dtype, shape)
            chunks[name] = values.reshape(-1).view("u1")
            sums[name] = core.crc32c(chunks[name])
        try:
            for name in sorted(chunks, key=str.encode):
                self._put(self._columns, name.encode(), chunks[name])
            self._commit()
            self._release()
            os.truncate(self.path, self._committed_pages * self._page_size)
        except (lmdb.Error, OSError) as error:
            raise self._failed(error) from None
        return sums

    def abort(self) -> None:
        """Closes the file, which stays unfinished; may be called at any time."""
        if self._txn is not None:
            self._txn.abort()
            self._txn = None
        self._release()

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1  # first: Ctrl-C may come in between
        if descriptor >= 0:
            os.close(descriptor)
        if self._env is not None:
            self._env.close()
            self._env = None

    def _begin(self) -> None:
        self._txn = self._env.begin(write=True)

    def _commit(self) -> None:
        txn, self._txn = self._txn, None
        txn.commit()
        core.start_writeback(self._descriptor)
        self._committed_pages = int(self._env.info()["last_pgno"]) + 1
        self._pending_pages = self._pending_bytes = self._pending_records = 0

    def _fits(self, pages: int) -> bool:
        total = self._committed_pages + self._pending_pages + pages + _SLACK_PAGES
        return total * self._page_size <= self._map_bytes

    def _put(self, database: object, key: bytes, value: Sized) -> None:
        # an upper bound: a value's own pages, and at worst a leaf page for its node
        pages = (len(value) + _PAGE_HEADER + self._page_size - 1) // self._page_size + 1
        full = self._pending_bytes >= TRANSACTION_BYTES or self._pending_records >= TRANSACTION_RECORDS
        if full or not self._fits(pages):
            self._commit()
            while not self._fits(pages):
                self._map_bytes *= 2
                self._env.set_mapsize(self._map_bytes)
            self._begin()
        self._txn.put(key, value, append=True, db=database)
        self._pending_pages += pages
        self._pending_bytes += len(value)
        self._pending_records += 1

    def _failed(self, error: Exception) -> PackError:
        return write_error(self.path, self._pending_bytes, error, self._go_on)


def write_error(path: Path, pending: int, error: Exception, go_on: str = RESUME) -> PackError:
    """The error for a failed write of `pending` bytes to `path`: a full disk or the system's reason, and
    how to go on."""
    code = error.errno if isinstance(error, OSError) else None
    try:
        status = os.statvfs(path.parent)
        free = status.f_bavail * status.f_frsize
    except OSError:
        free = -1
    # LMDB reports a write that came up short, which is how a disk fills, as an I/O error
    full = code in (errno.ENOSPC, errno.EDQUOT) or 0 <= free < pending + (1 << 20)
    limit = "" if full else size_limit(error)
    if full or (isinstance(error, lmdb.DiskError) and not limit):
        return PackError(
            f"the disk is full: {path} needs {pending:,} bytes more for what was being written, "
            f"{max(free, 0):,} are free. Make room and {go_on}"
        )
    return PackError(f"cannot write {path}: {error}{limit}. Mend that and {go_on}")


def _column_array(columns: Sequence[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The rows collected by `Schema.encode`, as one contiguous array (rows, *shape)."""
    if not shape:
        return np.array(columns, dtype=dtype).reshape(len(columns))
    out = np.empty((len(columns), *shape), dtype=dtype)
    for i, row in enumerate(columns):
        out[i] = row
    return out
