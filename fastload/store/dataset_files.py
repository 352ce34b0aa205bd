"""DatasetFiles: the files of a packed dataset, as its reader asks for them. Here in a folder; `fastload.remote` has them in a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.errors import DatasetError
from fastload.store.entries import Segment, ShardEntry, base_path, file_path, one_base
from fastload.store.manifest import Manifest
from fastload.store.segments import damaged_column, read_segment
from fastload.store.sidecar import Sidecars, useful


class DatasetFiles:
    """The files of one dataset.

    1. What it says of a file is as hostile as the file: the reader checks all of it.
    2. Any thread may ask. After a fork the child asks the same object.
    3. Where `remote`, a shard's file may lack records and columns: `record` and `fetch_columns` come before they are read.

    Args:
        folder: the dataset's.
        base: where its attached files are, if that is not where it says.

    Attributes:
        name: the dataset's, for messages.
        remote: whether a shard's file may lack what is in it.
    """

    remote = False

    def __init__(self, folder: Path, base: Path | None = None) -> None:
        self.name: Path | str = folder
        self._folder = folder
        self._base = base

    def __reduce__(self) -> tuple[object, ...]:
        return DatasetFiles, (self._folder, self._base)

    def manifest(self, version: int | None = None) -> Manifest:
        """The dataset's manifest, as it is now or of an older version. Raises DatasetError as Manifest.load does."""
        return Manifest.load(self._folder, version)

    def check(self, manifest: Manifest) -> None:
        """Checks that a base that was given belongs to such a dataset. Raises DatasetError."""
        if self._base is None:
            return
        one_base(self._folder, manifest.shards)  # raises where there is nothing to be replaced
        if not os.path.isdir(self._base):
            raise DatasetError(f"base={os.fspath(self._base)!r} is no folder: name the one that holds the attached files of {self._folder}")

    def open_shards(self, manifest: Manifest) -> Sidecars:
        """Makes a manifest's shards ready to be opened, and returns what sidecars say of them."""
        return Sidecars(self.segment, useful(manifest.shards, manifest.sidecars))

    def shard_path(self, shard: ShardEntry) -> Path:
        """The path of a shard's file on this machine."""
        return file_path(self._folder, shard.folder, shard.file)

    def base_path(self, shard: ShardEntry) -> str | None:
        """The folder of a shard's attached files; None: it holds its images."""
        base = base_path(self._folder, shard)
        return base if base is None or self._base is None else os.fspath(self._base)

    def segment(self, segment: Segment, into: memoryview | None = None) -> npt.NDArray[np.uint8]:
        """The bytes of a segment, checked. Raises DatasetError as `fastload.store.segments.read_segment` does."""
        return read_segment(self._folder, segment, into)

    def fetch_columns(self, shards: Iterable[int], name: str, heal: bool = False) -> dict[int, Buffer]:
        """The chunks of a column that the shards' files lack, checked, by shard; `heal`: those that are damaged there, where there are
        others. Raises RemoteError, DatasetError."""
        return {}

    def record(self, index: int) -> Buffer | None:
        """The record of a sample that its shard's file lacks, checked; None: it is there. Raises RemoteError, SampleError."""
        return None

    @contextmanager
    def held(self, indices: Sequence[int]) -> Iterator[None]:
        """Fetches records together, before they are read one by one in the block. Raises RemoteError."""
        yield

    def heal(self, index: int) -> Buffer | None:
        """The record of a sample that was found damaged in the shard's file, from elsewhere, checked; None: there is no other.

        Raises RemoteError, SampleError.
        """
        return None

    def close(self) -> None:
        """Lets go of what is open; idempotent."""


def read_chunk(
    files: DatasetFiles, store: core.Store, number: int, shard: ShardEntry, name: str, into: memoryview, known: Buffer | None
) -> None:
    """Reads and checks a column's rows of all samples that a shard stores.

    Args:
        files: of the dataset.
        store: with the shard opened.
        number: the shard's.
        shard: its entry.
        name: the column's.
        into: a writable buffer of exactly their size.
        known: the rows, where they were read and checked before.

    Raises:
        DatasetError: they are not those that were packed.
        RemoteError: they cannot be fetched.
    """
    if name in shard.added:
        files.segment(shard.added[name], into)
        return
    if known is not None and memoryview(known).nbytes == len(into):
        into[:] = memoryview(known).cast("B")
        return
    try:
        store.column(number, name, into)
        if core.crc32c(into) == shard.columns[name]:
            return
    except DatasetError:
        if not files.remote:
            raise
    healed = files.fetch_columns([number], name, heal=True).get(number)
    if healed is None or memoryview(healed).nbytes != len(into):
        raise damaged_column(name, shard.file)
    into[:] = memoryview(healed).cast("B")
