"""OriginLog: holds the origin of each written sample, and decides from that log, sample by sample, where a
resume continues.

NOTE [ pack: what a resume checks ]
The writer stores an entry for each sample that the pack has handled: whether it was written or left out,
digests of its name and of its fields, the size and the modification time of its file, and the CRC32C of the
image's bytes. A resume compares the source, in its order, with these entries, and checks no sample after
them:
1. All written samples are still there, in the same order, without new samples between them.
2. Each has the same fields and the same image: by the file's size and time, and by its bytes if only the time
   differs, or if the source does not know them.
3. Samples that were left out may be gone or changed. They stay left out.
So a file that is not written yet may be repaired, removed or added. A source that does not know the files of
its samples (a Dataset), or not all of them, cannot say that a sample is unchanged: the resume reads each
sample that is written, and compares image and fields.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.spill import Keyed, Numbers
from fastload.errors import FastloadError, PackError
from fastload.sources.protocol import UNKNOWN, Item, Source, Traced, Value

ENTRY = np.dtype(
    [("name", "<u8"), ("fields", "<u8"), ("size", "<i8"), ("time", "<i8"), ("crc", "<u4"), ("written", "<u4")]
)

_PACKED = struct.Struct("<QQqqII")

_BLOCK = 256
_SPAN = 256 * _BLOCK
"""Entries that a resume holds at once."""
_NAMES_AT_ONCE = 4096
_AGAIN = "--overwrite starts again"


class _Entry(NamedTuple):
    """An entry of dtype `ENTRY`, as Python values."""

    name: int
    fields: int
    size: int
    time: int
    crc: int
    written: int


class Log(Protocol):
    """Entries of a pack that was begun, one after the other; they are bytes of dtype `ENTRY`."""

    def __len__(self) -> int: ...
    def read(self, offset: int, size: int) -> bytes: ...


class Order:
    """Positions in the order in which they are written: of `positions`, or 0, 1, ...; the first `count` of
    them."""

    def __init__(self, count: int, positions: Numbers | None = None) -> None:
        self._count = count
        self._positions = positions

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        return place if self._positions is None else self._positions[place]

    def read(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The positions at the places ``start`` .. ``stop - 1``, without those beyond the end."""
        stop = min(stop, self._count)
        return np.arange(start, stop) if self._positions is None else self._positions.read(start, stop)


def name_digests(source: Source) -> Numbers:
    """A digest of each sample's name, which does not depend on the path of the source."""
    title = source.title
    key: Callable[[int], str] = (
        source.key
        if isinstance(source, Traced)
        else lambda position: source.name(position).removeprefix(title)
    )
    digests = (_digest(key(position).encode("utf-8", "surrogateescape")) for position in range(len(source)))
    found = Numbers("<u8")
    while block := list(islice(digests, _NAMES_AT_ONCE)):
        found.extend(np.array(block, np.uint64))
    found.seal()
    return found


def shuffled(names: Numbers, seed: int) -> Numbers:
    """Positions in a random order. Whether one sample comes before another depends only on the seed and their
    two names.

    So adding or removing a file does not change the order of the others. Equal names are told apart by their
    order.
    """
    by_name, mixed, order, start = Keyed(), Keyed(), Numbers("<i8"), 0
    for block in names.blocks():
        by_name.extend(block, np.arange(start, start + len(block)))
        start += len(block)
    for ordered, positions in by_name.parts():  # equal names are in one part, by their positions
        places = np.arange(len(ordered))
        first = np.maximum.accumulate(
            np.where(np.concatenate(([True], ordered[1:] != ordered[:-1])), places, 0)
        )
        repeats = (places - first).astype(np.uint64)
        mixed.extend(
            _mixed(_mixed(ordered + _mixed(repeats)) ^ _mixed(np.full(1, seed, np.uint64))), positions
        )
    for _, positions in mixed.parts():
        order.extend(positions)
    order.seal()
    return order


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's step and output function (Steele, Lea, Flood 2014), on arrays."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return mixed


class OriginLog:
    """Makes and checks entries for the samples of one source. Any thread may call it."""

    def __init__(self, source: Source, names: Numbers) -> None:
        self._source = source
        self._traced: Traced | None = source if isinstance(source, Traced) else None
        self._names = names
        self._labels: dict[
            int, int
        ] = {}  # cached digests of fields that are a label alone, as in most sources

    def stamp(self, position: int) -> tuple[int, int]:
        """Size and time of a sample's file; UNKNOWN if the source does not know them. Call it before the
        sample is read."""
        return self._stamp(position) or UNKNOWN

    def _stamp(self, position: int) -> tuple[int, int] | None:
        """Size and time of a sample's file; UNKNOWN if the source does not know them, None if the file
        cannot be looked at."""
        try:
            return UNKNOWN if self._traced is None else self._traced.stamp(position)
        except (OSError, ValueError):
            return None

    def written(self, position: int, stamp: tuple[int, int], item: Item) -> bytes:
        """The entry of a sample that is about to be written."""
        return _PACKED.pack(self._names[position], self._fields(item.values), *stamp, _image_crc(item), 1)

    def left_out(self, position: int) -> bytes:
        """The entry of a sample that is left out."""
        return _PACKED.pack(self._names[position], 0, *UNKNOWN, 0, 0)

    def resume_at(self, noted: Log, order: Order, workers: int) -> int:
        """The place in the order at which a pack goes on after the samples of `noted`.

        Raises:
            PackError: the source differs from what was written; the message names the sample.
        """
        if len(noted) % ENTRY.itemsize:
            raise PackError(f"its notes on samples are of another version of fastload: {_AGAIN}")
        place, begins = 0, []
        # All names before the first sample is looked at, which may have to be read.
        for first, entries in _spans(noted):
            begins.append(place)
            place = self._places(noted, first, entries, order, place)[1]

        def check(block: tuple[npt.NDArray[np.int64], npt.NDArray[Any]]) -> None:
            for position, entry in zip(*(each.tolist() for each in block), strict=True):
                self._check(position, _Entry(*entry))

        if self._source.concurrent:
            with ThreadPoolExecutor(workers, "fastload-resume") as pool:
                for blocks in self._blocks(noted, order, begins):
                    _run_all(pool.map(check, blocks))
        else:
            for blocks in self._blocks(noted, order, begins):
                _run_all(map(check, blocks))
        return place

    def _blocks(
        self, noted: Log, order: Order, begins: list[int]
    ) -> Iterator[list[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]]:
        """Positions and entries of the samples that were written, in blocks, for each span of the log; the
        span's first place is known."""
        for (first, entries), begin in zip(_spans(noted), begins, strict=True):
            places, end = self._places(noted, first, entries, order, begin)
            written = np.flatnonzero(entries["written"])
            positions = order.read(begin, end)[places[written] - begin]
            yield [
                (positions[at : at + _BLOCK], entries[written[at : at + _BLOCK]])
                for at in range(0, len(written), _BLOCK)
            ]

    def _places(
        self, noted: Log, first: int, entries: npt.NDArray[Any], order: Order, place: int
    ) -> tuple[npt.NDArray[np.int64], int]:
        """The place of each entry of a span in the order, -1 for one that was left out and is gone; and the
        place after the last.

        Args:
            noted: the whole log, for a message.
            first: number of the span's first entry in it.
            entries: the span.
            order: the order of the source's samples now.
            place: the place at which the span begins.
        """
        count = len(entries)
        names = self._names.take(order.read(place, place + count))
        if len(names) == count and bool((names == entries["name"]).all()):
            return np.arange(place, place + count), place + count
        places = np.full(count, -1)
        for number, (name, written) in enumerate(
            zip(entries["name"].tolist(), entries["written"].tolist(), strict=True)
        ):
            if place < len(order) and self._names[order[place]] == name:
                places[number] = place
                place += 1
            elif written:
                raise PackError(self._moved(noted, first + number, order, place))
        return places, place

    def _moved(self, noted: Log, number: int, order: Order, place: int) -> str:
        """The message that the sample at a place of the order is not that of the entry of this number."""
        before = f"after {self._source.name(order[place - 1])}" if place else "at the beginning"
        if place == len(order):
            more = sum(int(entries["written"].sum()) for _, entries in _spans(noted, number))
            return (
                f"{before} there are no more samples, but {more:,} more are written already: "
                f"put them back (or raise the limit), or {_AGAIN}"
            )
        name, digest = self._source.name(order[place]), self._names[order[place]]
        if any(bool((entries["name"] == digest).any()) for _, entries in _spans(noted, number)):
            return (
                f"a sample that is written already is no longer {before}, where {name} is now: put it "
                f"back, or {_AGAIN}"
            )
        return (
            f"{name} was not there when the pack was begun, and comes before samples that are written "
            f"already: take it out, or {_AGAIN}"
        )

    def _check(self, position: int, entry: _Entry) -> None:
        """Raises PackError if a sample was written from other fields or another image than the source has
        now."""
        changed = f"{self._source.name(position)} has changed since it was written"
        fields = None if self._traced is None else self._traced.fields_of(position)
        if fields is not None and self._fields(fields) != entry.fields:
            raise PackError(
                f"{changed}: its label or another field is not what it was; restore it, or {_AGAIN}"
            )
        stamp, noted = self._stamp(position), (entry.size, entry.time)
        if stamp == noted != UNKNOWN:
            return
        if UNKNOWN not in (stamp, noted) and (stamp is None or stamp[0] != entry.size):
            now = "nothing that can be read" if stamp is None else f"{stamp[0]:,} bytes"
            raise PackError(f"{changed} ({entry.size:,} bytes then, {now} now): restore it, or {_AGAIN}")
        try:
            item = self._source.read(position)
        except (FastloadError, OSError) as error:
            raise PackError(
                f"{changed}: it cannot be read any more ({error}); restore it, or {_AGAIN}"
            ) from error
        if _image_crc(item) != entry.crc or self._fields(item.values) != entry.fields:
            if self._traced is None:
                changed += (
                    f", or {self._source.title} gives another sample at every reading, which cannot be "
                    "resumed"
                )
            raise PackError(f"{changed}: restore it, or {_AGAIN}")

    def _fields(self, values: dict[str, Value]) -> int:
        """A digest of the fields, and of the name of the class that the label is."""
        parts: list[object] = []
        label, classes = values.get("label"), self._source.classes
        alone = label if len(values) == 1 and type(label) is int else None
        if alone is not None and alone in self._labels:
            return self._labels[alone]
        if classes is not None and isinstance(label, int) and 0 <= label < len(classes):
            parts.append(classes[label])
        for name in sorted(values):
            value = values[name]
            if isinstance(value, np.ndarray):
                value = [
                    str(value.dtype),
                    list(value.shape),
                    hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest(),
                ]
            elif isinstance(value, bytes):
                value = hashlib.blake2b(value).hexdigest()
            parts.append([name, value])
        digest = _digest(json.dumps(parts, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
        if alone is not None:
            self._labels[alone] = digest
        return digest


def _spans(noted: Log, first: int = 0) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """The entries of a log from one on, some at a time, each time with the number of the first."""
    size = ENTRY.itemsize
    for number in range(first, len(noted) // size, _SPAN):
        count = min(_SPAN, len(noted) // size - number)
        yield number, np.frombuffer(noted.read(number * size, count * size), ENTRY)


def _image_crc(item: Item) -> int:
    crc = 0
    for image in item.pictures:
        crc = core.crc32c(image if isinstance(image, bytes) else image.tobytes(), crc)
    return crc


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _run_all(results: Iterable[None]) -> None:
    """Waits for all checks, and raises the first error in the order of samples."""
    for _ in results:
        pass
