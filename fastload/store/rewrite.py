"""DatasetRewriter: replaces records of a finished dataset, so that a kill at any point leaves the dataset
whole.

NOTE [ rewrite: what is durable when ]
1. A shard with replaced records is a new file, under an unused name; the old file is not changed.
2. manifest.json is replaced by one that names the new file in the place of the old one, once the file and its
   name are on the disk. That rename is the commit: before it the dataset is the old one, after it the new
   one. A manifest names all shards, so of more than `COMMITS` shards several are committed at once, one part
   in `COMMITS` of all: a kill loses no larger part of the work, and a rewrite that stops by itself none.
3. The old file is removed after that, unless an older version of the dataset names it. A process that has it
   open keeps it (as deleted files are kept; of very many shards not all stay open: NOTE [ store: open files
   ]); one that opens the dataset later, a forked child too, reads the new manifest.
4. A file with a shard's name that no manifest names was left over by a kill. The next writer removes it,
   under the lock that admits one writer.
5. The sidecar is made anew at the end, and synced before the manifest names it. Until then, a shard that was
   rewritten is in none.
A rewrite is no new version: the samples are the same. All samples that a shard stores are kept, those that do
not count too, so that rows and added values of its entry stay right.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fastload.errors import ArgumentError, DatasetError, FastloadError, PackError
from fastload.store.change import LockedDataset, numbered
from fastload.store.entries import ShardEntry, checked_base, one_base, resolved_base
from fastload.store.manifest import Manifest, sync_folder
from fastload.store.reader import DatasetReader
from fastload.store.schema import CRC_COLUMN, Schema
from fastload.store.shard import ShardFile, durable_entry, write_error
from fastload.store.sidecar import check_file, write_sidecar

COMMITS = 256
"""Commits of a rewrite of all shards, where there are more of them."""


class DatasetRewriter(LockedDataset):
    """Replaces records of a finished dataset. The columns and the order of samples do not change.

    1. One shard is rewritten at a time, by ``with rewriter.shard(number) as shard``, and committed by itself.
    2. Then `describe` replaces the options and the summary in the manifest.
    """

    def __init__(self, path: str | os.PathLike[str], go_on: str) -> None:
        """Locks the dataset in the folder `path`. See `LockedDataset`."""
        self._reader: DatasetReader | None = None
        self._rewritten: dict[int, ShardEntry] = {}  # shards on the disk that the manifest does not name yet
        self._names: Iterator[str] = iter(())
        super().__init__(path, go_on)
        if self.manifest.is_foreign:
            self.close()
            raise DatasetError(
                f"{self.path} holds no records: its images lie in a store. `fastload convert` makes a "
                "dataset that stores them"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_reader()
        with suppress(*((OSError, FastloadError) if error is not None else ())):
            self.flush()
        if error is not None:
            # A rewrite may have been stopped at any point: the manifest on the disk tells which file counts.
            with suppress(OSError, FastloadError):
                sync_folder(self.path)
                self.manifest = Manifest.load(self.path)
                self.remove_leftovers()
        self.close()

    def close(self) -> None:
        """Closes the files and releases the lock; idempotent."""
        self._close_reader()
        super().close()

    @property
    def reader(self) -> DatasetReader:
        """A reader of all samples that the shards store, those that do not count too. The next commit closes
        it.

        Raises DatasetError as `DatasetReader` does.
        """
        if self._reader is None:
            self._reader = DatasetReader(self.path, manifest=whole(self.manifest))
        return self._reader

    def shard(self, number: int) -> ShardRewrite:
        """The ShardRewrite that replaces records of one shard. Raises as `reader` does."""
        return ShardRewrite(self, number)

    def describe(self, options: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Replaces the options and the summary in the manifest.

        Raises:
            PackError: the disk is full or fails.
        """
        self.flush()
        manifest = replace(self.manifest, options=dict(options), summary=dict(summary))
        if manifest != self.manifest:
            self.put_manifest(manifest)

    def renew_sidecar(self) -> None:
        """Has one sidecar say where everything lies in all shards, as they say themselves. Does nothing where
        it is so already.

        Raises:
            DatasetError: a shard is missing or damaged.
            PackError: the disk is full or fails.
        """
        self.flush()
        old = self.manifest.sidecars
        path = self.path / self.unused_name("index")
        try:
            new = write_sidecar(self.path, path.name, self.manifest.shards)
        except DatasetError:
            raise
        except OSError as error:
            raise write_error(path, 0, error, self.go_on) from None
        if len(old) == 1 and (old[0].bytes, old[0].crc32c, old[0].directory) == (
            new.bytes,
            new.crc32c,
            new.directory,
        ):
            with suppress(DatasetError):
                check_file(self.path, old[0])
                self.remove([new.file])
                return
        self.put_manifest(replace(self.manifest, sidecars=(new,)))
        self.remove(self.unnamed([sidecar.file for sidecar in old if sidecar.folder is None]))

    def rebase(self, base: str) -> None:
        """Names another folder for the attached files: absolute, or relative to the dataset's. It need not be
        there yet.

        Raises:
            ArgumentError: `base` is no path, or that of a file.
            DatasetError: there are no attached files, or they lie in several folders.
            PackError: the disk is full or fails.
        """
        one_base(self.path, self.manifest.shards)
        found = resolved_base(self.path, checked_base(base))
        if os.path.exists(found) and not os.path.isdir(found):
            raise ArgumentError(f"base={base!r}: {found} is no folder; name the folder of the attached files")
        shards = [
            shard if shard.base is None else replace(shard, base=base if shard.folder is None else found)
            for shard in self.manifest.shards
        ]
        self.put_manifest(replace(self.manifest, shards=tuple(shards)))

    def shard_path(self) -> Path:
        """The path of a new shard, which no file has."""
        name = next(self._names, None)
        if name is None or os.path.lexists(self.path / name):
            self._names = self.unused_names("shard")
            name = next(self._names)
        return self.path / name

    def commit(self, number: int, entry: ShardEntry) -> None:
        """Replaces shard `number` by one whose file is on the disk, now or with others; called by
        ShardRewrite. See the NOTE above.

        Raises:
            PackError: the disk is full or fails.
        """
        self._rewritten[number] = entry
        if len(self._rewritten) >= len(self.manifest.shards) / COMMITS:
            self.flush()

    def flush(self) -> None:
        """Commits the shards that the manifest does not name yet.

        Raises:
            PackError: the disk is full or fails.
        """
        if not self._rewritten:
            return
        shards = list(self.manifest.shards)
        old = [shards[number].file for number in self._rewritten]
        for number, entry in self._rewritten.items():
            shards[number] = entry
        self._rewritten.clear()
        self._close_reader()  # its open files would keep the space of the removed ones
        self.put_manifest(replace(self.manifest, shards=tuple(shards)))
        self.remove(self.unnamed(old))

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def whole(manifest: Manifest) -> Manifest:
    """The dataset of all samples that a manifest's shards store, those that do not count too, as the shards
    say themselves: without sidecars. A dataset none of whose samples were dropped is otherwise the same."""
    return replace(
        manifest,
        sidecars=(),
        shards=numbered(replace(shard, count=shard.stored, rows=None) for shard in manifest.shards),
    )


class ShardRewrite:
    """Rewrite of one shard, in which records are replaced.

    1. Call `replace` in the order of indices, from one thread; the records between are copied.
    2. `commit` ends the rewrite. Without it, leaving the ``with`` block drops what was written, and the
       dataset is unchanged.
    3. Nothing is written before the first `replace`.
    """

    def __init__(self, owner: DatasetRewriter, number: int) -> None:
        """See `DatasetRewriter.shard`."""
        self._owner = owner
        self._number = number
        self._entry = owner.reader.manifest.shards[number]
        self._next = self._entry.first
        self._file: ShardFile | None = None
        self._crcs = owner.reader.chunk(number, CRC_COLUMN)
        self._schema = self._packed_schema()

    @property
    def samples(self) -> range:
        """The indices of the shard's samples in `DatasetRewriter.reader`."""
        return range(self._entry.first, self._entry.first + self._entry.count)

    def _packed_schema(self) -> Schema:
        """The fields that the file was packed with: those of the dataset but for added ones."""
        entry, schema = self._entry, self._owner.manifest.schema
        return Schema(
            tuple(
                field
                for field in schema
                if field.name in entry.packed_fields(schema) and field.name not in entry.added
            )
        )

    def _check_writable(self) -> None:
        entry, path = self._entry, self._owner.path
        if entry.folder is not None:
            raise PackError(
                f"{entry.file} of {path} lies in {entry.folder}, another dataset's folder: run this "
                "on that dataset"
            )
        lost = sorted(set(entry.columns) - set(self._schema.columns))
        if lost:
            raise PackError(
                f"{entry.file} of {path} holds the field {lost[0]}, which was taken away, and cannot "
                "be written anew without it: "
                "run this on a dataset that was packed anew"
            )

    def __enter__(self) -> ShardRewrite:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        columns = file.close(
            {name: reader.chunk(self._number, name) for name in self._schema.columns if name != CRC_COLUMN}
        )
        try:
            new = replace(durable_entry(file.path, file.first, file.count, columns), base=entry.base)
        except OSError as error:
            raise write_error(file.path, 0, error, self._owner.go_on) from None
        self._file = None  # from here on the manifest on the disk tells which of the two files counts
        kept = self._owner.manifest.shards[self._number]
        changed = replace(
            kept, file=new.file, bytes=new.bytes, crc32c=new.crc32c, columns=new.columns, key=new.key
        )
        self._owner.commit(self._number, changed)
        return True

    def _copy(self, end: int) -> ShardFile:
        """Copies the records before that of sample `end`, unchanged."""
        if self._file is None:
            self._check_writable()
            path = self._owner.shard_path()
            room = self._entry.bytes + self._entry.bytes // 32 + (1 << 24)
            self._file = ShardFile(path, self._entry.first, self._schema, room, self._owner.go_on)
        reader = self._owner.reader
        for index in range(self._next, end):
            self._file.put_record(reader.record(index), int(self._crcs[index - self._entry.first]))
        self._next = end
        return self._file
