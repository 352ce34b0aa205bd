"""Spilled lists: texts and numbers by position that go to a temporary file once they are large, and a sort of
texts in bounded memory.

NOTE [ spill: what a pack notes of each sample ]
A source's listing, the digests of names and a shuffled order have an entry for each sample. Up to
`MEMORY_BYTES` each such list is in memory; beyond, it is a file in the system's folder for temporary files
(TMPDIR), without a name, so that it ends with the process. Entries are read by pread: mapped pages would
count as the process's memory, and a Ray node ends processes by that figure. Texts are sorted by runs:
`RUN_BYTES` of them are sorted in memory and written one after the other, and the runs are merged when they
are read. Measured on 10^6 names of 35 bytes: sorted in memory 0.6 s; by runs of 1, 16 and 64 MiB 1.5, 1.7 and
1.8 s; in a table of sqlite without a name 3.0 s with ORDER BY, and 5.1 s where the name is the key. So runs,
which are of the standard library's heapq as well.
"""

from __future__ import annotations

import errno
import heapq
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError

MEMORY_BYTES = 4 << 20
"""Bytes of a list that stay in memory: those of a hundred thousand samples, so that a small pack writes no
temporary file."""
RUN_BYTES = 16 << 20
"""Memory of the texts that are sorted at once."""
_TEXT_OVERHEAD = 41
"""Bytes that CPython adds to a text in a list: its header and its place in the list."""
_READ_LEAST = 4 << 10
_AHEAD = 512
"""Texts that are read at once where they are asked for one after the other."""
_LENGTH = struct.Struct("<I")


class _File:
    """A file without a name in the folder for temporary files; it ends with this object."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number, path = tempfile.mkstemp(prefix="fastload-")
        os.unlink(path)

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # a default, since at the program's end `os` may be gone
        if hasattr(self, "number"):
            close(self.number)


class SpilledBytes:
    """Bytes that are appended, then sealed, then read at any offset by any thread.

    Raises:
        PackError: the folder for temporary files is full, or cannot be written to.
    """

    def __init__(self) -> None:
        self._tail = bytearray()
        self._file: _File | None = None
        self._written = 0

    def __len__(self) -> int:
        return self._written + len(self._tail)

    def append(self, data: bytes) -> None:
        """Appends bytes."""
        self._tail += data
        if len(self._tail) >= MEMORY_BYTES:
            self._flush()

    def seal(self) -> None:
        """Ends the appending, and frees what the file has."""
        if self._file is not None:
            self._flush()

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes, which must be there."""
        if self._file is None:
            return bytes(self._tail[offset : offset + size])
        data = os.pread(self._file.number, size, offset)
        while len(data) < size:  # a read ends early after 2 GiB, and at a signal
            more = os.pread(self._file.number, size - len(data), offset + len(data))
            if not more:
                raise PackError(
                    f"a temporary file in {tempfile.gettempdir()} has lost its end: it was changed "
                    "by another program"
                )
            data += more
        return data

    def _flush(self) -> None:
        view = memoryview(self._tail)
        try:
            if self._file is None:
                self._file = _File()
            done = 0
            while done < len(view):
                done += os.write(self._file.number, view[done:])
        except OSError as error:
            raise temporary_error(error) from error
        finally:
            view.release()
        self._written += len(self._tail)
        self._tail = bytearray()


def temporary_error(error: OSError) -> PackError:
    """The error for a failed write to the folder for temporary files."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = "the disk is full" if full else f"cannot be written to: {error.strerror or error}"
    try:
        folder = tempfile.gettempdir()
    except OSError:
        folder = "the folder for temporary files"
    return PackError(
        f"{folder}: {reason}; a pack keeps a list of its samples there: make room, or set TMPDIR to "
        "another folder"
    )


class Numbers:
    """A list of numbers of one dtype: appended, then sealed, then read by any thread."""

    def __init__(self, dtype: npt.DTypeLike, values: npt.ArrayLike | None = None) -> None:
        """`values`: the whole list, which is sealed then."""
        self.dtype = np.dtype(dtype)
        self._bytes = SpilledBytes()
        if values is not None:
            self.extend(np.asarray(values, self.dtype))
            self.seal()

    def extend(self, values: npt.NDArray[Any]) -> None:
        """Appends an array."""
        self._bytes.append(values.astype(self.dtype, copy=False).tobytes())

    def seal(self) -> None:
        """Ends the appending."""
        self._bytes.seal()

    def __len__(self) -> int:
        return len(self._bytes) // self.dtype.itemsize

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < len(self):
            raise IndexError(position)
        return int(self.read(position, position + 1)[0])

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """The numbers at ``start`` .. ``stop - 1``, without those beyond the end."""
        stop = min(stop, len(self))
        size = self.dtype.itemsize
        return np.frombuffer(self._bytes.read(start * size, max(0, stop - start) * size), self.dtype)

    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The numbers at some positions."""
        count = len(positions)
        if count and positions[-1] - positions[0] == count - 1 and bool((np.diff(positions) == 1).all()):
            return self.read(int(positions[0]), int(positions[-1]) + 1)
        return np.fromiter((self[position] for position in positions.tolist()), self.dtype, count)

    def blocks(self, size: int = 1 << 17) -> Iterator[npt.NDArray[Any]]:
        """The numbers, block by block."""
        for start in range(0, len(self), size):
            yield self.read(start, start + size)


class ByteStrings(Sequence[bytes]):
    """A list of byte strings that a subclass reads one by one."""

    def _read_at(self, position: int) -> bytes:
        """The one at a position, 0 <= position < len()."""
        raise NotImplementedError

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> list[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | list[bytes]:
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(len(self)))]
        if not 0 <= position < len(self):
            raise IndexError(position)
        return self._read_at(position)


class Texts(ByteStrings):
    """A list of byte strings: appended, then sealed, then read by any thread. Neighbours are read
    together."""

    def __init__(self) -> None:
        self._data = SpilledBytes()
        self._ends = Numbers("<u8")
        self._pending: list[int] = []
        self._last = -2
        # The first text of a block, the edges of its texts, their bytes.
        self._block: tuple[int, list[int], bytes] = (
            0,
            [],
            b"",
        )

    def append(self, text: bytes) -> None:
        """Appends a text."""
        self._data.append(text)
        self._pending.append(len(self._data))
        if len(self._pending) == _AHEAD:
            self._settle()

    def seal(self) -> None:
        """Ends the appending."""
        self._settle()
        self._data.seal()
        self._ends.seal()

    def _settle(self) -> None:
        self._ends.extend(np.array(self._pending, "<u8"))
        self._pending.clear()

    def __len__(self) -> int:
        return len(self._ends) + len(self._pending)

    def _read_at(self, position: int) -> bytes:
        first, edges, data = self._block
        if not first <= position < first + len(edges) - 1:
            ahead = _AHEAD if position == self._last + 1 else 1
            first, edges, data = self._read(position, ahead)
            if ahead > 1:
                self._block = first, edges, data
        self._last = position
        place = position - first
        return data[edges[place] - edges[0] : edges[place + 1] - edges[0]]

    def _read(self, first: int, count: int) -> tuple[int, list[int], bytes]:
        edges: list[int] = self._ends.read(max(first - 1, 0), first + count).tolist()
        if not first:
            edges.insert(0, 0)
        return first, edges, self._data.read(edges[0], edges[-1] - edges[0])


def encoded(text: str) -> bytes:
    """The bytes of a name, which sort as names do."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """The name of bytes."""
    return data.decode("utf-8", "surrogatepass")


class TextSorter:
    """Sort of byte strings, which are added in any order and read once, in ascending order; see the NOTE."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._texts: list[bytes] = []
        self._size = 0
        self._runs: list[tuple[int, int]] = []  # the range of each run in the file
        self._file = SpilledBytes()

    def add(self, text: bytes) -> None:
        """Adds a text."""
        self._texts.append(text)
        self._size += len(text) + _TEXT_OVERHEAD
        if self._size >= RUN_BYTES:
            self._end_run()

    def drain(self) -> Iterator[bytes]:
        """The texts in ascending order; afterwards the sorter is empty."""
        if self._runs:
            self._end_run()
            self._file.seal()
            block = max(_READ_LEAST, RUN_BYTES // len(self._runs))
            yield from heapq.merge(*(self._run(*edges, block) for edges in self._runs))
            self._begin()
            return
        self._texts.sort()
        texts, self._texts, self._size = self._texts, [], 0
        yield from texts

    def _end_run(self) -> None:
        self._texts.sort()
        begin = len(self._file)
        for text in self._texts:
            self._file.append(_LENGTH.pack(len(text)) + text)
        self._runs.append((begin, len(self._file)))
        self._texts, self._size = [], 0

    def _run(self, begin: int, end: int, block: int) -> Iterator[bytes]:
        """The texts of a run, read by blocks of so many bytes."""
        left = b""
        while begin < end:
            data = left + self._file.read(begin, min(block, end - begin))
            begin += len(data) - len(left)
            at = 0
            while at + _LENGTH.size <= len(data):
                size = _LENGTH.unpack_from(data, at)[0] + _LENGTH.size
                if at + size > len(data):
                    break
                yield data[at + _LENGTH.size : at + size]
                at += size
            left = data[at:]


SORTED_AT_ONCE = 1 << 20
"""Keys that `sorted_positions` sorts in memory."""
_KEYED = np.dtype([("key", "<u8"), ("position", "<i8")])


class Keyed:
    """Keys of positions, read by ascending keys and then positions. They are parted by their first bits, and
    each part is sorted in memory: keys have to be spread evenly, as digests are."""

    def __init__(self) -> None:
        self._rows = Numbers(_KEYED)

    def extend(self, keys: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> None:
        """Adds keys, and the position of each."""
        rows = np.empty(len(keys), _KEYED)
        rows["key"], rows["position"] = keys, positions
        self._rows.extend(rows.view(_KEYED))

    def parts(self) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """(keys, positions) in order, part by part; afterwards it is empty."""
        self._rows.seal()
        rows, self._rows = self._rows, Numbers(_KEYED)
        bits = (len(rows) // SORTED_AT_ONCE).bit_length()
        if not bits:
            yield _sorted(rows.read(0, len(rows)))
            return
        shift = np.uint64(64 - bits)
        counts = np.zeros(1 << bits, np.int64)
        for block in rows.blocks():
            counts += np.bincount((block["key"] >> shift).astype(np.int64), minlength=len(counts))
        starts = np.concatenate(([0], np.cumsum(counts)))
        parted, cursors = _File(), starts[:-1].copy()
        try:
            for block in rows.blocks():
                numbers = (block["key"] >> shift).astype(np.int64)
                block = block[np.argsort(numbers, kind="stable")]
                edges = np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=len(counts)))))
                for number in np.flatnonzero(np.diff(edges)).tolist():
                    piece = block[edges[number] : edges[number + 1]]
                    _write_at(parted.number, piece.tobytes(), int(cursors[number]) * _KEYED.itemsize)
                    cursors[number] += len(piece)
        except OSError as error:
            raise temporary_error(error) from error
        del rows
        for number, count in enumerate(counts.tolist()):
            data = os.pread(parted.number, count * _KEYED.itemsize, int(starts[number]) * _KEYED.itemsize)
            yield _sorted(np.frombuffer(data, _KEYED))


def _sorted(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    order = np.lexsort((rows["position"], rows["key"]))
    return rows["key"][order], rows["position"][order]


def _write_at(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done
