"""DatasetRewriter: replaces records of a finished dataset, so that a kill at any point leaves the dataset whole.

NOTE [ rewrite: what is durable when ]
1. A shard with replaced records is a new file, under an unused name; the old file is not changed.
2. manifest.json is replaced by one that names the new file in the place of the old one, once the file and its name are on
   the disk. That rename is the commit: before it the dataset is the old one, after it the new one.
3. The old file is removed after that. A process that has it open keeps it (as deleted files are kept); one that opens the
   dataset later, a forked child too, reads the new manifest.
4. A file with a shard's name that the manifest does not name was left over by a kill. The next rewriter removes it, under
   the lock that admits one writer.
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
from fastload.store.entries import SHARD_NAME, ShardEntry
from fastload.store.lock import lock_folder
from fastload.store.manifest import MANIFEST_NAME, Manifest, sync_folder
from fastload.store.reader import DatasetReader
from fastload.store.schema import CRC_COLUMN
from fastload.store.shard import ShardFile, durable_entry, write_error

_NUMBERS = 10**9
"""Limit on shard numbers: the names have up to nine digits."""


class DatasetRewriter:
    """Replaces records of a finished dataset. The columns and the order of samples do not change.

    1. One shard is rewritten at a time, by ``with rewriter.shard(number) as shard``, and committed by itself.
    2. Then `describe` replaces the options and the summary in the manifest.
    3. A lock, which ends with the process, admits one writer per folder at a time.

    Attributes:
        path: the dataset's folder.
        go_on: the last words of messages about a failed write: how to go on.
        manifest: the manifest that is on the disk now.
    """

    def __init__(self, path: str | os.PathLike[str], go_on: str) -> None:
        """Locks the dataset in the folder `path`, and removes files left over by a kill.

        Raises:
            DatasetError: there is no finished dataset, or its manifest is invalid.
            PackError: another process is writing there, or the folder is not writable.
        """
        self.path = Path(expanded(path))
        self.go_on = go_on
        self._reader: DatasetReader | None = None
        Manifest.load(self.path)  # before the lock: its errors say more about a wrong path
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
            # A rewrite may have been stopped at any point: the manifest on the disk tells which file counts.
            with suppress(OSError, FastloadError):
                sync_folder(self.path)
                self.manifest = Manifest.load(self.path)
                self._remove_leftovers()
        self.close()

    def close(self) -> None:
        """Closes the files and releases the lock; idempotent."""
        self._close_reader()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def reader(self) -> DatasetReader:
        """A reader of the dataset as it is now. The next commit closes it. Raises DatasetError as `DatasetReader` does."""
        if self._reader is None:
            self._reader = DatasetReader(self.path)
        return self._reader

    def shard(self, number: int) -> ShardRewrite:
        """The ShardRewrite that replaces records of one shard. Raises as `reader` does."""
        return ShardRewrite(self, number)

    def describe(self, options: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Replaces the options and the summary in the manifest.

        Raises:
            PackError: the disk is full or fails.
        """
        manifest = replace(self.manifest, options=dict(options), summary=dict(summary))
        if manifest != self.manifest:
            self._put_manifest(manifest)

    def unused_name(self) -> str:
        """An unused name for a shard. It comes after all others, so that a name is not soon used again for another file."""
        names = {*os.listdir(self.path), *(shard.file for shard in self.manifest.shards)}
        used = {int(name.removeprefix("shard-").removesuffix(".lmdb")) for name in names if SHARD_NAME.fullmatch(name)}
        number = max(used) + 1
        if number >= _NUMBERS:
            number = next(number for number in count() if number not in used)
        return f"shard-{number:05d}.lmdb"

    def commit(self, number: int, entry: ShardEntry) -> None:
        """Replaces shard `number` by one whose file is on the disk; called by ShardRewrite. See the NOTE above.

        Raises:
            PackError: the disk is full or fails.
        """
        shards = list(self.manifest.shards)
        old, shards[number] = shards[number], entry
        self._close_reader()  # its open files would keep the space of the removed file
        self._put_manifest(replace(self.manifest, shards=tuple(shards)))
        try:
            (self.path / old.file).unlink()
        except OSError as error:
            raise PackError(f"cannot remove {self.path / old.file}, which is no longer needed: {error.strerror}") from None

    def _put_manifest(self, manifest: Manifest) -> None:
        try:
            sync_folder(self.path)  # the shards' names have to be durable before the manifest that names them
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
    """Rewrite of one shard, in which records are replaced.

    1. Call `replace` in the order of indices, from one thread; the records between are copied.
    2. `commit` ends the rewrite. Without it, leaving the ``with`` block drops what was written, and the dataset is unchanged.
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
        """Replaces the record of sample `index` by `record`, whose CRC32C is `crc`.

        Raises:
            ArgumentError: `index` is not in this shard, or not after the last one replaced.
            SampleError: a record to be copied is not what was packed.
            PackError: the disk is full or fails.
        """
        if not self._next <= index < self._entry.first + self._entry.count:
            raise ArgumentError(f"sample {index} is not among those left of {self._entry.file}")
        file = self._copy(index)
        file.put_record(record, crc)
        self._next = index + 1

    def commit(self) -> bool:
        """Replaces the old shard by the one with the new records. Returns False if nothing was replaced.

        Raises:
            SampleError, DatasetError: a record or column to be copied is not what was packed.
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
        self._file = None  # from here on the manifest on the disk tells which of the two files counts
        self._owner.commit(self._number, new)
        return True

    def _copy(self, end: int) -> ShardFile:
        """Copies the records before that of sample `end`, unchanged."""
        if self._file is None:
            path = self._owner.path / self._owner.unused_name()
            room = self._entry.bytes + self._entry.bytes // 32 + (1 << 24)
            self._file = ShardFile(path, self._entry.first, self._owner.manifest.schema, room, self._owner.go_on)
        reader = self._owner.reader
        for index in range(self._next, end):
            self._file.put_record(reader.record(index), int(self._crcs[index - self._entry.first]))
        self._next = end
        return self._file
