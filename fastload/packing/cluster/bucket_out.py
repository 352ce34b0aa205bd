"""OUT of a pack on a cluster at a URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fastload.common.files import scratch_folder
from fastload.errors import PackError
from fastload.packing.cluster.depot import BucketDepot
from fastload.packing.cluster.out import ClusterOut, sections_at
from fastload.packing.cluster.records import ClusterJournal
from fastload.packing.options import RunOptions
from fastload.remote.client import open_objects
from fastload.remote.objects import ObjectInfo, Objects
from fastload.remote.writer import Bucket, commit_with_sidecar
from fastload.store import JOURNAL_NAME, Manifest
from fastload.store.entries import file_number
from fastload.store.manifest import MANIFEST_BYTES
from fastload.store.progress import is_packed_file


class BucketOut(ClusterOut):
    """The objects below a URL. A store knows no lock: the token of progress.json stops the tasks of all drivers but the last."""

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
            raise PackError(f"{self.title} already holds a packed dataset; --overwrite replaces it, or choose another URL")
        elif begun is not None:
            raise PackError(f"{self.title} holds an unfinished pack: --resume finishes it, --overwrite starts again")
        elif self._bucket.begun:
            raise PackError(f"{self.title} holds parts of a dataset that was not begun on a cluster: --overwrite starts again")

    def _begun(self) -> ClusterJournal | None:
        data = self.depot.read(JOURNAL_NAME, MANIFEST_BYTES) if JOURNAL_NAME in self._bucket.listed else None
        if data is None:
            return None
        try:
            return ClusterJournal.from_bytes(data, self.title)
        except PackError:  # of a push, or damaged: parts of a dataset all the same
            return None

    def _remove(self, names: Iterator[str]) -> None:
        for name in names:
            if is_packed_file(name):
                self._objects.delete(name)

    def commit(self, manifest: Manifest, sections: Mapping[str, tuple[int, int]], etags: Mapping[str, str | None]) -> Manifest:
        sent = {shard.file: ObjectInfo(shard.file, shard.bytes, etags[shard.file]) for shard in manifest.shards}
        with scratch_folder("cluster") as folder:
            return commit_with_sidecar(self._bucket, manifest, folder, sections_at(self.depot, manifest, sections), sent)

    def tidy(self, manifest: Manifest) -> None:
        self._bucket.commit(manifest, {})


def _made_by(journal: ClusterJournal, manifest: Manifest | None) -> bool:
    """Whether the manifest at a URL is that of the pack which a journal began, and not that of the dataset which it is to replace."""
    return manifest is not None and all(file_number(shard.file) >= journal.offset for shard in manifest.shards)


@contextmanager
def open_bucket(url: str, run: RunOptions) -> Iterator[BucketOut]:
    """OUT at a URL; connections end with the block. Raises as `open_out` does."""
    objects = open_objects(url, run.storage_options)
    try:
        yield BucketOut(objects, url, run)
    finally:
        objects.close()
