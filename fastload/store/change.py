"""DatasetChange: makes the next version of a dataset, so that a kill at any point leaves the old version or the new one.

NOTE [ change: what is durable when ]
1. New files get unused names; no file that a version names is changed. They are synced, and then the folder.
2. The manifest of the version until now is copied to its own name, manifest-00001.json and so on, and synced.
3. manifest.json is replaced by the new version's, by rename. That is the commit. Version n is what manifest.json describes if that is its
   number, else what the manifest of that name describes.
4. Files that no manifest names, and manifests of versions that never came, were left over by a kill. The next writer removes them, under
   the lock that admits one writer.
Old versions, and files that only they name, stay until they are pruned: a reader that has one open, a forked child or a spawned worker too,
goes on with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from fastload._native import core
from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.store.entries import Segment, ShardEntry
from fastload.store.locked import Kind, LockedDataset
from fastload.store.manifest import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    VERSION_LIMIT,
    Manifest,
    old_versions,
    sync_folder,
    version_name,
    write_atomically,
)
from fastload.store.segments import read_segment
from fastload.store.shard import write_error
from fastload.store.sidecar import SIDECARS_MOST, Sidecars, identity, write_sidecar


class DatasetChange(LockedDataset):
    """A change of a finished dataset. See NOTE [ change: what is durable when ].

    1. Write the files that the new version names: `write_segments`, or files of your own under an `unused_name`, synced.
    2. `commit` makes the new version. Without it the dataset is unchanged, and the next writer removes the files.
    """

    def write_segments(self, kind: Kind, parts: Iterable[Any]) -> list[Segment]:
        """Writes bytes-like parts, one after another, into a new file, and syncs it.

        Args:
            kind: "rows" or "values": what the file holds.
            parts: what its segments hold; each is written before the next is asked for.

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
        """The manifest with its sidecars as one where they are more than SIDECARS_MOST, so that opening reads few files.

        Raises:
            PackError: the disk is full or fails.
        """
        if len(manifest.sidecars) <= SIDECARS_MOST:
            return manifest
        sections = Sidecars(partial(read_segment, self.path), manifest.sidecars).sections
        shards = [shard for shard in manifest.shards if identity(shard) in sections]
        path = self.path / self.unused_name("index")
        try:
            sidecars = (write_sidecar(self.path, path.name, shards, sections),) if shards else ()
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
            raise PackError(f"{self.path} has {VERSION_LIMIT} versions, more than can be numbered: pack it again")
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
        """Removes all versions but the newest `keep`, and every file of the dataset's folder that none of these names.

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
