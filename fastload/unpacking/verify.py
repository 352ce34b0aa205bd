"""verify: checks a packed dataset's manifest, files and records, and on request decodes every image. At a URL
it reads every object in ranges, and compares them with the checksums in the manifest. VerifyReport and
BadSample are its findings.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import expanded, open_regular, scratch_folder
from fastload.common.limits import default_max_pixels
from fastload.common.progress import Progress
from fastload.common.stopping_pool import StoppingPool
from fastload.common.system import available_cpus
from fastload.common.urls import is_url
from fastload.dataset.other_formats import decoded
from fastload.errors import DatasetError, FastloadError, RemoteError, RemoteMissingError, SampleError
from fastload.remote.client import open_objects
from fastload.remote.files import folder_files
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.manifest import REQUESTS, DataFile, checked_ranges, data_files, download, load_manifest
from fastload.remote.objects import Objects, request_threads
from fastload.remote.replaced import ReplacedCheck
from fastload.store import (
    DatasetReader,
    Manifest,
    Schema,
    Segment,
    ShardEntry,
    file_crc32c,
    file_path,
)
from fastload.store.kinds.codecs import BY_ENTRY
from fastload.store.lists import FOLDER, images_path, spans
from fastload.store.loose import LooseObject
from fastload.store.reader import parse_value, stored_size
from fastload.store.sidecar import (
    AddedValues,
    Sidecars,
    add_sidecar,
    check_sidecar,
    identity,
    read_segment,
    rows_of,
    write_sidecar,
)


@dataclass(frozen=True, slots=True)
class BadSample:
    """One damaged sample.

    Attributes:
        index: its index in the dataset.
        shard: file that holds it.
        reason: the fault.
    """

    index: int
    shard: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of `verify`.

    Attributes:
        samples: samples that the manifest names.
        shards: shards that the manifest names.
        bytes: size of the shards.
        problems: faults of files; () if there are none.
        bad: damaged samples.
        warnings: JPEGs that decode with warnings; counted with decode=True.
        decoded: every picture was decoded.
        unchecked: samples whose files cannot be opened.
        records: each record was checked, not only the files.
    """

    samples: int
    shards: int
    bytes: int
    problems: tuple[str, ...]
    bad: tuple[BadSample, ...]
    warnings: int
    decoded: bool
    unchecked: int = 0
    records: bool = True

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems and not self.bad

    def with_images(self, images: VerifyReport) -> VerifyReport:
        """The report on a dataset, with that on its images of any number, which are a dataset of their
        own."""
        return replace(
            self,
            shards=self.shards + images.shards,
            bytes=self.bytes + images.bytes,
            problems=(*self.problems, *(f"{FOLDER}: {problem}" for problem in images.problems)),
            bad=(*self.bad, *(replace(each, shard=f"{FOLDER}/{each.shard}") for each in images.bad)),
            warnings=self.warnings + images.warnings,
            unchecked=self.unchecked + images.unchecked,
            records=self.records and images.records,
        )


_AGAIN = "`fastload push --overwrite` from where it is whole mends it"
Local = Callable[[Path], VerifyReport]


def verify_url(
    url: str,
    *,
    local: Local | None,
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
    progress: bool = False,
) -> VerifyReport:
    """Checks the objects of a dataset at a URL: their sizes and checksums.

    Args:
        url: the dataset's.
        local: checks a dataset in a folder, record by record. Where it is given, each shard is downloaded
            into a temporary folder, one at a time, and checked there; without it, nothing is written to the
            disk.
        version: refused unless it is the one at the URL.
        storage_options: options of the store.
        timeout: seconds after which a request that fails again and again is given up, or text such as ``6h``.
        progress: show a bar on the terminal.

    Raises:
        DatasetError: there is no finished dataset, or its manifest is invalid.
        RemoteError: the store does not answer, or denies access.
    """
    with closing(open_objects(url, storage_options, timeout)) as objects:
        manifest = load_manifest(objects, version)
        with Progress(manifest.count, "verify", shown=progress, unit="") as bar:
            bar.start(0, 0)
            check = _Check(objects, manifest, bar, (storage_options, timeout))
            check.sizes()
            objects.opened = ReplacedCheck(objects, manifest)
            if local is None:
                check.objects_hold()
            else:
                with scratch_folder("verify") as folder:
                    check.shards_hold(folder, local)
        report = check.report(decoded=local is not None)
    if manifest.schema.images is None:
        return report
    images = verify_url(
        images_path(url), local=local, storage_options=storage_options, timeout=timeout, progress=progress
    )
    return report.with_images(images)


class _Check:
    """One verification and its findings."""

    def __init__(
        self,
        objects: Objects,
        manifest: Manifest,
        bar: Progress,
        store: tuple[Mapping[str, object] | None, float | str],
    ) -> None:
        self._objects, self._store = objects, store
        self._manifest = manifest
        self._bar = bar
        self._files = list(data_files(manifest))
        self._total = sum(file.bytes for file in self._files)
        self._read = 0
        self._problems: list[str] = []
        self._bad: list[BadSample] = []
        self._warnings = self._unchecked = 0

    def sizes(self) -> None:
        """Asks for the size of each object; those that are missing, or of another size, are problems and
        read no further."""
        with request_threads(self._objects, REQUESTS, "fastload-verify") as pool:
            found = list(pool.map(self._size, self._files))
        for file, what in zip(self._files, found, strict=True):
            if what:
                self._problem(file, what)
        self._files = [file for file, what in zip(self._files, found, strict=True) if not what]
        with closing(ForeignObjects(*self._store)) as foreign:
            self._problems += check_objects(foreign, self._manifest, self._segment)

    def _segment(self, segment: Segment) -> npt.NDArray[np.uint8]:
        stop = segment.offset + segment.bytes
        data = memoryview(self._objects.get_range(segment.file, segment.offset, stop))
        if core.crc32c(data) != segment.crc32c:
            raise DatasetError(f"{segment.file} is damaged")
        return np.frombuffer(data, np.uint8)

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
        sidecars = self._split(folder, there)
        shards = {file.name: file for file in self._files if file.whole}
        for shard in self._manifest.shards:
            needed = {segment.file for segment in shard.segments}
            file = [] if shard.foreign is not None else [shards[shard.file]] if shard.file in shards else None
            if file is None or not needed <= there or (file and not self._fetch(file, folder)):
                self._unchecked += shard.count
                continue
            self._shard_holds(folder, shard, sidecars, local)
            (folder / shard.file).unlink(missing_ok=True)

    def _split(self, folder: Path, there: set[str]) -> dict[str, Sidecars]:
        """The sidecars that were downloaded, by their names: with each shard its own section is checked,
        and not those of all."""
        found: dict[str, Sidecars] = {}
        for sidecar in self._manifest.sidecars:
            if sidecar.file in there:
                try:
                    sections = Sidecars()
                    add_sidecar(sections, folder, sidecar)
                    found[sidecar.file] = sections
                except DatasetError as error:
                    self._problems.append(
                        f"{str(error).replace(f'{folder}/', f'{self._objects.url}/')}; {_AGAIN}"
                    )
        return found

    def _shard_holds(
        self, folder: Path, shard: ShardEntry, sidecars: Mapping[str, Sidecars], local: Local
    ) -> None:
        segments = []
        for name, sections in sidecars.items():
            if sections.get(shard) is not None:
                (folder / name).unlink()  # the open file stays
                segments.append(write_sidecar(folder, name, [shard], sections.content))
        replace(self._manifest, shards=(shard.at(0),), sidecars=tuple(segments)).write(folder)
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
        self._read = min(self._read + size, self._total)  # a file may be read again
        self._bar.update(self._manifest.count * self._read // max(self._total, 1), self._read)

    def report(self, *, decoded: bool) -> VerifyReport:
        """The findings."""
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


_BLOCK = 256


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = False,
    version: int | None = None,
    workers: int | None = None,
    progress: bool = False,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
) -> VerifyReport:
    """Checks a packed dataset against its manifest: every file's size, checksum and structure, every record's
    checksum, lengths and kinds.

    Image sizes, entropy indexes and numbers of rows must be right. At a URL the objects' sizes and checksums
    are checked; records only with `decode`, which downloads a shard at a time.

    Args:
        path: the dataset's directory, or its URL.
        decode: decodes every image, not only masks and those that are not 8-bit RGB.
        version: an older version; the latest by default.
        workers, progress, storage_options, timeout: as for `pack`.

    Raises:
        DatasetError: no finished dataset, an invalid manifest, or errors in a dataset that was changed
            meanwhile.
        RemoteError: as in `pack`.
    """
    checked = partial(_verified, workers=workers, storage_options=storage_options, timeout=timeout)
    if is_url(path):
        return verify_url(
            os.fspath(path),
            local=partial(checked, decode=True) if decode else None,
            version=version,
            storage_options=storage_options,
            timeout=timeout,
            progress=progress,
        )
    folder = Path(expanded(path))
    report = checked(folder, decode=decode, version=version, progress=progress)
    if Manifest.load(folder, version).schema.images is None:
        return report
    try:
        images = verify(images_path(folder), decode=decode, workers=workers, progress=progress)
    except DatasetError as error:
        return replace(report, problems=(*report.problems, str(error)))
    return replace(report, problems=(*report.problems, *_beyond_images(folder, version, images))).with_images(
        images
    )


def _verified(
    folder: Path,
    *,
    decode: bool = False,
    version: int | None = None,
    workers: int | None = None,
    progress: bool = False,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
) -> VerifyReport:
    """Checks a dataset in a folder, without its images of any number. Arguments and errors as of `verify`."""
    manifest = Manifest.load(folder, version)
    threads = available_cpus() if workers is None else workers
    problems: list[str] = []
    bad: list[BadSample] = []
    warnings = unchecked = 0
    foreign = ForeignObjects(storage_options, timeout)
    with closing(foreign), StoppingPool(threads, "fastload-verify") as pool:
        own = [shard for shard in manifest.shards if shard.foreign is None]
        problems += filter(None, pool.map(lambda shard: _check_file(folder, shard, pool), own))
        problems += check_objects(foreign, manifest, partial(read_segment, folder))
        problems += [
            text for text in pool.map(lambda part: _check_segment(folder, *part), _segments(manifest)) if text
        ]
        shards = {identity(shard): shard for shard in manifest.shards}
        problems += [
            text
            for text in pool.map(lambda part: check_sidecar(folder, part, shards), manifest.sidecars)
            if text
        ]
        if manifest.is_foreign and not decode:
            return _of_files(manifest, problems)
        try:
            reader = _reader(folder, manifest, storage_options, timeout)
        except DatasetError as error:
            text = str(error)
            # This may repeat a problem of a file, but a reason that only the reader finds must not be lost.
            problems.append(text + (" (its samples were not checked)" if manifest.count else ""))
            unchecked = manifest.count
        else:
            with reader, Progress(manifest.count, "verify", shown=progress) as bar:
                bar.start(0, 0)
                check = _RecordCheck(reader, decode, pool)
                starts = range(0, manifest.count, _BLOCK)
                for start, (found, warned, size) in zip(starts, pool.map(check.block, starts), strict=True):
                    bad += found
                    warnings += warned
                    bar.update(min(start + _BLOCK, manifest.count), check.add(size))
    if (problems or bad) and Manifest.load(folder, manifest.version) != manifest:
        raise DatasetError(
            f"{folder} was changed while it was verified, as `fastload index` does: verify it again"
        )
    return VerifyReport(
        manifest.count,
        len(manifest.shards),
        manifest.bytes,
        tuple(problems),
        tuple(bad),
        warnings,
        decode,
        unchecked,
    )


def _beyond_images(folder: Path, version: int | None, images: VerifyReport) -> Iterator[str]:
    """Describes samples that have images which the dataset of these lacks."""
    try:
        with DatasetReader(folder, version) as reader:
            firsts, counts = spans(reader, np.arange(len(reader)))
    except DatasetError:  # it is among the problems
        return
    wrong = (firsts < 0) | (counts < 0) | (firsts > images.samples - counts)
    if wrong.any():
        first = int(wrong.argmax())
        yield f"{int(wrong.sum()):,} samples, the first {first}, have images beyond those in {FOLDER}"


def _reader(
    folder: Path, manifest: Manifest, options: Mapping[str, object] | None, timeout: float | str
) -> DatasetReader:
    """The open dataset: its shards are walked, and what their images in a store are read through the cache.
    Raises DatasetError, RemoteError."""
    if not manifest.is_foreign:
        return DatasetReader(folder, manifest.version, manifest=replace(manifest, sidecars=()))
    files = folder_files(folder, manifest.version, storage_options=options, timeout=timeout)
    return DatasetReader(files, manifest.version, manifest=manifest)


def _of_files(manifest: Manifest, problems: Sequence[str]) -> VerifyReport:
    """The report on a dataset whose files, and objects in a store, were checked, and no records."""
    return VerifyReport(
        manifest.count, len(manifest.shards), manifest.bytes, tuple(problems), (), 0, False, records=False
    )


def check_objects(
    objects: ForeignObjects, manifest: Manifest, read: Callable[[Segment], npt.NDArray[np.uint8]]
) -> Iterator[str]:
    """Describes what is wrong with the foreign objects of a dataset; `read` reads a segment of its files, and
    raises DatasetError. Raises RemoteError: the store does not tell."""
    wanted: deque[tuple[int, str | None]] = deque()

    def urls() -> Iterator[ForeignURL]:
        for shard in manifest.shards:
            foreign = shard.foreign
            if foreign is None:
                continue
            if foreign.objects is None:
                wanted.append((shard.size, foreign.etag))
                yield ForeignURL(foreign.url, objects)
                continue
            with suppress(DatasetError):  # that of a file, which is checked by itself
                values = AddedValues(read(foreign.objects), shard.stored, shard.file)
                for row in range(shard.stored) if shard.rows is None else rows_of(read(shard.rows)).tolist():
                    each = LooseObject.parsed(row, values[row])
                    wanted.append((each.size, each.etag))
                    yield ForeignURL(foreign.url + each.name, objects)

    for url in objects.looked_up(urls()):
        size, etag = wanted.popleft()
        try:
            if url.size != size:
                yield f"{url}: {url.size:,} bytes where there were {size:,}: attach the data again"
            elif url.info.etag != etag:
                yield f"{url}: it was replaced: attach the data again"
        except RemoteError as error:
            yield f"{url}: {error}"


def _check_file(folder: Path, shard: ShardEntry, pool: StoppingPool) -> str:
    """Describes what is wrong with a shard's file; "" if nothing is."""
    path = file_path(folder, shard.folder, shard.file)
    again = "copy it again, or pack again"
    try:
        descriptor, size = open_regular(path)
        os.close(descriptor)
        if size != shard.bytes:
            return f"{path}: {size} bytes where the manifest says {shard.bytes}; {again}"
        if (found := file_crc32c(path, pool.check)) != shard.crc32c:
            return (
                f"{path}: its checksum is {found:#010x} where the manifest says {shard.crc32c:#010x}; {again}"
            )
    except OSError as error:
        return f"{path}: {error.strerror}; {again}"
    return ""


def _segments(manifest: Manifest) -> Iterator[tuple[Segment, int]]:
    """The parts of files beside the shards, and the number of values of any length in each; 0: it holds
    rows of a fixed size."""
    for shard in manifest.shards:
        if shard.rows is not None:
            yield shard.rows, 0
        for name, part in shard.added.items():
            yield part, 0 if name in manifest.schema.columns else shard.stored
        if shard.foreign is not None:
            for part in shard.foreign.segments:
                yield part, 0 if part == shard.foreign.pages else shard.stored


def _check_segment(folder: Path, segment: Segment, values: int) -> str:
    """Describes what is wrong with a part of a file beside the shards; "" if nothing is."""
    try:
        data = read_segment(folder, segment)
        if values:
            AddedValues(data, values, segment.file)
    except DatasetError as error:
        return str(error)
    return ""


class _RecordCheck:
    """Checker of the records of an open dataset. Any thread may call `block`."""

    def __init__(self, reader: DatasetReader, decode: bool, pool: StoppingPool) -> None:
        self._reader = reader
        self._decode = decode
        self._pool = pool
        self._schema: Schema = reader.schema
        # Images that were packed under a raised limit are valid.
        packed_with = reader.manifest.options.get("max_pixels")
        self._max_pixels = max(default_max_pixels(), packed_with if isinstance(packed_with, int) else 0)
        for name in reader.schema.columns:  # read and checked before the threads ask for rows of them
            if name not in reader.schema.own_columns:
                reader.column(name)
        self._read = 0
        self._local = threading.local()

    def add(self, size: int) -> int:
        """Counts bytes checked and returns their sum."""
        self._read += size
        return self._read

    def block(self, start: int) -> tuple[list[BadSample], int, int]:
        """Checks a block. Returns its damaged samples, the number of samples with warnings, and the bytes
        read."""
        bad = []
        warned = size = 0
        for index in range(start, min(start + _BLOCK, self._reader.count)):
            self._pool.check()
            reason, warns, read = self._sample(index)
            size += read
            warned += warns
            if reason:
                bad.append(BadSample(index, self._reader.shard_of(index), reason))
        return bad, warned, size

    def _sample(self, index: int) -> tuple[str, int, int]:
        """Checks a sample. Returns what is wrong with it ("" if nothing is), 1 if it decodes only with
        warnings, and its bytes."""
        try:
            fields = self._reader.stored_fields(index)
            return "", self._check(index, fields), sum(len(data) for _, data in fields.values())
        except SampleError as error:
            return error.reason or str(error), 0, 0
        except (FastloadError, _Wrong) as error:
            return str(error), 0, 0

    def _check(self, index: int, found: Mapping[int, tuple[int, bytes]]) -> int:
        """Checks a record. Returns 1 if the image decodes only with warnings, else 0. Raises if the record
        does not fit the schema."""
        wanted = {number: field for number, field in enumerate(self._schema) if not field.is_column}
        warned = 0
        for number, field in wanted.items():
            if number not in found:
                raise _Wrong(f"its record lacks the field {field.name!r}")
            kind, data = found[number]
            if field.is_rgb:
                size, known = stored_size(self._reader, index, field), kind
                kind, data = self._reader.read_image(index, kind, data)
                try:
                    warned += self._check_image(kind, data, size)
                except SampleError:
                    if known != core.KIND_FILE or not self._decode:
                        raise
                    decoded(data, self._max_pixels)  # of another format, which Pillow reads
                self._check_index(kind, data, found.get(number | core.RECORD_INDEX))
            else:
                field.handler.check_entry(field, kind)
                parse_value(self._reader, index, field, kind, data)
        return warned

    def _check_image(self, kind: int, data: bytes, expected: tuple[int, int]) -> int:
        codec = BY_ENTRY.get(kind)
        if codec is None:
            raise _Wrong(f"its image is stored as kind {kind}, which this version does not know")
        size, warnings = codec.verified(data, self._max_pixels, self._decode)
        if size != expected and expected != (0, 0):
            raise _Wrong(f"its image is {size[1]} x {size[0]}, the columns say {expected[1]} x {expected[0]}")
        return 1 if warnings else 0

    def _check_index(self, kind: int, image: bytes, entry: tuple[int, bytes] | None) -> None:
        if entry is None or entry[0] != core.KIND_INDEX:
            return
        if not BY_ENTRY[kind].can_be_indexed:
            raise _Wrong("it has an entropy index, but its image is no JPEG")
        preparer: core.JpegPreparer | None = getattr(self._local, "preparer", None)
        if preparer is None:
            preparer = self._local.preparer = core.JpegPreparer()
        if not preparer.index_holds(image, entry[1]):
            raise _Wrong("its entropy index is not that of its JPEG")


class _Wrong(Exception):
    """A record that is intact, but does not fit the schema or the columns."""
