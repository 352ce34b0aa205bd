"""push: uploads a packed dataset to a URL.

NOTE [ push: what is sent again ]
An object is not sent again if its content is known there:
1. the manifest at the URL names it with the checksums that this dataset's has, and it has the right size:
   nobody replaces such an object (NOTE [ bucket: what is durable when ]);
2. or an unfinished push noted it in progress.json at the URL, with its checksums and the ETag that it had,
   and it has that ETag now.
A name and a size alone prove nothing. A store without ETags gets what an unfinished push has sent once more.

`PushPlan` says which objects a local dataset becomes, under which names, and has the manifest that names
them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from fastload.common.files import expanded, open_regular, scratch_folder
from fastload.common.progress import Progress
from fastload.errors import ClosedError, DatasetError, PackError, RemoteError, RemoteMissingError, advised
from fastload.remote.client import open_objects
from fastload.remote.manifest import DataFile, PartCheck, data_files
from fastload.remote.objects import ObjectInfo, Objects, request_threads
from fastload.remote.writer import Bucket, same_object
from fastload.store import CRC_COLUMN, JOURNAL_NAME, Manifest, Segment, ShardEntry, checked, file_path
from fastload.store.lists import images_path
from fastload.store.manifest import MANIFEST_BYTES
from fastload.store.sidecar import open_sidecars, read_segment, write_sidecar

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Upload:
    """A file to upload.

    Attributes:
        file: its object: `name` in the bucket, and the parts that the manifest names.
        path: the local file.
    """

    file: DataFile
    path: Path

    def check(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Reads the local file and compares its checksums with the manifest's, so that damage is not pushed.
        Raises DatasetError.

        Args:
            stopped: asked now and then; where it returns True, nothing more is read.
        """
        check = PartCheck(self.file)
        buffer = bytearray(_BLOCK)
        at = 0
        try:
            descriptor, size = open_regular(self.path)
            with open(descriptor, "rb", buffering=0) as file:
                while not stopped() and (count := file.readinto(buffer)):
                    check.add(at, memoryview(buffer)[:count])
                    at += count
        except OSError as error:
            raise DatasetError(
                f"cannot read {self.path}: {error.strerror}; if the dataset was changed meanwhile, "
                "push it again"
            ) from None
        if stopped():
            return
        wrong = (
            check.wrong()
            if self.file.fits(size)
            else f"{size:,} bytes where the manifest says {self.file.bytes:,}"
        )
        if wrong:
            raise DatasetError(f"{self.path}: {wrong}; it is not pushed: copy it again or pack again")


@dataclass(frozen=True)
class PushPlan:
    """Plan of a push: the manifest and the files to upload.

    Attributes:
        manifest: manifest of the dataset at the URL.
        uploads: every file that the manifest names.
    """

    manifest: Manifest
    uploads: tuple[Upload, ...]


def plan_push(dataset: Path, manifest: Manifest, bucket: Bucket, scratch: Path) -> PushPlan:
    """Plans the push of a dataset.

    All its sidecars become one, and its files of rows become one, so that the dataset opens in three
    requests; shards in other folders become objects beside the others. Files that are made for this lie in
    `scratch`: the dataset's folder is not written to.

    Raises:
        PackError: a bucket cannot hold the dataset.
        DatasetError: a shard or segment is missing or damaged.
        OSError: a file in `scratch` cannot be written.
    """
    if any(shard.base is not None for shard in manifest.shards):
        raise PackError(
            f"{dataset} is an attached dataset, whose images lie in other files, which are not "
            "pushed: make a dataset that holds its "
            "images of the same source with `fastload pack`, to a folder or to the URL"
        )
    merged = _one_file_of_rows(dataset, replace(manifest, sidecars=()), scratch)
    names: dict[tuple[str | None, str], str] = {}
    uploads: list[Upload] = []
    for file in data_files(merged):
        path = (
            scratch / file.name if file.folder == str(scratch) else file_path(dataset, file.folder, file.name)
        )
        sent = replace(file, folder=None, name=bucket.name_for(file))
        names[file.folder, file.name] = sent.name
        uploads.append(Upload(sent, path))
    if merged.is_foreign and any(shard.foreign is None for shard in merged.shards):
        raise PackError(
            f"{dataset} has images of its own beside those that lie in a store: push the datasets that it "
            "was joined of one by one"
        )
    shards = tuple(_renamed(shard, names) for shard in merged.shards)
    sidecars = _one_sidecar(dataset, manifest, scratch)
    for segment in sidecars:
        (file,) = data_files(replace(manifest, shards=(), sidecars=(segment,)))
        sent = replace(file, folder=None, name=bucket.name_for(file))
        uploads.append(Upload(sent, file_path(dataset, segment.folder, segment.file)))
        sidecars = (replace(segment, file=sent.name, folder=None),)
    return PushPlan(replace(merged, shards=shards, sidecars=sidecars), tuple(uploads))


def _one_file_of_rows(dataset: Path, manifest: Manifest, scratch: Path) -> Manifest:
    """The manifest with all segments of rows in one file; it is made in `scratch` if there are several."""
    files = {(shard.rows.folder, shard.rows.file) for shard in manifest.shards if shard.rows is not None}
    if len(files) < 2:
        return manifest
    name = "rows-00000.bin"
    shards: list[ShardEntry] = []
    at = 0
    with open(scratch / name, "xb") as out:
        for shard in manifest.shards:
            if shard.rows is not None:
                out.write(read_segment(dataset, shard.rows).data)
                shard = replace(shard, rows=replace(shard.rows, file=name, offset=at, folder=str(scratch)))
                at += shard.rows.bytes if shard.rows is not None else 0
            shards.append(shard)
    return replace(manifest, shards=tuple(shards))


def _one_sidecar(dataset: Path, manifest: Manifest, scratch: Path) -> tuple[Segment, ...]:
    """A sidecar of all shards: the dataset's, if it is one and has them all, else one made in `scratch`;
    none without shards."""
    if not manifest.shards:
        return ()
    known = open_sidecars(dataset, manifest.sidecars)
    if len(manifest.sidecars) == 1 and known.covers(manifest.shards):
        return manifest.sidecars
    made = write_sidecar(dataset, "index-00000.bin", manifest.shards, known.content, into=scratch)
    return (replace(made, folder=str(scratch)),)


def _renamed(shard: ShardEntry, names: dict[tuple[str | None, str], str]) -> ShardEntry:
    def moved(segment: Segment) -> Segment:
        return replace(segment, file=names[segment.folder, segment.file], folder=None)

    own = shard.file if shard.foreign is not None else names[shard.folder, shard.file]
    return replace(shard.with_segments(moved), file=own, folder=None)


def replaces(new: Manifest, old: Manifest) -> bool:
    """Returns True if a manifest is a later state of another's dataset: a later version, with a shard in
    common, or the same samples."""
    if new.version == old.version:
        return new.same_samples(old)
    return new.version > old.version and not _contents(new.shards).isdisjoint(_contents(old.shards))


def _contents(shards: Iterable[ShardEntry]) -> set[str]:
    """Checksums of all columns but the records', for each shard."""
    return {
        repr((shard.stored, shard.samples))
        if shard.foreign is not None
        else repr(
            (shard.stored, sorted((name, crc) for name, crc in shard.columns.items() if name != CRC_COLUMN))
        )
        for shard in shards
    }


_FORMAT = "fastload-push"
_VERSION = 1
FILES_AT_ONCE = 2
"""Uploads at a time; each has several parts in flight."""
_NOTE_EVERY = 2.0
"""Seconds between two writes of progress.json, so that small shards do not cost a request more each."""
_NOTE_SHARE = 20
"""Times what the last write took: it names all objects anew, and of very many takes seconds itself."""
_LAST_NOTES_S = 1.0
"""Seconds for the last write of progress.json after Ctrl-C: the server may be silent."""
_STOPPED = "the push was stopped"


@dataclass(frozen=True, slots=True)
class PushSummary:
    """Result of `push`.

    Attributes:
        samples: samples of the dataset.
        files: its objects, without the manifest.
        bytes: their size.
        sent_files: objects that this call sent.
        sent_bytes: their size.
        removed: objects of an older dataset or an unfinished push that were removed.
        seconds: wall-clock time.
    """

    samples: int
    files: int
    bytes: int
    sent_files: int
    sent_bytes: int
    removed: int
    seconds: float

    def with_images(self, images: PushSummary) -> PushSummary:
        """The summary of a dataset, with that of its images of any number, which are a dataset of their
        own."""
        counts = ("files", "bytes", "sent_files", "sent_bytes", "removed")
        return replace(self, **{name: getattr(self, name) + getattr(images, name) for name in counts})


def push(
    path: str | os.PathLike[str],
    url: str,
    *,
    version: int | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
    progress: bool = False,
) -> PushSummary:
    """Uploads a packed dataset to a URL; it is a dataset there once this returns, and not before.

    Files that are at the URL are not sent again: a stopped push goes on, and a later version sends new files
    alone. Readers of a replaced dataset go on until its objects are removed, at the end.

    Args:
        path: the dataset's folder; it is not changed.
        url: ``s3://bucket/train.fl``, ``gs://``, ``az://`` or ``file://``.
        version: an older version; the latest by default.
        overwrite: replaces another dataset, or an unfinished one, at the URL; every object is sent that no
            unfinished push has sent.
        storage_options, timeout, progress: as for `fastload.pack`.

    Raises:
        ArgumentError: the URL or an option is wrong.
        DatasetError: no finished dataset, or a damaged one.
        PackError: another dataset is at the URL, or this one's images lie in other files, which no bucket can
            hold.
        RemoteError: the store does not answer, or denies access.
    """
    started = time.monotonic()
    dataset = Path(expanded(path))
    manifest = Manifest.load(dataset, version)
    images: PushSummary | None = None
    if manifest.schema.images is not None:  # first, so that a dataset at the URL has its images
        images = push(
            images_path(dataset),
            images_path(url),
            overwrite=overwrite,
            storage_options=storage_options,
            timeout=timeout,
            progress=progress,
        )
    opened = closing(open_objects(url, storage_options, timeout))
    with advised("push again, and it goes on"), opened as objects, scratch_folder("push") as scratch:
        bucket = Bucket(objects, overwrite=overwrite)
        notes = _Notes(bucket, manifest)
        if not overwrite:
            _refuse_others(bucket, manifest, notes)
        plan = plan_push(dataset, manifest, bucket, scratch)
        uploads = [upload for upload in plan.uploads if not bucket.is_there(upload.file)]
        if uploads:
            notes.write()
        _Sender(objects, notes, plan, uploads).run(progress)
        names = {upload.file.name for upload in plan.uploads}
        removed = bucket.commit(
            plan.manifest, {name: info for name, info in notes.objects.items() if name in names}
        )
    done = PushSummary(
        manifest.count,
        len(plan.uploads),
        sum(upload.file.bytes for upload in plan.uploads),
        len(uploads),
        sum(upload.file.bytes for upload in uploads),
        removed,
        time.monotonic() - started,
    )
    return done if images is None else done.with_images(images)


def _refuse_others(bucket: Bucket, manifest: Manifest, notes: _Notes) -> None:
    """Raises PackError if there is another dataset at the URL, or parts of one."""
    url = bucket.objects.url
    if bucket.manifest is not None and not replaces(manifest, bucket.manifest):
        raise PackError(
            f"{url} holds another packed dataset, or a later version of this one; --overwrite replaces it"
        )
    if bucket.begun and not notes.same_dataset:
        what = (
            "an unfinished push of another dataset"
            if notes.found
            else "parts of a dataset that is not finished"
        )
        raise PackError(f"{url} holds {what}; --overwrite replaces it, or choose another URL")


class _Notes:
    """progress.json at the URL: the objects that an unfinished push has sent. See NOTE [ push: what is sent
    again ].

    Attributes:
        found: True if there was one.
        same_dataset: True if it belongs to the dataset that is pushed now.
        objects: objects that are known to have the content noted for them.
    """

    def __init__(self, bucket: Bucket, manifest: Manifest) -> None:
        self._objects = bucket.objects
        self._dataset = manifest.samples_digest
        self._contents: dict[str, str] = {}
        self._written = self._took = 0.0
        self.objects: dict[str, ObjectInfo] = {}
        content = _read_notes(bucket.objects) if JOURNAL_NAME in bucket.listed else None
        self.found = content is not None
        self.same_dataset = content is not None and content.get("dataset") == self._dataset
        for name, entry in (content or {}).get("objects", {}).items():
            now = bucket.listed.get(name)
            if now is not None and same_object(now, ObjectInfo(name, now.size, _text(entry.get("etag")))):
                self.objects[name] = now
                self._contents[name] = str(entry.get("content"))
                bucket.note(name, self._contents[name])

    def add(self, file: DataFile, info: ObjectInfo) -> None:
        """Notes an object that was sent; it is written now and then."""
        self.objects[file.name] = info
        self._contents[file.name] = file.digest
        if time.monotonic() - self._written >= max(_NOTE_EVERY, _NOTE_SHARE * self._took):
            self.write()

    def write(self) -> None:
        """Writes the object progress.json. Raises RemoteError."""
        began = time.monotonic()
        entries = {
            name: {"etag": info.etag, "content": self._contents[name]} for name, info in self.objects.items()
        }
        content = {"format": _FORMAT, "version": _VERSION, "dataset": self._dataset, "objects": entries}
        self._objects.put(JOURNAL_NAME, checked.seal(content))
        self._written = time.monotonic()
        self._took = self._written - began


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read_notes(objects: Objects) -> dict[str, Any] | None:
    """The content of progress.json; None if it is none of a push, or does not hold: what it notes is then
    sent again."""
    try:
        content = checked.unseal(
            checked.parse(objects.get(JOURNAL_NAME, MANIFEST_BYTES), JOURNAL_NAME), JOURNAL_NAME
        )
    except RemoteMissingError:
        return None
    except DatasetError as error:
        if type(error) is not DatasetError:
            raise
        return None
    entries = content.get("objects")
    good = isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())
    return (
        content if good and (content.get("format"), content.get("version")) == (_FORMAT, _VERSION) else None
    )


class _Sender:
    """Uploads files, several at a time."""

    def __init__(self, objects: Objects, notes: _Notes, plan: PushPlan, uploads: list[Upload]) -> None:
        self._objects = objects
        self._notes = notes
        self._uploads = uploads
        self._samples = plan.manifest.count
        self._bytes = sum(upload.file.bytes for upload in plan.uploads)
        self._before = self._bytes - sum(upload.file.bytes for upload in uploads)
        self._sent = 0
        self._lock = threading.Lock()  # guards _sent
        self._stopped = False

    def run(self, progress: bool) -> None:
        """Uploads all of them. Raises the first error."""
        running: dict[Future[ObjectInfo], DataFile] = {}
        threads = request_threads(self._objects, FILES_AT_ONCE, "fastload-push")
        with threads as pool, Progress(self._samples, "push", shown=progress, unit="") as bar:
            bar.start(self._share(self._before), self._before)
            try:
                left = iter(self._uploads)
                # And no more: a wait looks at each that is running.
                for upload in islice(left, 2 * FILES_AT_ONCE):
                    running[pool.submit(self._send, upload)] = upload.file
                while running:
                    done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                    for future in done:
                        self._notes.add(running.pop(future), future.result())
                    for upload in islice(left, len(done)):
                        running[pool.submit(self._send, upload)] = upload.file
                    bar.update(self._share(self._before + self._sent), self._before + self._sent)
            except BaseException as error:
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                self._write_last(None if isinstance(error, Exception) else _LAST_NOTES_S)
                raise
        if self._uploads:
            self._notes.write()

    def _write_last(self, seconds: float | None) -> None:
        """Writes the notes of a push that stops; waits so long for a server that does not answer, and
        None: as long as for any request."""

        def write() -> None:
            with contextlib.suppress(RemoteError, ClosedError):
                self._notes.write()

        last = threading.Thread(target=write, daemon=True)
        last.start()
        last.join(seconds)

    def _share(self, size: int) -> int:
        return self._samples * min(size, self._bytes) // max(self._bytes, 1)

    def _send(self, upload: Upload) -> ObjectInfo:
        upload.check(lambda: self._stopped)
        if self._stopped:
            raise PackError(_STOPPED)
        self._objects.put_file(upload.file.name, upload.path, self._count)
        return self._objects.head(upload.file.name, known=True)

    def _count(self, size: int) -> None:
        with self._lock:
            self._sent += size
        if self._stopped:
            raise PackError(_STOPPED)
