"""ClusterOut: OUT of a pack on a cluster, a folder or a URL, as the driver sees it: its state, the begin,
and the commit."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fastload._native import core
from fastload.common.files import scratch_folder
from fastload.errors import DatasetError, PackError
from fastload.packing.cluster.cluster_plan import absolute
from fastload.packing.cluster.depot import BucketDepot, Depot, FolderDepot
from fastload.packing.cluster.records import SECTION_MOST, ClusterJournal, names_of, section_name
from fastload.packing.job import place_of
from fastload.packing.options import RunOptions
from fastload.remote.client import open_objects
from fastload.remote.objects import ObjectInfo, Objects
from fastload.remote.writer import Bucket, commit_with_sidecar
from fastload.store import JOURNAL_NAME, MANIFEST_NAME, Manifest, ShardEntry
from fastload.store.checked import Bad
from fastload.store.entries import SHARD_NAME, file_number
from fastload.store.manifest import LOST, MANIFEST_BYTES, sync_folder
from fastload.store.progress import check_free, claim_folder, clear, is_packed_file
from fastload.store.sidecar import Parts, open_section, write_sidecar

_SIDECAR = "index-00000.bin"


class ClusterOut(ABC):
    """OUT during one run of the driver.

    Attributes:
        title: name of OUT in messages.
        place: OUT as the tasks take it: an absolute path, or the URL.
        offset: number in the name of the first shard.
        journal: journal of a pack that was begun before and is to be resumed; None: there is none.
        finished: the manifest of a dataset that is complete and was to be resumed.
    """

    title: str
    place: str
    offset: int = 0
    journal: ClusterJournal | None = None
    finished: Manifest | None = None

    def __init__(self, depot: Depot) -> None:
        self.depot = depot
        self.title = depot.title

    def begin(self, journal: ClusterJournal) -> None:
        """Writes progress.json: from now on the tasks of this driver may publish, and those of no other.
        Raises OSError."""
        self.depot.write(JOURNAL_NAME, journal.to_bytes())

    def check_token(self, token: str) -> None:
        """Checks that no other driver has begun since. Raises PackError."""
        data = self.depot.read(JOURNAL_NAME, MANIFEST_BYTES)
        if data is None or ClusterJournal.from_bytes(data, self.title).token != token:
            raise PackError(f"another pack on a cluster was begun into {self.title}: this one stops")

    def discard(self, number: int) -> None:
        """Removes what a killed process left of the files of a range. Raises OSError."""
        for name in names_of(number + self.offset):
            self.depot.discard(name)

    @abstractmethod
    def commit(
        self, manifest: Manifest, sections: Mapping[str, tuple[int, int]], etags: Mapping[str, str | None]
    ) -> Manifest:
        """Writes the sidecar, then the manifest, and removes the files that only the tasks needed; returns
        the manifest with its sidecar.

        Args:
            manifest: names shards that were published.
            sections: size and checksum of each shard's section, by the shard's name.
            etags: ETags of the shards' objects, by name.

        Raises:
            DatasetError: a section is missing or damaged.
            OSError: the disk is full or fails.
        """

    @abstractmethod
    def tidy(self, manifest: Manifest) -> None:
        """Removes what a driver left that was killed after the commit."""


def sections_at(depot: Depot, sizes: Mapping[str, tuple[int, int]]) -> Callable[[ShardEntry], Parts]:
    """Returns a function that reads a shard's section where its task put it; `sizes` has size and checksum
    of each, by the shard's name."""

    def read(shard: ShardEntry) -> Parts:
        name = section_name(file_number(shard.file))
        data = depot.read(name, SECTION_MOST)
        try:
            if data is None or (len(data), core.crc32c(data)) != sizes[shard.file]:
                raise Bad("it is missing, or its checksum does not match")
            return open_section(memoryview(data), shard)
        except Bad as error:
            raise DatasetError(
                f"{depot.title}/{name} cannot be used ({error}): remove it and {shard.file}, and go "
                "on with resume=True (--resume)"
            ) from None

    return read


class _Folder(ClusterOut):
    """A folder that all nodes share."""

    def __init__(self, folder: Path, run: RunOptions) -> None:
        super().__init__(FolderDepot(folder))
        self.place = str(folder)
        self._folder = folder
        check_free(folder, self.title, resume=run.resume, overwrite=run.overwrite)
        if run.overwrite:
            clear(folder)
        names = os.listdir(folder)
        self._sweep({name for name in names if not name.endswith((".part", ".tmp"))})
        if (folder / MANIFEST_NAME).exists():
            self.finished = Manifest.load(folder)
            if self.finished.version > 1:
                raise PackError(
                    f"{self.title} is complete, and was changed since: --overwrite packs it again"
                )
        elif (data := self.depot.read(JOURNAL_NAME, MANIFEST_BYTES)) is not None:
            self.journal = ClusterJournal.from_bytes(data, self.title)
        elif any(SHARD_NAME.fullmatch(name) for name in names):
            raise PackError(
                f"{self.title} {LOST}; there is no {JOURNAL_NAME} with which to go on, --overwrite "
                "packs it again"
            )

    def _sweep(self, kept: set[str]) -> None:
        """Removes fastload's files but for those that are to stay."""
        for name in os.listdir(self._folder):
            if is_packed_file(name) and name not in kept:
                (self._folder / name).unlink(missing_ok=True)

    def commit(
        self, manifest: Manifest, sections: Mapping[str, tuple[int, int]], etags: Mapping[str, str | None]
    ) -> Manifest:
        (self._folder / _SIDECAR).unlink(missing_ok=True)
        known = sections_at(self.depot, sections)
        manifest = replace(
            manifest, sidecars=(write_sidecar(self._folder, _SIDECAR, manifest.shards, known),)
        )
        manifest.write(self._folder)
        self.tidy(manifest)
        return manifest

    def tidy(self, manifest: Manifest) -> None:
        named = {shard.file for shard in manifest.shards} | {sidecar.file for sidecar in manifest.sidecars}
        self._sweep(named | {MANIFEST_NAME})
        sync_folder(self._folder)


@contextmanager
def open_out(out: str | os.PathLike[str], run: RunOptions) -> Iterator[ClusterOut]:
    """OUT, locked against other drivers on this node where it is a folder.

    Raises:
        ArgumentError: an option of URLs is given for a folder, or the URL is wrong.
        PackError: OUT holds other files or a dataset, was begun on one machine, or is in use.
        RemoteError: the store does not answer, or denies access.
    """
    place = place_of(out, run)
    if isinstance(place, str):
        with open_bucket(place, run) as bucket:
            yield bucket
        return
    folder = absolute(place)
    lock = claim_folder(folder)
    try:
        yield _Folder(folder, run)
    finally:
        os.close(lock)


class BucketOut(ClusterOut):
    """The objects below a URL. A store knows no lock: the token of progress.json stops the tasks of all
    drivers but the last."""

    def __init__(self, objects: Objects, url: str, run: RunOptions) -> None:
        super().__init__(BucketDepot(objects, None))
        self.place = url
        self._objects = objects
        self._bucket = Bucket(objects, overwrite=run.overwrite)
        self.offset = self._bucket.next_shard
        there = self._bucket.manifest
        begun = self._begun()
        if run.resume and begun is not None and not _made_by(begun, there):
            self.journal, self.offset = begun, begun.offset
        elif run.resume and there is not None:
            self.finished = there
        elif run.overwrite:
            self._remove(name for name in self._bucket.listed if name.endswith((".done", ".section")))
        elif there is not None:
            raise PackError(
                f"{self.title} already holds a packed dataset; --overwrite replaces it, or choose another URL"
            )
        elif begun is not None:
            raise PackError(
                f"{self.title} holds an unfinished pack: --resume finishes it, --overwrite starts again"
            )
        elif self._bucket.begun:
            raise PackError(
                f"{self.title} holds parts of a dataset that was not begun on a cluster: --overwrite "
                "starts again"
            )

    def _begun(self) -> ClusterJournal | None:
        data = self.depot.read(JOURNAL_NAME, MANIFEST_BYTES) if JOURNAL_NAME in self._bucket.listed else None
        if data is None:
            return None
        try:
            return ClusterJournal.from_bytes(data, self.title)
        except PackError:  # a push's journal, or a damaged one: parts of a dataset all the same
            return None

    def _remove(self, names: Iterator[str]) -> None:
        for name in names:
            if is_packed_file(name):
                self._objects.delete(name)

    def commit(
        self, manifest: Manifest, sections: Mapping[str, tuple[int, int]], etags: Mapping[str, str | None]
    ) -> Manifest:
        sent = {
            shard.file: ObjectInfo(shard.file, shard.bytes, etags[shard.file]) for shard in manifest.shards
        }
        with scratch_folder("cluster") as folder:
            return commit_with_sidecar(
                self._bucket, manifest, folder, sections_at(self.depot, sections), sent
            )

    def tidy(self, manifest: Manifest) -> None:
        self._bucket.commit(manifest, {})


def _made_by(journal: ClusterJournal, manifest: Manifest | None) -> bool:
    """Returns True if the manifest at a URL belongs to the pack that a journal began, and not to the
    dataset that it will replace."""
    return manifest is not None and all(
        file_number(shard.file) >= journal.offset for shard in manifest.shards
    )


@contextmanager
def open_bucket(url: str, run: RunOptions) -> Iterator[BucketOut]:
    """OUT at a URL; connections end with the block. Raises as `open_out` does."""
    objects = open_objects(url, run.storage_options, 60.0 if run.timeout is None else run.timeout)
    try:
        yield BucketOut(objects, url, run)
    finally:
        objects.close()
