"""From a packed dataset to one file that other programs read: a WebDataset tar, or Parquet.

NOTE [ export: what is written when ]
Samples are read and checked by threads, a bounded number of blocks ahead, and written by the calling thread in order of index. They go to a
file of another name in the same folder, which is synced and renamed over the target at the end: a kill, an error or a full disk leaves
what was at the target, or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

from fastload.common.system import available_cpus
from fastload.dataset.query import Columns, ConditionEngine
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.packing.export_parquet import ParquetWriter
from fastload.packing.export_tar import TarWriter
from fastload.packing.options import OnError
from fastload.packing.progress import Progress
from fastload.packing.sample_files import SampleFiles, StoredSample, ahead
from fastload.packing.stopping_pool import StoppingPool
from fastload.packing.verify_report import BadSample
from fastload.store import DatasetReader
from fastload.store.manifest import output_path

_BLOCK = 16
"""Samples that a thread reads at a time."""


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

    JPEGs go with their stored bytes, raw pixels and masks as PNG, images of 16 bits and several channels as .npy.

    - ``.tar``: WebDataset's layout. A sample is ``00000012.jpg`` or ``.png``, numbered by index; an int field ``label`` is
      ``00000012.cls``; a mask or a further image ``00000012.NAME.png``; boxes, keypoints and arrays of any number of rows
      ``00000012.NAME.npy``; instances (COCO's RLE) and polygons ``00000012.NAME.json``; other fields are one object, ``00000012.json``:
      arrays as lists, bytes in base64, floats that are not finite as null.
    - ``.parquet``: a column for each field: the image's file and bytes fields as binary, further images and masks as Hugging Face's Image,
      int64, double, lists of fixed size for arrays, lists of rows for boxes and others of any number, text and JSON as strings. Class names
      are under ``fastload.classes`` in the schema's metadata, as JSON. Needs pyarrow, of the extra `query`.

    Both say which fields there are, so that `pack` makes of them a dataset of equal fields; of a tar, floats that are not finite are NaN.

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
    target = output_path(out)
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"on_error={on_error!r} is none of raise, skip")
    if target.suffix.lower() not in _WRITERS:
        raise ArgumentError(f"{target}: export writes .tar (WebDataset) and .parquet; give a file that ends so")
    if workers is not None and workers < 1:
        raise ArgumentError(f"workers={workers} must be at least 1")
    with DatasetReader(path) as reader:
        samples, chosen = SampleFiles(reader, "export"), _chosen(reader, where)
        _refuse_existing(target, overwrite)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.unlink(missing_ok=True)
            with open(temporary, "xb") as file:
                written, skipped = _write(samples, chosen, _WRITERS[target.suffix.lower()](file, samples), on_error, workers, progress)
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


def _write(
    samples: SampleFiles, chosen: Sequence[int], writer: _Writer, on_error: OnError, workers: int | None, progress: bool
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
        if sample.files[samples.image.name].extension == "ppm":
            raise PackError("raw images are exported as PNG, which Pillow writes: pip install 'fastload[pack]'")
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
                        written, size = written + 1, size + len(sample.files[samples.image.name].content)
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


_WRITERS: dict[str, Callable[[IO[bytes], SampleFiles], _Writer]] = {".tar": TarWriter, ".parquet": ParquetWriter}
