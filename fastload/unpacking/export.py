"""export: writes a packed dataset to one file that other programs read: a WebDataset tar, or Parquet.

NOTE [ export: what is written when ]
Samples are read and checked by threads, a bounded number of blocks ahead, and written by the calling thread
in order of index. They go to a file of another name in the same folder, which is synced and renamed over the
target at the end: a kill, an error or a full disk leaves the old target, or none.

Parquet has a column for each field. In a WebDataset, neighbouring members of one base name are a sample.

NOTE [ export: members of a tar ]
Other programs read the members: `jpg` or `png` for the image, `cls`, `NAME.png` for masks and further images,
`NAME.npy` for boxes and other rows, one `json` for all plain fields. Facts that no member can hold (the dtype
of a number, the format of boxes, class names) are in the `comment` of the tar's global pax header, which tar
programs skip. From it `pack` makes a dataset of equal fields.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from fastload.common.ahead import ahead
from fastload.common.distribution import pip_install
from fastload.common.files import size_limit
from fastload.common.optional import optional
from fastload.common.progress import Progress
from fastload.common.stopping_pool import StoppingPool
from fastload.common.system import available_cpus
from fastload.dataset.query import Columns, ConditionEngine, arrow_array
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.remote.files import folder_files
from fastload.sources.declaration import as_line, declaration, finite
from fastload.sources.options import OnError
from fastload.sources.tar import COMMENT_MOST, member_names
from fastload.store import DatasetReader, Field
from fastload.store.labels import LABEL, is_label
from fastload.store.manifest import output_path
from fastload.unpacking.sample_files import SampleFiles, StoredSample
from fastload.unpacking.verify import BadSample

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

_ROW_GROUP_BYTES = 64 << 20
"""Bytes of values that make a row group: what a reader of Parquet holds in memory at once."""
_ROW_GROUP_ROWS = 1 << 16


class _Sink(io.RawIOBase):
    """A file as Arrow writes to it, until `dropping`: Arrow completes a file in a destructor, also after
    an error."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._written = 0
        self.dropping = False

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if not self.dropping:
            self._file.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        return self._written


def _features(fields: Iterable[Field], classes: Sequence[str] | None) -> dict[str, Any]:
    """Hugging Face's description of further pictures and of the label, by column; all other columns follow
    from their types."""
    pictures = [
        field
        for field in fields
        if field.handler.is_picture and (field.channels == 1 or field.dtype != "uint16")
    ]
    found: dict[str, Any] = {field.name: {"_type": "Image"} for field in pictures}
    found |= {
        field.name: {"_type": "Sequence", "feature": {"_type": "Image"}}
        for field in fields
        if field.handler.is_list
    }
    if classes is not None and len(set(classes)) == len(classes) and any(map(is_label, fields)):
        found[LABEL] = {"names": list(classes), "_type": "ClassLabel"}
    return found


class ParquetWriter:
    """Parquet, row group by row group. Fields and class names are in the schema's metadata."""

    def __init__(self, file: IO[bytes], samples: SampleFiles) -> None:
        self._arrow = optional("pyarrow", "export to Parquet")
        parquet = optional("pyarrow.parquet", "export to Parquet")
        self._image = samples.image.name
        self._fields = tuple(samples.reader.schema)
        classes = samples.reader.manifest.classes
        metadata = {
            "fastload.fields": json.dumps(declaration(samples.image, samples.others, samples.reader.manifest))
        }
        metadata |= {} if classes is None else {"fastload.classes": json.dumps(list(classes))}
        if features := _features(self._fields if samples.images else samples.others, classes):
            metadata["huggingface"] = json.dumps({"info": {"features": features}})
        self._schema = self._arrow.schema(
            [(field.name, self._type(field)) for field in self._fields], metadata=metadata
        )
        texts = [field.name for field in self._fields if field.handler.is_text]
        self._sink = _Sink(file)
        self._file = parquet.ParquetWriter(
            self._sink, self._schema, compression=dict.fromkeys(texts, "zstd"), use_dictionary=texts
        )
        self._waiting: list[StoredSample] = []
        self._bytes = 0

    def _type(self, field: Field) -> pa.DataType:
        arrow = self._arrow
        if field.handler.is_list:
            return arrow.list_(arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))
        if field.handler.is_picture:
            # A further picture is what Hugging Face's Image is, by which it is told from other bytes.
            return (
                arrow.binary()
                if field.name == self._image
                else arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
            )
        return field.handler.exported_type(field, arrow)

    def add(self, sample: StoredSample) -> None:
        self._waiting.append(sample)
        self._bytes += sample.weight
        if self._bytes >= _ROW_GROUP_BYTES or len(self._waiting) >= _ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        arrays = [
            self._array(field, kind) for field, kind in zip(self._fields, self._schema.types, strict=True)
        ]
        self._file.write_table(
            self._arrow.table(arrays, schema=self._schema), row_group_size=max(1, len(self._waiting))
        )
        self._waiting, self._bytes = [], 0

    def _array(self, field: Field, kind: pa.DataType) -> pa.Array:
        """The column of a field, of the samples that wait."""
        name, arrow = field.name, self._arrow
        if field.handler.is_list:
            lists = [
                [
                    {"bytes": file.content, "path": f"{number}.{file.extension}"}
                    for number, file in enumerate(sample.images)
                ]
                for sample in self._waiting
            ]
            return arrow.array(lists, kind)
        if field.handler.is_picture:
            files = [sample.files[name] for sample in self._waiting]
            if name == self._image:
                return arrow.array([file.content for file in files], kind)
            return arrow.array(
                [{"bytes": file.content, "path": f"{name}.{file.extension}"} for file in files], kind
            )
        values = [sample.values[name] for sample in self._waiting]
        if field.is_column:
            return arrow_array(np.stack(values))
        if field.handler.is_numeric_rows:
            offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
            return arrow.ListArray.from_arrays(offsets, arrow_array(np.concatenate(values)))
        return arrow.array([field.handler.arrow_value(value) for value in values], kind)

    def close(self) -> None:
        if self._waiting:
            self._flush()
        self._file.close()

    def abort(self) -> None:
        self._sink.dropping = True
        with suppress(Exception):
            self._file.close()


class TarWriter:
    """A tar of samples. See NOTE [ export: members of a tar ]."""

    def __init__(self, file: IO[bytes], samples: SampleFiles) -> None:
        self._samples = samples
        others = samples.others
        comment = json.dumps({"fastload": declaration(samples.image, others, samples.reader.manifest)})
        headers = {"comment": comment} if len(comment) <= COMMENT_MOST else {}
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers)
        self._names = member_names(others)
        self._plain = [field for field in others if field.name not in self._names and not is_label(field)]
        self._labelled = any(map(is_label, others))
        self._time = int(time.time())

    def add(self, sample: StoredSample) -> None:
        key, image = self._samples.stem(sample.index), self._samples.image.name
        for number, file in enumerate(sample.images):
            self._member(f"{key}.{number}.{file.extension}", file.content)
        if self._samples.images is None:
            self._member(f"{key}.{sample.files[image].extension}", sample.files[image].content)
        if self._labelled:
            self._member(f"{key}.cls", b"%d" % int(sample.values[LABEL]))
        for field in self._samples.others:
            if field.name in self._names:
                extension, content = self._own_member(field, sample)
                self._member(f"{key}.{self._names[field.name]}.{extension}", content)
        if self._plain:
            values = {
                field.name: finite(field.handler.to_json(sample.values[field.name])) for field in self._plain
            }
            self._member(
                f"{key}.json", as_line(values, sample.index, "a .parquet file", allow_nan=False).encode()
            )

    def _own_member(self, field: Field, sample: StoredSample) -> tuple[str, bytes]:
        """(extension, content) of the member of a picture, or of what has any number of rows."""
        if field.name in sample.files:
            return sample.files[field.name].extension, sample.files[field.name].content
        value = sample.values[field.name]
        if field.handler.member == "json":
            return "json", json.dumps(field.handler.to_json(value)).encode()
        out = io.BytesIO()
        np.save(out, value)
        return "npy", out.getvalue()

    def _member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(data), self._time, 0o644
        self._tar.addfile(member, io.BytesIO(data))
        self._tar.members = []  # type: ignore[attr-defined]  # tarfile keeps each header for a listing that nobody asks for

    def close(self) -> None:
        self._tar.close()

    def abort(self) -> None:
        pass


_BLOCK = 16
"""Samples that a thread reads at a time."""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Result of `export`.

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
    """Writes a packed dataset as one file that other programs read, and of which `pack` makes a dataset of
    equal fields.

    A ``.tar`` has WebDataset's layout, a ``.parquet`` a column for each field: the page Queries and export
    has both. JPEGs keep their stored bytes; raw pixels and masks are written as PNG, images of 16 bits and
    several channels as .npy.

    Args:
        path: the dataset's directory.
        out: the file, ``.tar`` or ``.parquet``, which appears when it is whole.
        where: a condition, as in `PackedDataset.where`, true for the samples to write.
        overwrite: replaces `out`.
        on_error: "raise" at a sample that cannot be read, or "skip" it.
        workers, progress: as for `pack`.

    Raises:
        ArgumentError: an argument is wrong, a library is missing, or `where` is true for no sample.
        DatasetError: the dataset cannot be read.
        SampleError: a sample cannot be read.
        PackError: `out` is in the way, or the disk is full.
    """
    target = output_path(out)
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"on_error={on_error!r} is none of raise, skip")
    if target.suffix.lower() not in _WRITERS:
        raise ArgumentError(
            f"{target}: export writes .tar (WebDataset) and .parquet; give a file that ends so"
        )
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers} must be at least 1")
    with DatasetReader(folder_files(path)) as reader, SampleFiles(reader, "export") as samples:
        chosen = _chosen(reader, where)
        _refuse_existing(target, overwrite)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            with open(temporary, "xb") as file:
                written, skipped = _write(
                    samples,
                    chosen,
                    _WRITERS[target.suffix.lower()](file, samples),
                    on_error,
                    workers,
                    progress,
                )
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            _refuse_existing(target, overwrite)
            os.replace(temporary, target)
        except OSError as error:
            if isinstance(error, DatasetError):
                raise
            raise PackError(
                f"{target}: cannot be written: {error.strerror or error}{size_limit(error)}"
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    return ExportSummary(written, size, skipped)


def _chosen(reader: DatasetReader, where: str | None) -> Sequence[int]:
    if where is None:
        return range(reader.count)
    rows = ConditionEngine(Columns(reader)).rows(where)
    if not len(rows):
        raise ArgumentError(
            f"{reader.path}: where={where!r} is true for no sample, so there is nothing to export"
        )
    return cast("Sequence[int]", rows)


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise PackError(f"{target} is a folder; give the name of a file")
    if os.path.lexists(target) and not overwrite:
        raise PackError(f"{target} is there already; overwrite=True (--overwrite) replaces it")


def _write(
    samples: SampleFiles,
    chosen: Sequence[int],
    writer: _Writer,
    on_error: OnError,
    workers: int | None,
    progress: bool,
) -> tuple[int, tuple[BadSample, ...]]:
    """Writes every chosen sample; how many, and those left out."""
    count, written, size = len(chosen), 0, 0
    skipped: list[BadSample] = []
    threads = available_cpus() if workers is None else workers

    def read_or_why(index: int) -> StoredSample | SampleError:
        pool.check()
        try:
            sample = samples.read(index)
        except SampleError as error:
            return error
        if any(file.extension == "ppm" for file in sample.pictures):
            raise PackError(f"raw images are exported as PNG, which Pillow writes: {pip_install('pack')}")
        return sample

    def block(start: int) -> list[StoredSample | SampleError]:
        return [read_or_why(int(index)) for index in chosen[start : start + _BLOCK]]

    with StoppingPool(threads, "fastload-export") as pool, Progress(count, "export", shown=progress) as bar:
        bar.start(0, 0)
        try:
            for found in ahead(pool, block, range(0, count, _BLOCK), 2 * threads):
                for sample in found:
                    if isinstance(sample, StoredSample):
                        writer.add(sample)
                        written, size = written + 1, size + sum(len(file.content) for file in sample.pictures)
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


class _Writer(Protocol):
    """A format; samples come in order of index."""

    def add(self, sample: StoredSample) -> None: ...
    def close(self) -> None:
        """Completes the file."""

    def abort(self) -> None:
        """Writes nothing more, at no later time."""


_WRITERS: dict[str, Callable[[IO[bytes], SampleFiles], _Writer]] = {
    ".tar": TarWriter,
    ".parquet": ParquetWriter,
}
