"""verify of a dataset at a URL: every object is read in ranges, and compared with the checksums in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fastload.common.files import scratch_folder
from fastload.errors import RemoteMissingError
from fastload.packing.progress import Progress
from fastload.packing.verify_report import BadSample, VerifyReport
from fastload.remote.client import open_objects
from fastload.remote.manifest import REQUESTS, DataFile, checked_ranges, data_files, download, load_manifest
from fastload.remote.objects import Objects, request_threads
from fastload.store import Manifest, Segment, ShardEntry

_AGAIN = "`fastload push --overwrite` from where it is whole mends it"
Local = Callable[[Path], VerifyReport]


def verify_url(
    url: str,
    *,
    local: Local | None,
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    timeout: float = 60.0,
    progress: bool = False,
) -> VerifyReport:
    """Checks the objects of a dataset at a URL: their sizes and checksums.

    Args:
        url: the dataset's.
        local: checks a dataset in a folder, record by record. Where it is given, each shard is downloaded into a temporary folder, one at a
            time, and checked there; without it, nothing is written to the disk.
        version: refused unless it is the one at the URL.
        storage_options: of the store.
        timeout: seconds after which a request that fails again and again is given up.
        progress: show a bar on the terminal.

    Raises:
        DatasetError: there is no finished dataset, or its manifest is invalid.
        RemoteError: the store does not answer, or denies access.
    """
    with closing(open_objects(url, storage_options, timeout)) as objects:
        manifest = load_manifest(objects, version)
        with Progress(manifest.count, "verify", shown=progress) as bar:
            bar.start(0, 0)
            check = _Check(objects, manifest, bar)
            check.sizes()
            if local is None:
                check.objects_hold()
            else:
                with scratch_folder("verify") as folder:
                    check.shards_hold(folder, local)
        return check.report(decoded=local is not None)


class _Check:
    """One verification and its findings."""

    def __init__(self, objects: Objects, manifest: Manifest, bar: Progress) -> None:
        self._objects = objects
        self._manifest = manifest
        self._bar = bar
        self._files = list(data_files(manifest))
        self._total = sum(file.bytes for file in self._files)
        self._read = 0
        self._problems: list[str] = []
        self._bad: list[BadSample] = []
        self._warnings = self._unchecked = 0

    def sizes(self) -> None:
        """Asks for the size of each object; those that are missing, or of another size, are problems and read no further."""
        with request_threads(self._objects, REQUESTS, "fastload-verify") as pool:
            found = list(pool.map(self._size, self._files))
        for file, what in zip(self._files, found, strict=True):
            if what:
                self._problem(file, what)
        self._files = [file for file, what in zip(self._files, found, strict=True) if not what]

    def _size(self, file: DataFile) -> str:
        try:
            size = self._objects.head(file.name).size
        except RemoteMissingError:
            return "there is no such object"
        return "" if file.fits(size) else f"{size:,} bytes where the manifest says {file.bytes:,}"

    def objects_hold(self) -> None:
        """Reads all objects and compares their checksums."""
        with closing(checked_ranges(self._objects, self._files)) as ranges:
            for file, _, data, wrong in ranges:
                self._count(len(memoryview(data)))
                if wrong:
                    self._problem(file, wrong)

    def shards_hold(self, folder: Path, local: Local) -> None:
        """Downloads the files beside the shards, then each shard by itself, and checks it with `local`."""
        segments = [file for file in self._files if not file.whole]
        there = self._fetch(segments, folder)
        shards = {file.name: file for file in self._files if file.whole}
        for shard in self._manifest.shards:
            needed = {segment.file for segment in (*shard.added.values(), *((shard.rows,) if shard.rows is not None else ()))}
            if shard.file not in shards or not needed <= there or not self._fetch([shards[shard.file]], folder):
                self._unchecked += shard.count
                continue
            sidecars = tuple(sidecar for sidecar in self._manifest.sidecars if sidecar.file in there)
            self._shard_holds(folder, shard, sidecars, local)
            (folder / shard.file).unlink()

    def _shard_holds(self, folder: Path, shard: ShardEntry, sidecars: tuple[Segment, ...], local: Local) -> None:
        replace(self._manifest, shards=(shard.at(0),), sidecars=sidecars).write(folder)
        report = local(folder)
        self._problems += [text.replace(f"{folder}/", f"{self._objects.url}/") for text in report.problems]
        self._bad += [replace(sample, index=sample.index + shard.first) for sample in report.bad]
        self._warnings += report.warnings
        self._unchecked += report.unchecked

    def _fetch(self, files: list[DataFile], folder: Path) -> set[str]:
        """Downloads files; returns the names of those that hold."""
        good = set()
        with closing(download(self._objects, files, folder, durable=False)) as ranges:
            for file, size, wrong in ranges:
                self._count(size)
                if wrong:
                    self._problem(file, wrong)
                elif wrong is not None:
                    good.add(file.name)
        return good

    def _problem(self, file: DataFile, what: str) -> None:
        self._problems.append(f"{self._objects.url}/{file.name}: {what}; {_AGAIN}")

    def _count(self, size: int) -> None:
        self._read += size
        self._bar.update(self._manifest.count * self._read // max(self._total, 1), self._read)

    def report(self, *, decoded: bool) -> VerifyReport:
        """What was found."""
        manifest = self._manifest
        return VerifyReport(
            manifest.count,
            len(manifest.shards),
            manifest.bytes,
            tuple(self._problems),
            tuple(self._bad),
            self._warnings,
            decoded,
            self._unchecked,
            records=decoded,
        )
