"""LockedDataset: a finished dataset that one process may change, and the names and files in its folder.

Only files in the dataset's own folder are ever removed, and only those with names of fastload's patterns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from fastload.errors import DatasetError, PackError
from fastload.store.entries import SHARD_NAME, SIDE_NAME, file_number, file_path
from fastload.store.lock import lock_folder
from fastload.store.manifest import MANIFEST_NAME, VERSION_NAME, Manifest, dataset_folder, old_versions, sync_folder, version_name
from fastload.store.shard import write_error

Locked = TypeVar("Locked", bound="LockedDataset")
Kind = Literal["shard", "rows", "values", "index"]
_NUMBERS = 10**9
"""Limit on numbers in names of files: they have up to nine digits."""


class LockedDataset:
    """A finished dataset, locked so that it has one writer at a time. The lock ends with the process, however that ends.

    Attributes:
        path: the dataset's folder.
        go_on: the last words of messages about a failed write: how to go on.
        manifest: the manifest that is on the disk now.
    """

    def __init__(self, path: str | os.PathLike[str], go_on: str, *, tidy: bool = True) -> None:
        """Locks the dataset in the folder `path`, and removes files left over by a kill; with tidy=False it removes nothing.

        Raises:
            DatasetError: there is no finished dataset, or its manifest, or that of an older version, is invalid.
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

    def __enter__(self: Locked) -> Locked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock; idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def unused_name(self, kind: Kind) -> str:
        """An unused name for a file. It comes after all others, so that a name is not soon used again for another file."""
        start, end = f"{kind}-", ".lmdb" if kind == "shard" else ".bin"
        names = {*os.listdir(self.path), *self._named([self.manifest])}
        ours = (name for name in names if is_data_file(name) and name.startswith(start))
        used = {file_number(name) for name in ours}
        number = max(used, default=-1) + 1
        if number >= _NUMBERS:
            number = next(number for number in count() if number not in used)
        return f"{start}{number:05d}{end}"

    def put_manifest(self, manifest: Manifest) -> None:
        """Replaces the manifest by one whose files are on the disk: the commit of a change.

        Raises:
            PackError: the disk is full or fails.
        """
        data = manifest.to_bytes()
        try:
            sync_folder(self.path)  # the files' names have to be durable before the manifest that names them
            manifest.write(self.path)
        except OSError as error:
            raise write_error(self.path / MANIFEST_NAME, len(data), error, self.go_on) from None
        self.manifest = manifest

    def is_named(self, file: str) -> bool:
        """Whether a version of the dataset names a file of this name in its folder."""
        return file in self._named([self.manifest]) or file in self._older_names()

    def remove_leftovers(self) -> int:
        """Removes the files that a kill left over, which no version names, and returns how many bytes they had.

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
        """Removes files of the dataset's own folder, and returns how many bytes they had. Raises PackError."""
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
        """Names of the files that older versions name. They are kept: older manifests do not change while the lock is held."""
        if self._older is None:
            versions = old_versions(self.path, self.manifest.version)
            try:
                self._older = self._named(Manifest.load(self.path, version) for version in versions)
            except DatasetError as error:
                raise DatasetError(f"{error}, or give the older versions up: `fastload prune {self.path}`") from None
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
    """Whether a file has the name of a shard, or of a file beside the shards."""
    return (SHARD_NAME.fullmatch(name) or SIDE_NAME.fullmatch(name)) is not None


def _is_manifest(name: str) -> bool:
    return name == MANIFEST_NAME or VERSION_NAME.fullmatch(name) is not None
