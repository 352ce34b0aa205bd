"""Places of the images of an Arrow column: file and offset of each.

NOTE [ mapped: from addresses to files ]
Hugging Face's library maps its Arrow files, and a table's buffers are addresses in those mappings, whatever
columns were renamed, rows sliced and tables joined since. /proc/self/maps tells which file is mapped where;
so an address gives a file and an offset, and nothing depends on how the library keeps its list of files. A
buffer that is in no mapping of a file lies in memory. The path of a mapping may be another file by now:
device and inode tell. Where the system shows another device for mapped files (overlayfs, btrfs), bytes are
compared. No mapped byte is touched before its file is known to be as long as the buffer: touching a byte that
was cut off ends the process.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.dataset.in_place.base import checked_path
from fastload.dataset.in_place.known import NotInPlaceError
from fastload.dataset.in_place.listed import Places
from fastload.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

_MAPS = "/proc/self/maps"
_GONE = b" (deleted)"
_MOST = 1 << 30
"""Bytes of an image, as csrc/store/place.h has it."""
_COMPARED = 1 << 20
"""Bytes of a buffer that are compared with its file's."""


@dataclass
class _Mapping:
    """A file that is mapped from `start` to `end`, with `offset` at the start."""

    start: int
    end: int
    offset: int
    device: int
    inode: int
    path: bytes


class MappedFiles:
    """The files that this process has mapped, as they are now. See NOTE [ mapped: from addresses to files ].

    Raises:
        NotInPlaceError: the system does not tell.
    """

    def __init__(self) -> None:
        found: list[_Mapping] = []
        try:
            with open(_MAPS, "rb") as file:
                lines = file.read().split(b"\n")
        except OSError as error:
            raise NotInPlaceError(f"{_MAPS} cannot be read: {error.strerror}") from error
        for line in lines:
            parts = line.split(maxsplit=5)
            if len(parts) < 6 or not parts[5].startswith(b"/"):
                continue
            start, end = (int(each, 16) for each in parts[0].split(b"-"))
            major, minor = (int(each, 16) for each in parts[3].split(b":"))
            one = _Mapping(
                start,
                end,
                int(parts[2], 16),
                os.makedev(major, minor),
                int(parts[4]),
                parts[5].replace(rb"\012", b"\n"),
            )
            last = found[-1] if found else None
            if last and (last.end, last.path, last.offset + last.end - last.start) == (
                one.start,
                one.path,
                one.offset,
            ):
                last.end = one.end
            else:
                found.append(one)
        self._starts = [each.start for each in found]
        self._found = found
        self._numbers: dict[bytes, int] = {}
        self._sizes: list[tuple[int, bool]] = []  # for each path: bytes, and True if its identity is known
        self.paths: list[str] = []
        self.stamps: list[int] = []

    def place(self, buffer: pa.Buffer) -> tuple[int, int] | None:
        """(number of its path, offset) of an Arrow buffer, which may then be read; None where it lies in
        memory.

        Raises:
            NotInPlaceError: its file is no longer the one that is mapped.
        """
        at = bisect_right(self._starts, buffer.address) - 1
        mapping = self._found[at] if at >= 0 else None
        if mapping is None or buffer.address >= mapping.end:
            return None
        if buffer.address + buffer.size > mapping.end:
            raise NotInPlaceError(f"{os.fsdecode(mapping.path)} is mapped in pieces")
        number, offset = self._number(mapping), mapping.offset + buffer.address - mapping.start
        size, known = self._sizes[number]
        if offset + buffer.size > size or not (known or _same_bytes(self.paths[number], offset, buffer)):
            raise _changed(mapping.path)
        return number, offset

    def check(self, column: pa.ChunkedArray) -> None:
        """Makes sure that an Arrow column, a pyarrow.ChunkedArray, can be read.

        Raises:
            NotInPlaceError: a file that it lies in is no longer the one that is mapped.
        """
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size:
                    self.place(buffer)

    def _number(self, mapping: _Mapping) -> int:
        path = mapping.path
        if path not in self._numbers:
            try:
                stamp, status = core.file_stamp(path), os.stat(path)
            except (DatasetError, OSError):
                raise _changed(path.removesuffix(_GONE)) from None
            known = status.st_dev == mapping.device
            if known and status.st_ino != mapping.inode:
                raise _changed(path)
            self._numbers[path] = len(self.paths)
            self.paths.append(checked_path(os.fsdecode(path)))
            self.stamps.append(stamp)
            self._sizes.append((status.st_size, known))
        return self._numbers[path]


def _changed(path: bytes) -> NotInPlaceError:
    return NotInPlaceError(
        f"{os.fsdecode(path)} was changed or removed since it was loaded: load the dataset again"
    )


def _same_bytes(path: str, offset: int, buffer: pa.Buffer) -> bool:
    here = memoryview(buffer).cast("B")[:_COMPARED]  # pyarrow shows signed bytes
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return file.read(len(here)) == here


@dataclass
class _Found:
    """Places in the chunks of a column, one after the other."""

    offsets: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    sizes: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    numbers: list[npt.NDArray[np.uint32]] = field(default_factory=list)


def places_of(column: pa.ChunkedArray, mapped: MappedFiles) -> tuple[list[str], Places]:
    """The paths of files, and the place of each image: of a column of structs of `bytes` and `path`, as a
    pyarrow.ChunkedArray.

    Raises:
        NotInPlaceError: an image is null, is empty, lies in memory, or has a path that is no file's of this
            machine; or as check().
    """
    mapped.check(column)
    found = _Found()
    others: list[str] = []
    for chunk in column.chunks:
        _add_chunk(chunk, mapped, found, others)
    count = len(mapped.paths)
    for numbers, sizes in zip(found.numbers, found.sizes, strict=True):
        numbers[sizes == 0] += np.uint32(count)  # whole files, behind those that are mapped
    stamps = np.zeros(count + len(others), np.uint64)
    stamps[:count] = mapped.stamps
    empty = np.empty(0, np.uint32)
    offsets = np.concatenate([empty.astype(np.uint64), *found.offsets])
    places = Places(
        stamps, offsets, np.concatenate([empty, *found.sizes]), np.concatenate([empty, *found.numbers])
    )
    return mapped.paths + others, places


def _add_chunk(chunk: pa.StructArray, mapped: MappedFiles, found: _Found, others: list[str]) -> None:
    if chunk.null_count:
        raise NotInPlaceError(f"{chunk.null_count} of its images are null")
    data, names = chunk.field("bytes"), chunk.field("path")
    given = data.is_valid().to_numpy(zero_copy_only=False)
    offsets, sizes = np.zeros(len(chunk), np.uint64), np.zeros(len(chunk), np.uint32)
    numbers = np.zeros(len(chunk), np.uint32)
    if given.any():
        number, first = _extents(data, given, mapped, offsets, sizes)
        numbers[given] = number
        offsets[given] += np.uint64(first)
    if not given.all():
        at = np.flatnonzero(~given)
        numbers[at] = np.arange(len(others), len(others) + len(at), dtype=np.uint32)
        paths = names.to_pylist()
        others += [_local(paths[row]) for row in at]
    found.offsets.append(offsets)
    found.sizes.append(sizes)
    found.numbers.append(numbers)


def _extents(
    data: pa.Array,
    given: npt.NDArray[np.bool_],
    mapped: MappedFiles,
    offsets: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.uint32],
) -> tuple[int, int]:
    """Fills in offsets, in the buffer of all bytes, and sizes of the images given; returns the place of
    that buffer."""
    _, ends, values = data.buffers()
    dtype = np.int64 if str(data.type).startswith("large_") else np.int32
    edges = np.frombuffer(ends, dtype, len(data) + 1, data.offset * np.dtype(dtype).itemsize).astype(np.int64)
    lengths = np.diff(edges)
    most = 0 if values is None else values.size
    if edges[0] < 0 or edges[-1] > most or (lengths < 0).any():
        raise NotInPlaceError("its table is damaged: images lie outside of it")
    lengths = lengths[given]
    if not lengths.all() or lengths.max() > _MOST:
        raise NotInPlaceError("one of its images is empty, or has more than 1 GiB")
    place = mapped.place(values)
    if place is None:
        raise NotInPlaceError(
            "its images lie in memory, not in files: save_to_disk() and load_from_disk() it"
        )
    offsets[given], sizes[given] = edges[:-1][given].astype(np.uint64), lengths.astype(np.uint32)
    return place


def _local(path: object) -> str:
    if not isinstance(path, str) or not path or "://" in path or "::" in path:
        raise NotInPlaceError(f"one of its images has no file on this machine, but {path!r}")
    return checked_path(path)
