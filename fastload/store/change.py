"""DatasetChange: makes the next version of a dataset, so that a kill at any point leaves the old version or
the new one.

NOTE [ change: what is durable when ]
1. New files get unused names; no file that a version names is changed. They are synced, and then the folder.
2. The manifest of the version until now is copied to its own name, manifest-00001.json and so on, and synced.
3. manifest.json is replaced by the new version's, by rename. That is the commit. Version n is what
   manifest.json describes if that is its number, else what the manifest of that name describes.
4. Files that no manifest names, and manifests of versions that never came, were left over by a kill. The next
   writer removes them, under the lock that admits one writer.
Old versions, and files that only they name, stay until they are pruned: a reader that has one open, a forked
child or a spawned worker too, goes on with it.

`LockedDataset` is a finished dataset that one process may change, with the names and files in its folder.

Only files in the dataset's own folder are ever removed, and only those with names of fastload's patterns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from fastload._native import core
from fastload.common.files import read_regular
from fastload.errors import DatasetError, PackError
from fastload.store.entries import SHARD_NAME, SIDE_NAME, Segment, ShardEntry, file_number, file_path
from fastload.store.manifest import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    VERSION_LIMIT,
    VERSION_NAME,
    Manifest,
    dataset_folder,
    old_versions,
    sync_folder,
    version_name,
    write_atomically,
)
from fastload.store.progress import HoldsLock, lock_folder
from fastload.store.shard import write_error
from fastload.store.sidecar import SIDECARS_MOST, open_sidecars, write_sidecar

PartKind = Literal["shard", "rows", "values", "index"]
_NUMBERS = 10**9
"""Limit on numbers in names of files: they have up to nine digits."""


class LockedDataset(HoldsLock):
    """A finished dataset, locked so that it has one writer at a time. The lock ends with the process, however
    that ends.

    Attributes:
        path: the dataset's folder.
        go_on: the last words of messages about a failed write: how to go on.
        manifest: the manifest that is on the disk now.
    """

    def __init__(self, path: str | os.PathLike[str], go_on: str, *, tidy: bool = True) -> None:
        """Locks the dataset in the folder `path`, and removes files left over by a kill; with tidy=False it
        removes nothing.

        Raises:
            DatasetError: there is no finished dataset, or its manifest, or that of an older version, is
                invalid.
            PackError: another process is writing there, or the folder is not writable.
        """
        self.path = dataset_folder(path)
        self.go_on = go_on
        self._older: set[str] | None = None
        Manifest.load(self.path)  # before the lock: its errors say more about a wrong path
        try:
            self._lock = lock_folder(self.path)
        except OSError as error:
            raise PackError(f"cannot lock the folder {self.path}: {error.strerror}") from None
        try:
            self.manifest = Manifest.load(self.path)
            if tidy:
                self.remove_leftovers()
        except BaseException:
            self.close()
            raise

    def unused_name(self, kind: PartKind) -> str:
        """An unused name for a file. It comes after all others, so that a name is not soon used again for
        another file."""
        return next(self.unused_names(kind))

    def unused_names(self, kind: PartKind) -> Iterator[str]:
        """Unused names for files, as `unused_name` gives them, all different. The folder is listed once."""
        start, end = f"{kind}-", ".lmdb" if kind == "shard" else ".bin"
        names = {*os.listdir(self.path), *self._named([self.manifest])}
        ours = (name for name in names if is_data_file(name) and name.startswith(start))
        used = {file_number(name) for name in ours}
        after = range(max(used, default=-1) + 1, _NUMBERS)
        for number in chain(after, (number for number in count() if number not in used)):
            yield f"{start}{number:05d}{end}"

    def put_manifest(self, manifest: Manifest) -> None:
        """Replaces the manifest by one whose files are on the disk: the commit of a change.

        Raises:
            PackError: the disk is full or fails.
        """
        data = manifest.to_bytes()
        try:
            sync_folder(self.path)  # the files' names have to be durable before the manifest that names them
            write_atomically(self.path / MANIFEST_NAME, data)
        except OSError as error:
            raise write_error(self.path / MANIFEST_NAME, len(data), error, self.go_on) from None
        self.manifest = manifest

    def unnamed(self, files: Iterable[str]) -> list[str]:
        """Those of some files that no version of the dataset names in its folder."""
        named = self._named([self.manifest])
        return [file for file in files if file not in named and file not in self._older_names()]

    def remove_leftovers(self) -> int:
        """Removes the files that a kill left over, which no version names, and returns how many bytes they
        had.

        Raises:
            DatasetError: the manifest of an older version is invalid, so that what it names is not known.
            PackError: a file cannot be removed.
        """
        named = self._named([self.manifest])
        versions = {version_name(version) for version in old_versions(self.path, self.manifest.version)}

        def left_over(name: str) -> bool:
            if VERSION_NAME.fullmatch(name):
                return name not in versions
            if is_data_file(name):  # older manifests are read only where there is a question
                return name not in named and name not in self._older_names()
            return name.endswith(".tmp") and _is_manifest(name.removesuffix(".tmp"))

        return self.remove(name for name in self._files() if left_over(name))

    def remove(self, names: Iterable[str]) -> int:
        """Removes files of the dataset's own folder, and returns how many bytes they had. Raises
        PackError."""
        return sum(self._remove(self.path / name) for name in list(names))

    @staticmethod
    def _remove(path: Path) -> int:
        try:
            size = path.lstat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise PackError(f"cannot remove {path}, which nothing names any more: {error.strerror}") from None
        return size

    def _files(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]

    def _older_names(self) -> set[str]:
        """Names of the files that older versions name. They are kept: older manifests do not change while
        the lock is held."""
        if self._older is None:
            versions = old_versions(self.path, self.manifest.version)
            try:
                self._older = self._named(Manifest.load(self.path, version) for version in versions)
            except DatasetError as error:
                raise DatasetError(
                    f"{error}, or give the older versions up: `fastload prune {self.path}`"
                ) from None
        return self._older

    def _named(self, manifests: Iterable[Manifest]) -> set[str]:
        """Names of the files in the dataset's own folder that manifests name, by whichever path."""
        named: set[str] = set()
        here = os.path.realpath(self.path)
        ours: dict[str | None, bool] = {None: True}
        for manifest in manifests:
            sidecars = ((sidecar.folder, sidecar.file) for sidecar in manifest.sidecars)
            for folder, name in chain(sidecars, *(shard.files for shard in manifest.shards)):
                if folder not in ours:
                    ours[folder] = os.path.realpath(file_path(self.path, folder, name).parent) == here
                if ours[folder]:
                    named.add(name)
        return named


def is_data_file(name: str) -> bool:
    """Returns True if a file has the name of a shard, or of a file beside the shards."""
    return (SHARD_NAME.fullmatch(name) or SIDE_NAME.fullmatch(name)) is not None


def _is_manifest(name: str) -> bool:
    return name == MANIFEST_NAME or VERSION_NAME.fullmatch(name) is not None


class DatasetChange(LockedDataset):
    """A change of a finished dataset. See NOTE [ change: what is durable when ].

    1. Write the files that the new version names: `write_segments`, or files of your own under an
       `unused_name`, synced.
    2. `commit` makes the new version. Without it the dataset is unchanged, and the next writer removes the
       files.
    """

    def write_segments(self, kind: PartKind, parts: Iterable[Any]) -> list[Segment]:
        """Writes bytes-like parts, one after another, into a new file, and syncs it.

        Args:
            kind: "rows" or "values": what the file holds.
            parts: contents of the segments; each is written before the next is asked for.

        Raises:
            PackError: the disk is full or fails.
        """
        path = self.path / self.unused_name(kind)
        segments: list[Segment] = []
        at = 0
        try:
            with open(path, "xb") as file:
                for part in parts:
                    view = memoryview(part).cast("B")
                    file.write(view)
                    segments.append(Segment(path.name, at, len(view), core.crc32c(view)))
                    at += len(view)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(path, at, error, self.go_on) from None
        return segments

    def with_sidecars(self, manifest: Manifest) -> Manifest:
        """The manifest with its sidecars as one where they are more than SIDECARS_MOST, so that opening reads
        few files.

        Raises:
            PackError: the disk is full or fails.
        """
        if len(manifest.sidecars) <= SIDECARS_MOST:
            return manifest
        known = open_sidecars(self.path, manifest.sidecars)
        shards = [shard for shard in manifest.shards if known.get(shard) is not None]
        path = self.path / self.unused_name("index")
        try:
            sidecars = (write_sidecar(self.path, path.name, shards, known.content),) if shards else ()
        except OSError as error:
            raise write_error(path, 0, error, self.go_on) from None
        return replace(manifest, sidecars=sidecars)

    def commit(self, manifest: Manifest) -> Manifest:
        """Makes the next version, described by `manifest` but for its number, and returns its manifest.

        Raises:
            PackError: the disk is full or fails, or there are too many versions.
        """
        now = self.manifest
        if now.version == VERSION_LIMIT:
            raise PackError(
                f"{self.path} has {VERSION_LIMIT} versions, more than can be numbered: pack it again"
            )
        new = replace(manifest, version=now.version + 1)
        kept = self.path / version_name(now.version)
        try:
            sync_folder(self.path)
            data = read_regular(self.path / MANIFEST_NAME, MANIFEST_BYTES)
            write_atomically(kept, data)
        except OSError as error:
            raise write_error(kept, len(now.to_bytes()), error, self.go_on) from None
        self.put_manifest(new)
        self._older = None
        return new

    def prune(self, keep: int) -> tuple[list[int], int]:
        """Removes all versions but the newest `keep`, and every file of the dataset's folder that none of
        these names.

        Returns:
            The numbers of the versions that were removed, and the bytes of all files that were.

        Raises:
            DatasetError: the manifest of a version that is kept is invalid.
            PackError: a file cannot be removed.
        """
        older = old_versions(self.path, self.manifest.version)
        gone = older[: max(0, len(older) - (keep - 1))]
        freed = self.remove(version_name(version) for version in gone)
        if gone:
            try:
                sync_folder(self.path)  # no manifest may come back that names what is removed next
            except OSError as error:
                raise PackError(f"cannot sync {self.path}: {error.strerror}") from None
        self._older = None
        return gone, freed + self.remove_leftovers()


def numbered(shards: Iterable[ShardEntry]) -> tuple[ShardEntry, ...]:
    """Shards as one list: each begins where the one before ends."""
    out: list[ShardEntry] = []
    first = 0
    for shard in shards:
        out.append(shard.at(first))
        first += shard.count
    return tuple(out)
