"""From a packed dataset to one file that other programs read: a WebDataset tar, or Parquet.

NOTE [ export: what is written when ]
Samples are read and checked by threads, a bounded number of blocks ahead, and written by the calling thread in order of index. They go to a
file of another name in the same folder, which is synced and renamed over the target at the end: a kill, an error or a full disk leaves
what was at the target, or nothing.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np

from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.files import expanded
from fastload.packing.options import OnError
from fastload.packing.progress import Progress
from fastload.packing.unpack import picture, refuse_spatial
from fastload.packing.verify_report import BadSample
from fastload.query import Columns, ConditionEngine, arrow_array, optional
from fastload.store import DatasetReader, Field, parse_stored
from fastload.system import available_cpus

_BLOCK = 16
"""Samples that a thread reads at a time."""
_ROW_GROUP_BYTES = 64 << 20
"""Bytes of values that make a row group: what a reader of Parquet holds in memory at once."""
_ROW_GROUP_ROWS = 1 << 16
_LABEL = "label"


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What `export` wrote.

    Attributes:
        samples: samples in the file.
        bytes: its size.
        skipped: samples left out with on_error="skip".
    """

    samples: int
    bytes: int
    skipped: tuple[BadSample, ...]


def export(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    where: str | None = None,
    overwrite: bool = False,
    on_error: OnError = "raise",
    workers: int | None = None,
    progress: bool = False,
) -> ExportSummary:
    """Writes a packed dataset as one file that other programs read; `out` ends in ``.tar`` or ``.parquet``.

    JPEGs go with their stored bytes, raw pixels as PNG.

    - ``.tar``: WebDataset's layout, which `pack` reads too. A sample is ``00000012.jpg`` or ``.png``, numbered by index; an int field
      ``label`` is ``00000012.cls``; other fields are one object, ``00000012.json``: arrays as lists, bytes in base64, floats that are not
      finite as null.
    - ``.parquet``: a column for each field: the image's file and bytes fields as binary, int64, double, lists of fixed size for arrays,
      text and JSON as strings. Class names are under ``fastload.classes`` in the schema's metadata, as JSON. Needs pyarrow, of the extra
      `query`.

    Args:
        path: the dataset's directory.
        out: the file. It appears when it is whole.
        where: an SQL condition as in `PackedDataset.where`: only samples for which it is true are written. Needs the extra `query`.
        overwrite: replace `out` if it is there.
        on_error: "raise" at a sample that cannot be read, or "skip" it.
        workers: threads that read; the CPUs this process may use by default.
        progress: show a bar on the terminal.

    Raises:
        ArgumentError: `out` has another ending, `on_error` is neither, a library is missing, or `where` cannot be evaluated or is true for
            no sample.
        DatasetError: the dataset cannot be read.
        SampleError: one of its samples cannot, with on_error="raise".
        PackError: `out` is in the way, or cannot be written: the disk is full.
    """
    target = Path(expanded(out))
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"on_error={on_error!r} is none of raise, skip")
    if target.suffix.lower() not in _WRITERS:
        raise ArgumentError(f"{target}: export writes .tar (WebDataset) and .parquet; give a file that ends so")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers} must be at least 1")
    with DatasetReader(path) as reader:
        samples = _Samples(reader, _chosen(reader, where))
        _refuse_existing(target, overwrite)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            with open(temporary, "xb") as file:
                written, skipped = _write(samples, _WRITERS[target.suffix.lower()](file, samples), on_error, workers, progress)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            _refuse_existing(target, overwrite)
            os.replace(temporary, target)
        except OSError as error:
            if isinstance(error, DatasetError):
                raise
            raise PackError(f"{target}: cannot be written: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    return ExportSummary(written, size, skipped)


def _chosen(reader: DatasetReader, where: str | None) -> Sequence[int]:
    if where is None:
        return range(reader.count)
    rows = ConditionEngine(Columns(reader)).rows(where)
    if not len(rows):
        raise ArgumentError(f"{reader.path}: where={where!r} is true for no sample, so there is nothing to export")
    return cast("Sequence[int]", rows)


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise PackError(f"{target} is a folder; give the name of a file")
    if os.path.lexists(target) and not overwrite:
        raise PackError(f"{target} is there already; overwrite=True (--overwrite) replaces it")


# ---- samples --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample on its way out: the image as a file, and other fields by name; JSON is its text."""

    index: int
    extension: str
    image: bytes
    values: dict[str, Any]


class _Samples:
    """The samples of an open dataset that are written; any thread may read."""

    def __init__(self, reader: DatasetReader, chosen: Sequence[int]) -> None:
        self.reader = reader
        self.chosen = chosen
        self.fields = tuple(reader.schema)
        images = [field.name for field in self.fields if field.kind == "image"]
        if not images:
            raise DatasetError(f"{reader.path} has no image field, so there is nothing to export")
        self.image = images[0]
        refuse_spatial(reader, "exported")
        self._columns = {field.name: reader.column(field.name) for field in self.fields if field.is_column}
        self.digits = max(8, len(str(reader.count - 1)))

    def read(self, index: int) -> _Sample:
        """Sample index. Raises SampleError where it does not hold, PackError where a PNG is needed and Pillow is missing."""
        record = self.reader.stored_fields(index)
        values: dict[str, Any] = {}
        extension, image = "", b""
        for number, field in enumerate(self.fields):
            if field.is_column:
                values[field.name] = self._columns[field.name][index]
                continue
            kind, data = record.get(number, (-1, None))
            if field.kind == "image" and data is not None:
                extension, image = picture(kind, data, index, self.reader)
                continue
            try:
                value = parse_stored(field, data)
            except SampleError as error:
                raise self.reader.sample_error(index, error.reason) from None
            values[field.name] = data.decode("utf-8") if field.kind == "json" and data is not None else value
        if extension == "ppm":
            raise PackError("raw images are exported as PNG, which Pillow writes: pip install 'fastload[pack]'")
        return _Sample(index, extension, image, values)

    def block(self, start: int) -> list[_Sample | SampleError]:
        """Up to _BLOCK samples from the one at `start` of those chosen on; in the place of one that cannot be read, why."""
        return [self._read_or_why(int(index)) for index in self.chosen[start : start + _BLOCK]]

    def _read_or_why(self, index: int) -> _Sample | SampleError:
        try:
            return self.read(index)
        except SampleError as error:
            return error


def _ahead(pool: ThreadPoolExecutor, call: Callable[[int], Any], arguments: Iterable[int], most: int) -> Iterator[Any]:
    """What call makes of each argument, in order, with at most `most` calls under way or waiting to be taken."""
    waiting: deque[Future[Any]] = deque()
    try:
        for argument in arguments:
            waiting.append(pool.submit(call, argument))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _write(samples: _Samples, writer: _Writer, on_error: OnError, workers: int | None, progress: bool) -> tuple[int, tuple[BadSample, ...]]:
    """Writes every chosen sample; how many, and those left out."""
    count, written, size = len(samples.chosen), 0, 0
    skipped: list[BadSample] = []
    threads = available_cpus() if workers is None else workers
    with ThreadPoolExecutor(threads, "fastload-export") as pool, Progress(count, "export", shown=progress) as bar:
        bar.start(0, 0)
        try:
            for block in _ahead(pool, samples.block, range(0, count, _BLOCK), 2 * threads):
                for sample in block:
                    if isinstance(sample, _Sample):
                        writer.add(sample)
                        written, size = written + 1, size + len(sample.image)
                    elif on_error == "raise":
                        raise sample
                    else:
                        skipped.append(BadSample(sample.index, sample.shard, sample.reason))
                bar.update(written + len(skipped), size)
            writer.close()
        except BaseException:
            writer.abort()
            raise
    return written, tuple(skipped)


# ---- formats --------------------------------------------------------------------------------------------------------


class _Writer(Protocol):
    """A format; samples come in order of index."""

    def add(self, sample: _Sample) -> None: ...
    def close(self) -> None:
        """Completes the file."""

    def abort(self) -> None:
        """Writes nothing more, at no later time."""


class _TarWriter:
    """WebDataset's layout: neighbouring members of one base name are a sample."""

    def __init__(self, file: IO[bytes], samples: _Samples) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
        self._digits = samples.digits
        self._others = [field for field in samples.fields if field.kind != "image" and not _is_label(field)]
        self._labelled = any(_is_label(field) for field in samples.fields)
        self._time = int(time.time())

    def add(self, sample: _Sample) -> None:
        key = f"{sample.index:0{self._digits}d}"
        self._member(f"{key}.{sample.extension}", sample.image)
        if self._labelled:
            self._member(f"{key}.cls", b"%d" % int(sample.values[_LABEL]))
        if self._others:
            values = {field.name: _as_json(field, sample.values[field.name]) for field in self._others}
            self._member(f"{key}.json", json.dumps(values, ensure_ascii=False, allow_nan=False).encode())

    def _member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(data), self._time, 0o644
        self._tar.addfile(member, io.BytesIO(data))
        self._tar.members = []  # type: ignore[attr-defined]  # tarfile keeps each header for a listing that nobody asks for

    def close(self) -> None:
        self._tar.close()

    def abort(self) -> None:
        pass


def _is_label(field: Field) -> bool:
    return field.name == _LABEL and field.kind == "int"


def _as_json(field: Field, value: Any) -> Any:
    """A field's value as JSON holds it."""
    if field.kind == "json":
        return _finite(json.loads(value))
    if field.kind == "bytes":
        return base64.b64encode(value).decode("ascii")
    return _finite(value.tolist()) if field.is_column else value


def _finite(value: Any) -> Any:
    """Value with None for floats that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


class _Sink(io.RawIOBase):
    """A file as Arrow writes to it, until `dropping`: Arrow completes a file in a destructor, also after an error."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._written = 0
        self.dropping = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if not self.dropping:
            self._file.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        return self._written


class _ParquetWriter:
    """Parquet, row group by row group."""

    def __init__(self, file: IO[bytes], samples: _Samples) -> None:
        self._arrow = optional("pyarrow", "export to Parquet")
        parquet = optional("pyarrow.parquet", "export to Parquet")
        self._fields = samples.fields
        classes = samples.reader.manifest.classes
        metadata = {} if classes is None else {"fastload.classes": json.dumps(list(classes))}
        self._schema = self._arrow.schema([(field.name, self._type(field)) for field in self._fields], metadata=metadata)
        texts = [field.name for field in self._fields if field.kind in ("text", "json")]
        self._sink = _Sink(file)
        self._file = parquet.ParquetWriter(self._sink, self._schema, compression=dict.fromkeys(texts, "zstd"), use_dictionary=texts)
        self._waiting: list[_Sample] = []
        self._bytes = 0

    def _type(self, field: Field) -> Any:
        arrow = self._arrow
        if field.is_column:
            kind = arrow.from_numpy_dtype(field.dtype)
            for side in reversed(field.shape):
                kind = arrow.list_(kind, side)
            return kind
        return arrow.string() if field.kind in ("text", "json") else arrow.binary()

    def add(self, sample: _Sample) -> None:
        self._waiting.append(sample)
        self._bytes += len(sample.image) + sum(_weight(value) for value in sample.values.values())
        if self._bytes >= _ROW_GROUP_BYTES or len(self._waiting) >= _ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        arrays = []
        for field, kind in zip(self._fields, self._schema.types, strict=True):
            values = [sample.image if field.kind == "image" else sample.values[field.name] for sample in self._waiting]
            arrays.append(arrow_array(np.stack(values)) if field.is_column else self._arrow.array(values, kind))
        self._file.write_table(self._arrow.table(arrays, schema=self._schema), row_group_size=max(1, len(self._waiting)))
        self._waiting, self._bytes = [], 0

    def close(self) -> None:
        if self._waiting:
            self._flush()
        self._file.close()

    def abort(self) -> None:
        self._sink.dropping = True
        with suppress(Exception):
            self._file.close()


def _weight(value: Any) -> int:
    """About the bytes of a value."""
    return len(value) if isinstance(value, str | bytes) else int(value.nbytes)


_WRITERS: dict[str, Callable[[IO[bytes], _Samples], _Writer]] = {".tar": _TarWriter, ".parquet": _ParquetWriter}
