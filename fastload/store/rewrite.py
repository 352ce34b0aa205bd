"""Replacing records of a finished dataset, so that a kill at any point leaves it whole.

NOTE [ rewrite: what is durable when ]
1. A shard with other records is a new file, under a name that nothing in the folder has; the old file is not touched.
2. manifest.json is replaced by one that names the new file in the old one's place, after the file and its name are on the
   disk. That rename is the commit: before it the dataset is the old one, after it the new one.
3. The old file goes after that. Whoever has it open keeps it (as deleted files are kept); whoever opens the dataset later,
   a forked child too, goes by the new manifest.
4. A file that is named as shards are and that the manifest does not name is what a kill left over. The next rewriter
   removes it, under the lock that keeps writers apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from fastload.errors import ArgumentError, FastloadError, PackError
from fastload.files import expanded
from fastload.store.lock import lock_folder
from fastload.store.manifest import MANIFEST_NAME, SHARD_NAME, Manifest, ShardEntry, sync_folder
from fastload.store.reader import DatasetReader
from fastload.store.schema import CRC_COLUMN
from fastload.store.shard import ShardFile, durable_entry, write_error

_NUMBERS = 10**9
"""Shards' names have up to nine digits."""


class DatasetRewriter:
    """Replaces records of a finished dataset; columns and the order of samples stay.

    1. One shard at a time: ``with rewriter.shard(number) as shard``, each committed by itself.
    2. Then `describe`, which replaces what the manifest says of options and counts.
    3. One writer per folder at a time, held by a lock that ends with the process.

    Attributes:
        path: the dataset's folder.
        go_on: how messages about a failed write end.
        manifest: the dataset as it is on the disk now.
    """

    def __init__(self, path: str | os.PathLike[str], go_on: str) -> None:
        """Locks the dataset in folder path and removes what a kill left over there.

        Raises:
            DatasetError: there is no finished dataset, or its manifest does not hold.
            PackError: another process writes there, or the folder cannot be written to.
        """
        self.path = Path(expanded(path))
        self.go_on = go_on
        self._reader: DatasetReader | None = None
        Manifest.load(self.path)  # says what is wrong with a path better than a lock on it could
        try:
            self._lock = lock_folder(self.path)
        except OSError as error:
            raise PackError(f"cannot lock the folder {self.path}: {error.strerror}") from None
        try:
            self.manifest = Manifest.load(self.path)
            self._remove_leftovers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DatasetRewriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close_reader()
        if error is not None:
            # What was under way may have been stopped between any two steps: the manifest on the disk tells which file counts.
            with suppress(OSError, FastloadError):
                sync_folder(self.path)
                self.manifest = Manifest.load(self.path)
                self._remove_leftovers()
        self.close()

    def close(self) -> None:
        """Lets go of files and lock; may be called again."""
        self._close_reader()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def reader(self) -> DatasetReader:
        """The dataset as it is now; until the next commit, which closes it. Raises DatasetError as `DatasetReader` does."""
        if self._reader is None:
            self._reader = DatasetReader(self.path)
        return self._reader

    def shard(self, number: int) -> ShardRewrite:
        """A shard whose records are to be replaced. Raises as `reader` does."""
        return ShardRewrite(self, number)

    def describe(self, options: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Replaces what the manifest says of options and summary.

        Raises:
            PackError: the disk is full or fails.
        """
        manifest = replace(self.manifest, options=dict(options), summary=dict(summary))
        if manifest != self.manifest:
            self._put_manifest(manifest)

    def unused_name(self) -> str:
        """A shard's name that nothing in the folder has: after all others, so that no name soon means another file."""
        names = {*os.listdir(self.path), *(shard.file for shard in self.manifest.shards)}
        used = {int(name.removeprefix("shard-").removesuffix(".lmdb")) for name in names if SHARD_NAME.fullmatch(name)}
        number = max(used) + 1
        if number >= _NUMBERS:
            number = next(number for number in count() if number not in used)
        return f"shard-{number:05d}.lmdb"

    def commit(self, number: int, entry: ShardEntry) -> None:
        """Puts a shard, whose file is on the disk, in the place of shard number; for ShardRewrite. See the NOTE above.

        Raises:
            PackError: the disk is full or fails.
        """
        shards = list(self.manifest.shards)
        old, shards[number] = shards[number], entry
        self._close_reader()  # its maps would keep the space of the file that goes
        self._put_manifest(replace(self.manifest, shards=tuple(shards)))
        try:
            (self.path / old.file).unlink()
        except OSError as error:
            raise PackError(f"cannot remove {self.path / old.file}, which is no longer needed: {error.strerror}") from None

    def _put_manifest(self, manifest: Manifest) -> None:
        try:
            sync_folder(self.path)  # the names of shards before the manifest that says them
            manifest.write(self.path)
        except OSError as error:
            raise write_error(self.path / MANIFEST_NAME, len(manifest.to_bytes()), error, self.go_on) from None
        self.manifest = manifest

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _remove_leftovers(self) -> None:
        named = {shard.file for shard in self.manifest.shards}
        with os.scandir(self.path) as entries:
            found = [e.name for e in entries if SHARD_NAME.fullmatch(e.name) and not e.is_dir(follow_symlinks=False)]
        for name in (*found, MANIFEST_NAME + ".tmp"):
            if name not in named:
                try:
                    (self.path / name).unlink(missing_ok=True)
                except OSError as error:
                    raise PackError(f"cannot remove {self.path / name}, left over by a kill: {error.strerror}") from None


class ShardRewrite:
    """One shard of a dataset in which records are replaced.

    1. `replace` in order of index, from one thread; records between those are copied.
    2. `commit` ends it. Without one, leaving the ``with`` block drops what was written; the dataset is as it was.
    3. Nothing is written before the first `replace`.
    """

    def __init__(self, owner: DatasetRewriter, number: int) -> None:
        """See `DatasetRewriter.shard`."""
        self._owner = owner
        self._number = number
        self._entry = owner.manifest.shards[number]
        self._next = self._entry.first
        self._file: ShardFile | None = None
        first, last = self._entry.first, self._entry.first + self._entry.count
        self._crcs = owner.reader.column(CRC_COLUMN)[first:last]

    def __enter__(self) -> ShardRewrite:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.abort()
            with suppress(OSError):  # the next rewriter removes it
                file.path.unlink(missing_ok=True)

    def replace(self, index: int, record: bytes, crc: int) -> None:
        """Gives sample index another record, of CRC32C crc.

        Raises:
            ArgumentError: index is not in this shard, or not after the last.
            SampleError: a record before it is not what was packed.
            PackError: the disk is full or fails.
        """
        if not self._next <= index < self._entry.first + self._entry.count:
            raise ArgumentError(f"sample {index} is not among those left of {self._entry.file}")
        file = self._copy(index)
        file.put_record(record, crc)
        self._next = index + 1

    def commit(self) -> bool:
        """Puts the shard with its new records in the place of the old one; False when nothing was replaced.

        Raises:
            SampleError, DatasetError: what has to be copied is not what was packed.
            PackError: the disk is full or fails.
        """
        if self._file is None:
            return False
        entry, reader = self._entry, self._owner.reader
        file = self._copy(entry.first + entry.count)
        columns = file.close({name: reader.chunk(self._number, name) for name in reader.schema.columns if name != CRC_COLUMN})
        try:
            new = durable_entry(file.path, file.first, file.count, columns)
        except OSError as error:
            raise write_error(file.path, 0, error, self._owner.go_on) from None
        self._file = None  # from here on only the manifest on the disk tells which of the two files counts
        self._owner.commit(self._number, new)
        return True

    def _copy(self, end: int) -> ShardFile:
        """Copies records as they are up to that of sample end."""
        if self._file is None:
            path = self._owner.path / self._owner.unused_name()
            room = self._entry.bytes + self._entry.bytes // 32 + (1 << 24)
            self._file = ShardFile(path, self._entry.first, self._owner.manifest.schema, room, self._owner.go_on)
        reader = self._owner.reader
        for index in range(self._next, end):
            self._file.put_record(reader.record(index), int(self._crcs[index - self._entry.first]))
        self._next = end
        return self._file
