"""PushPlan: which objects a local dataset becomes, under which names, and the manifest that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fastload.common.files import open_regular
from fastload.errors import DatasetError, PackError
from fastload.remote.manifest import DataFile, PartCheck, data_files
from fastload.remote.writer import Bucket
from fastload.store import CRC_COLUMN, Manifest, Segment, ShardEntry, file_path
from fastload.store.sidecar import Sidecars, identity, read_segment, write_sidecar

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
        """Reads the local file and compares its checksums with the manifest's, so that damage is not pushed. Raises DatasetError.

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
            raise DatasetError(f"cannot read {self.path}: {error.strerror}; if the dataset was changed meanwhile, push it again") from None
        if stopped():
            return
        wrong = check.wrong() if self.file.fits(size) else f"{size:,} bytes where the manifest says {self.file.bytes:,}"
        if wrong:
            raise DatasetError(f"{self.path}: {wrong}; it is not pushed: copy it again or pack again")


@dataclass(frozen=True)
class PushPlan:
    """What a push does.

    Attributes:
        manifest: of the dataset at the URL.
        uploads: every file that it names.
    """

    manifest: Manifest
    uploads: tuple[Upload, ...]


def plan_push(dataset: Path, manifest: Manifest, bucket: Bucket, scratch: Path) -> PushPlan:
    """Plans the push of a dataset.

    All its sidecars become one, and its files of rows become one, so that the dataset opens in three requests; shards in other folders
    become objects beside the others. Files that are made for this lie in `scratch`: the dataset's folder is not written to.

    Raises:
        PackError: a bucket cannot hold the dataset.
        DatasetError: a shard or segment is missing or damaged.
        OSError: a file in `scratch` cannot be written.
    """
    if any(shard.base is not None for shard in manifest.shards):
        raise PackError(
            f"{dataset} is an attached dataset, whose images lie in other files, which are not pushed: make a dataset that holds its "
            "images of the same source with `fastload pack`, to a folder or to the URL"
        )
    merged = _one_file_of_rows(dataset, replace(manifest, sidecars=()), scratch)
    names: dict[tuple[str | None, str], str] = {}
    uploads: list[Upload] = []
    for file in data_files(merged):
        path = scratch / file.name if file.folder == str(scratch) else file_path(dataset, file.folder, file.name)
        sent = replace(file, folder=None, name=bucket.name_for(file))
        names[file.folder, file.name] = sent.name
        uploads.append(Upload(sent, path))
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
    """A sidecar of all shards: the dataset's, if it is one and has them all, else one made in `scratch`; none without shards."""
    if not manifest.shards:
        return ()
    known = Sidecars(partial(read_segment, dataset), manifest.sidecars).sections
    if len(manifest.sidecars) == 1 and {identity(shard) for shard in manifest.shards} == known.keys():
        return manifest.sidecars
    made = write_sidecar(dataset, "index-00000.bin", manifest.shards, known, into=scratch)
    return (replace(made, folder=str(scratch)),)


def _renamed(shard: ShardEntry, names: dict[tuple[str | None, str], str]) -> ShardEntry:
    def moved(segment: Segment) -> Segment:
        return replace(segment, file=names[segment.folder, segment.file], folder=None)

    return replace(
        shard,
        file=names[shard.folder, shard.file],
        folder=None,
        rows=None if shard.rows is None else moved(shard.rows),
        added={name: moved(segment) for name, segment in shard.added.items()},
    )


def replaces(new: Manifest, old: Manifest) -> bool:
    """Whether a manifest is a later state of another's dataset: of a later version, with a shard in common, or the same samples."""
    if new.version == old.version:
        return new.same_samples(old)
    return new.version > old.version and not _contents(new.shards).isdisjoint(_contents(old.shards))


def _contents(shards: Iterable[ShardEntry]) -> set[str]:
    """What the files of shards hold, by the checksums of all columns but the records'."""
    return {repr((shard.stored, sorted((name, crc) for name, crc in shard.columns.items() if name != CRC_COLUMN))) for shard in shards}
