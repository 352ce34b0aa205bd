"""Files that a manifest names (`DataFile`), and streams of their bytes: requested ahead, checked, in order
and in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from typing_extensions import Buffer

from fastload._native import core
from fastload.errors import DatasetError, RemoteMissingError
from fastload.remote import fetch_loop
from fastload.remote.failures import SAME_TIMES, BytesCheck, Failure
from fastload.remote.objects import ObjectInfo, Objects
from fastload.store import MANIFEST_NAME, Manifest, Segment
from fastload.store.manifest import MANIFEST_BYTES, sync_folder
from fastload.store.progress import PART_END


class Part(NamedTuple):
    """A range of a file whose CRC32C the manifest has."""

    offset: int
    bytes: int
    crc32c: int


@dataclass(frozen=True)
class DataFile:
    """A file that a manifest names: a shard, or a file of segments.

    Two files with equal `parts` have equal bytes in all ranges that a manifest with these parts reads.

    Attributes:
        folder: the folder that the manifest names for the file; None: the dataset's.
        name: name of the file.
        parts: the parts that the manifest names, ascending; a shard is one part.
        whole: True if the file has exactly `bytes` bytes, as a shard has; other files may go on after the
            last part.
    """

    folder: str | None
    name: str
    parts: tuple[Part, ...]
    whole: bool

    @property
    def bytes(self) -> int:
        """Bytes up to the end of the last part; a reader needs no more of the file."""
        return max(part.offset + part.bytes for part in self.parts)

    @property
    def digest(self) -> str:
        """Digest of the checksums of the parts: files with equal digests have equal bytes."""
        return hashlib.blake2b(json.dumps([self.whole, self.parts]).encode(), digest_size=16).hexdigest()

    def fits(self, size: int) -> bool:
        """Returns True if a file of this size can be this file."""
        return size == self.bytes if self.whole else size >= self.bytes


def data_files(manifest: Manifest) -> tuple[DataFile, ...]:
    """The files that a manifest names, each once: first the files of segments, then the shards in order."""
    segments: dict[tuple[str | None, str], set[Part]] = {}
    shards: dict[tuple[str | None, str], DataFile] = {}

    def add(segment: Segment) -> None:
        parts = segments.setdefault((segment.folder, segment.file), set())
        parts.add(Part(segment.offset, segment.bytes, segment.crc32c))

    for sidecar in manifest.sidecars:
        add(sidecar)
    for shard in manifest.shards:
        for segment in shard.segments:
            add(segment)
        if shard.foreign is not None:
            continue  # somebody else's, which stays where it is
        part = Part(0, shard.bytes, shard.crc32c)
        shards[shard.folder, shard.file] = DataFile(shard.folder, shard.file, (part,), whole=True)
    beside = (
        DataFile(folder, name, tuple(sorted(parts)), whole=False)
        for (folder, name), parts in segments.items()
    )
    return *beside, *shards.values()


class PartCheck:
    """CRC32C of the parts of one file, computed from bytes that come in order."""

    def __init__(self, file: DataFile) -> None:
        self.file = file
        self._crcs = [0] * len(file.parts)

    def add(self, start: int, data: Buffer) -> None:
        """Adds the bytes of the file from `start` on."""
        view = memoryview(data).cast("B")
        for number, part in enumerate(self.file.parts):
            low, high = max(part.offset, start), min(part.offset + part.bytes, start + len(view))
            if low < high:
                self._crcs[number] = core.crc32c(view[low - start : high - start], self._crcs[number])

    def wrong(self) -> str:
        """Description of the first part whose checksum is not the manifest's; "" if all are right."""
        for found, part in zip(self._crcs, self.file.parts, strict=True):
            if found != part.crc32c:
                where = (
                    "its checksum"
                    if self.file.whole
                    else f"the checksum of bytes {part.offset} to {part.offset + part.bytes}"
                )
                return f"{where} is {found:#010x} where the manifest says {part.crc32c:#010x}"
        return ""


def read_manifest(objects: Objects, name: str = MANIFEST_NAME, within: float | None = None) -> Manifest:
    """Reads the manifest in an object below a URL. A damaged one is read again: `fastload.remote.failures`
    has the rule.

    Args:
        objects: the objects below the URL.
        name: name of the manifest's object.
        within: seconds of this call; None: the client's timeout.

    Raises:
        RemoteMissingError: there is none.
        RemoteError: the store does not return it.
        DatasetError: it stays damaged, or is of a later version.
    """
    found: list[Manifest | DatasetError] = []

    def holds(data: Buffer) -> bool:
        try:
            found[:] = [Manifest.from_bytes(bytes(data), objects.url, name)]
        except DatasetError as error:
            found[:] = [error]
        return isinstance(found[0], Manifest)

    check = BytesCheck(holds)
    objects.get(
        name,
        MANIFEST_BYTES,
        lambda data: check(data) if len(data) else Failure("again", "nothing came of the manifest"),
        within,
    )
    if isinstance(found[0], DatasetError):
        raise found[0]
    return found[0]


def find_manifest(objects: Objects) -> Manifest | None:
    """The manifest of the dataset at a URL; None if there is no dataset.

    Raises:
        DatasetError: it is damaged, of a later version, or names files that cannot be at a URL.
        RemoteError: the store does not return it.
    """
    try:
        manifest = read_manifest(objects)
    except RemoteMissingError:
        return None
    check_places(manifest, objects.url)
    return manifest


def check_places(manifest: Manifest, url: str) -> None:
    """Checks that all files of a dataset lie at its URL. Raises DatasetError."""
    if any(shard.base is not None for shard in manifest.shards) or any(
        file.folder is not None for file in data_files(manifest)
    ):
        raise DatasetError(
            f"{url} names files in other folders, which a dataset at a URL cannot have: upload it "
            "with `fastload push`"
        )


def load_manifest(objects: Objects, version: int | None = None) -> Manifest:
    """The manifest of the dataset at a URL.

    Args:
        objects: the objects below the URL.
        version: the version that the caller wants; an error unless it is the only one there.

    Raises:
        DatasetError: as `find_manifest`; there is no dataset; or it has another version.
        RemoteError: the store does not return it.
    """
    manifest = find_manifest(objects)
    if manifest is None:
        raise DatasetError(
            f"{objects.url} holds no packed dataset (no {MANIFEST_NAME}): check the URL, or send one "
            "there with `fastload push`"
        )
    if version is not None and version != manifest.version:
        raise DatasetError(
            f"{objects.url} has only version {manifest.version}: older versions are not pushed "
            "unless they are asked for"
        )
    return manifest


def missing(files: Iterable[DataFile], listed: Iterable[ObjectInfo]) -> Iterator[tuple[DataFile, str]]:
    """(file, description) of each file that a listing of objects lacks, or has in another size."""
    sizes = {info.name: info.size for info in listed}
    for file in files:
        size = sizes.get(file.name)
        if size is None:
            yield file, "there is no such object"
        elif not file.fits(size):
            yield file, f"{size:,} bytes where the manifest says {file.bytes:,}"


RANGE_BYTES = 4 << 20
"""Bytes of a request: large enough that its latency counts little, small enough that REQUESTS of them fit
into memory."""
REQUESTS = 8
"""Requests in flight: at most this many ranges, and the one in use, are in memory."""


def checked_ranges(
    objects: Objects, files: Sequence[DataFile]
) -> Generator[tuple[DataFile, int, Buffer, str | None]]:
    """Yields (file, offset, bytes, verdict) of consecutive ranges of each file, file after file.

    The verdict is None before a file's last range. At the last one it describes the wrong checksum; "" if all
    are right. A file with a wrong checksum is read again from its beginning, after the others, and its
    verdict is None until then, as NOTE [ failures: which are tried again ] says. Requests under way are
    cancelled when the caller closes the generator.

    Raises:
        RemoteError: a range cannot be read.
    """
    wrong, left = _WrongFiles(objects.timeout), files
    while left:
        check: PartCheck | None = None
        again: list[DataFile] = []
        with contextlib.closing(_requests(objects, left)) as requests:
            for file, start, request in requests:
                if check is None or start == 0:
                    check = PartCheck(file)
                data = request.result()
                check.add(start, data)
                verdict = check.wrong() if start + RANGE_BYTES >= file.bytes else None
                if verdict and wrong.again(file, verdict):
                    again.append(file)
                    verdict = None
                yield file, start, data, verdict
        left = again


class _WrongFiles:
    """Files whose checksums were wrong, and whether another try may help. `timeout`: seconds for the tries
    of one file."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._known: dict[
            str, tuple[float, str, int]
        ] = {}  # time of the first wrong checksum, the last one, and how often it came

    def again(self, file: DataFile, verdict: str) -> bool:
        """Returns True if a file is to be read again: not if the same wrong bytes came SAME_TIMES times,
        or its time is over."""
        now = time.monotonic()
        first, before, times = self._known.get(file.name, (now, "", 0))
        times = times + 1 if verdict == before else 1
        self._known[file.name] = first, verdict, times
        return times < SAME_TIMES and now - first < self._timeout


def _requests(objects: Objects, files: Iterable[DataFile]) -> Generator[tuple[DataFile, int, Future[Buffer]]]:
    pending: deque[tuple[DataFile, int, Future[Buffer]]] = deque()
    with fetch_loop.in_use() as loop:
        try:
            for file in files:
                for start in range(0, file.bytes, RANGE_BYTES):
                    stop = min(start + RANGE_BYTES, file.bytes)
                    pending.append((file, start, loop.submit(objects.fetch, file.name, start, stop)))
                    if len(pending) == REQUESTS:
                        yield pending[0]
                        pending.popleft()
            while pending:
                yield pending[0]
                pending.popleft()
        finally:
            for _, _, request in pending:
                request.cancel()


def download(
    objects: Objects, files: Sequence[DataFile], folder: Path, *, durable: bool = True
) -> Generator[tuple[DataFile, int, str | None]]:
    """Downloads files into a folder. Yields (file, bytes, verdict) of each range; `checked_ranges` describes
    the verdict.

    A file gets its name once all its checksums hold and, if `durable`, it is synced to the disk. Before that,
    its name ends with PART_END.

    Raises:
        OSError: a file cannot be written.
        RemoteError: a range cannot be read.
    """
    out: BinaryIO | None = None
    try:
        with contextlib.closing(checked_ranges(objects, files)) as ranges:
            for file, start, data, verdict in ranges:
                part = folder / (file.name + PART_END)
                if out is None or start == 0:
                    if out is not None:
                        out.close()  # its file is read again later
                    part.unlink(missing_ok=True)
                    out = open(part, "xb")
                out.write(data)
                if verdict is not None:
                    _end(out, part, folder / file.name, keep=not verdict, durable=durable)
                    out = None
                yield file, len(memoryview(data)), verdict
    finally:
        if out is not None:
            out.close()


def _end(out: BinaryIO, part: Path, path: Path, *, keep: bool, durable: bool) -> None:
    with out:
        out.flush()
        if durable and keep:
            os.fsync(out.fileno())
    if not keep:
        part.unlink()
        return
    os.replace(part, path)
    if durable:
        sync_folder(path.parent)
