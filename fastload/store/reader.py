"""Reading a packed dataset: manifest, columns and records, in any process. Pixels are the engine's business."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, ClosedError, DatasetError, SampleError
from fastload.store.manifest import Manifest, ShardEntry
from fastload.store.schema import CRC_COLUMN, Schema

T = TypeVar("T")

EAGER_BYTES = 64 << 20
"""Columns up to this size are compared with their checksums when the dataset is opened, larger ones on first use."""


class DatasetReader:
    """An open dataset.

    1. Any thread may read.
    2. Pickled, it is its path; after a fork the child opens its own on first use. Nothing is shared but the files.
    3. Arrays it hands out stay valid after `close`, and in a forked child.

    Attributes:
        path: the dataset's folder, absolute.
        manifest: its description.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the dataset in folder path.

        Raises:
            DatasetError: missing, unfinished, of a later version; a shard missing, of another size, or damaged; a
                column's checksum differs.
        """
        self.path = Path(path).absolute()
        self.manifest = Manifest.load(self.path)
        self._firsts = [shard.first for shard in self.manifest.shards]
        self._closed = False
        self._open()

    def _open(self) -> None:
        store = self._open_shards()
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, (dtype, shape) in self.schema.columns.items():
            if dtype.itemsize * int(np.prod(shape, dtype=np.int64)) * self.count <= EAGER_BYTES or name == CRC_COLUMN:
                columns[name] = self._read_column(store, name)
        for number, shard in enumerate(self.manifest.shards):
            # a copy: the column may be a view of the store itself, which would then keep itself alive for ever
            store.set_checksums(number, columns[CRC_COLUMN][shard.first : shard.first + shard.count].copy())
        self._store, self._columns, self._pid = store, columns, os.getpid()

    def _open_shards(self) -> core.Store:
        """Opens every file; goes on with the manifest of now where shards were replaced (NOTE [ rewrite: what is durable when ])."""
        while True:
            store = core.Store()
            try:
                for shard in self.manifest.shards:
                    store.add(os.fspath(self.path / shard.file), shard.first, shard.count, shard.bytes)
            except DatasetError as error:
                now = Manifest.load(self.path)
                if now.shards == self.manifest.shards or not now.same_samples(self.manifest):
                    raise DatasetError(f"{self.path}: {error}") from None
                self.manifest = now
            else:
                return store

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetReader, (self.path,)

    def __enter__(self) -> DatasetReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"DatasetReader({os.fspath(self.path)!r}, {self.count} samples)"

    @property
    def schema(self) -> Schema:
        """The fields of every sample."""
        return self.manifest.schema

    @property
    def count(self) -> int:
        """The number of samples."""
        return self._firsts[-1] + self.manifest.shards[-1].count if self._firsts else 0

    @property
    def store(self) -> core.Store:
        """The native store of this process, record checksums set.

        Raises:
            ClosedError: after `close`.
            DatasetError: reopening in a forked child fails.
        """
        if self._closed:
            raise ClosedError(f"{self.path} was closed: open it again")
        if self._pid != os.getpid():
            self._open()
        return self._store

    def close(self) -> None:
        """Ends reading; may be called again. Files are let go when the last array, or engine, that uses them is."""
        if not self._closed:
            self._closed = True
            self._columns = {}
            self._store.close()
            del self._store

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a fixed-size field, or of a hidden column, as a read-only array (count, *shape).

        Not copied where one shard holds it all, otherwise copied once and kept.

        Raises:
            ArgumentError: no such column.
            DatasetError: its bytes are not those that were packed.
        """
        store = self.store
        if name not in self._columns:
            if name not in self.schema.columns:
                raise ArgumentError(f"{self.path} has no column {name!r}; it has {', '.join(self.schema.columns)}")
            self._columns[name] = self._read_column(store, name)
        return self._columns[name]

    def _read_column(self, store: core.Store, name: str) -> npt.NDArray[Any]:
        dtype, shape = self.schema.columns[name]
        chunks = [self._read_chunk(store, name, number, dtype, shape) for number in range(len(self.manifest.shards))]
        out: npt.NDArray[Any] = chunks[0] if len(chunks) == 1 else np.concatenate([np.empty((0, *shape), dtype), *chunks])
        if not out.flags.aligned:  # a small chunk lies within a tree page, at any even offset
            out = out.copy()
        out.setflags(write=False)
        return out

    def chunk(self, number: int, name: str) -> npt.NDArray[Any]:
        """The rows of column name in shard number, read-only and not copied (nor always aligned). Raises DatasetError as `column` does."""
        dtype, shape = self.schema.columns[name]
        return self._read_chunk(self.store, name, number, dtype, shape)

    def _read_chunk(self, store: core.Store, name: str, number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        shard = self.manifest.shards[number]
        try:
            chunk = np.frombuffer(memoryview(store.column(number, name)), dtype=np.uint8)
        except DatasetError as error:
            raise DatasetError(f"{self.path}: {error}") from None
        expected = shard.count * dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if chunk.size != expected or core.crc32c(chunk) != shard.columns[name]:
            raise DatasetError(
                f"{self.path}: column {name} in {shard.file} is damaged (its bytes are not those that were packed): "
                "copy the shard again or pack again; `fastload verify` checks the rest"
            )
        rows: npt.NDArray[Any] = chunk.view(dtype).reshape(shard.count, *shape)
        return rows

    def shard_entry(self, index: int) -> ShardEntry:
        """The shard that holds sample index. Raises IndexError."""
        if not 0 <= index < self.count:
            raise IndexError(f"index {index} is out of range for {self.count} samples")
        return self.manifest.shards[bisect_right(self._firsts, index) - 1]

    def shard_of(self, index: int) -> str:
        """The file that holds sample index. Raises IndexError."""
        return self.shard_entry(index).file

    def record(self, index: int) -> bytes:
        """The stored record of sample index, its checksum verified. Raises as `record_fields` does."""
        return self._sample(index, self.store.get)

    def record_fields(self, index: int) -> list[tuple[int, int, bytes]]:
        """The fields in sample index's record: (field number, kind as in `core.KIND_...`, bytes). The entropy
        index of an image, of kind `core.KIND_INDEX`, has the image's number plus `core.RECORD_INDEX`.

        Raises:
            IndexError: no such sample.
            SampleError: its bytes are not those that were packed, or its lengths do not hold.
        """
        return self._sample(index, self.store.fields)

    def _sample(self, index: int, read: Callable[[int], T]) -> T:
        file = self.shard_of(index)
        try:
            return read(index)
        except SampleError as error:
            raise SampleError(
                f"sample {index} of {self.path} ({file}): {error.reason}. `fastload verify {self.path}` lists every bad one",
                index=index,
                shard=file,
                reason=error.reason,
            ) from None
