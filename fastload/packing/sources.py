"""Where samples come from: one small protocol, and the choice of the source that fits what the user gave.

A source is an ordered sequence of samples that can be read at any position, so that the packer may shuffle, resume and
read ahead. To add one, write a file with a class that satisfies `Source`, and name it in `open_source`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastload.errors import ArgumentError, PackError
from fastload.files import expanded
from fastload.packing.options import TableOptions
from fastload.store import Field

T = TypeVar("T")
Pixels = npt.NDArray[np.uint8]
Value = int | float | str | bytes | npt.NDArray[Any] | dict[str, Any] | list[Any] | bool | None

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision's ImageFolder takes for an image, so that both see the same samples."""
READABLE_EXTENSIONS = (".gif", ".avif", ".jp2", ".j2k", ".jfif", ".jpe", ".apng")
"""Other pictures that can be packed, by a table that names them."""
OTHER_PICTURES = (*READABLE_EXTENSIONS, *".heic .heif .jxl .svg .psd .tga .exr .hdr .dng .cr2 .cr3 .nef .arw .orf .raf .rw2 .dcm".split())
"""Pictures by their name, of types that a folder leaves out."""


FIRST_TRIES = 100
"""Samples that are tried for one that can be read, where a field's kind follows from a sample."""


@dataclass(slots=True)
class Item:
    """One sample as its source has it.

    Attributes:
        name: what to call it in messages: a path, or "source, sample n".
        image: a file's bytes in any format, or pixels as uint8 (height, width, 3) RGB or (height, width) grey.
        values: its other fields by name; the same names for every sample of a source.
        notices: kinds of what reading the image lost, as `fastload.packing.notices` names them.
    """

    name: str
    image: bytes | Pixels
    values: dict[str, Value] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@runtime_checkable
class Source(Protocol):
    """An ordered collection of samples.

    Rules: `len()` and `fields` are settled when the object exists; `read` gives the same sample for the same position
    every time; when `concurrent` is true, `read` may be called by several threads at once; `name` is cheap and needs
    no read. Failures are PackError (the source is wrong) or OSError (one sample cannot be read). An attribute `notices`, if
    there is one, holds what the source leaves out (`fastload.packing.notices.Notice`), for the summary.
    """

    @property
    def title(self) -> str:
        """What the source is, for messages: a folder, a file, a Dataset's class."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of every sample besides the image."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels 0, 1, ...; None when labels are not classes with names."""

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call `read` at once."""

    def __len__(self) -> int:
        """The number of samples."""

    def name(self, position: int) -> str:
        """What to call the sample at a position in messages."""

    def read(self, position: int) -> Item:
        """The sample at a position, 0 <= position < len()."""


def first_readable(read: Callable[[int], T], count: int) -> T:
    """What `read` gives at the first position where it succeeds; those before it fail again, each as its sample's error, when packed.

    Raises:
        PackError: none of the first `FIRST_TRIES` can be read; the first one's error.
    """
    failures: list[PackError] = []
    for position in range(min(count, FIRST_TRIES)):
        try:
            return read(position)
        except PackError as error:  # noqa: PERF203
            failures.append(error)
        except OSError as error:
            failures.append(PackError(f"{error.filename or position}: cannot be read: {error.strerror or error}"))
    raise failures[0]


def file_stamp(path: str) -> tuple[int, int]:
    """Size and time of change of a file. Raises OSError, or ValueError for what is no path."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def open_source(source: object, table: TableOptions | None = None) -> Source:
    """The source for what the user passed as SRC.

    A folder of class folders, a .csv or .tsv file, one or many .tar files (a path, a pattern such as
    ``train-{000..003}.tar`` or ``train-*.tar``, a list of them, or a folder that holds them), a map-style Dataset, or
    any object that satisfies `Source`. `table` says what the columns of a .csv or .tsv are.

    Raises:
        PackError: nothing here can be packed; the message names what was looked for.
        ArgumentError: `table` is given for a source that is none.
    """
    if isinstance(source, str | os.PathLike) and _is_table(os.fsdecode(source)):
        from fastload.packing.sources_table import TableSource

        return TableSource(expanded(source), table or TableOptions())
    if table is not None:
        raise ArgumentError("path_column, label_column and header (--path-column, --label-column, --no-header) are for a .csv or .tsv")
    if isinstance(source, str | os.PathLike):
        return _open_path(expanded(source))
    if isinstance(source, list | tuple) and source and all(isinstance(entry, str | os.PathLike) for entry in source):
        return _open_paths([expanded(entry) for entry in source])
    if isinstance(source, Source):
        return source
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        from fastload.packing.sources_dataset import DatasetSource

        return DatasetSource(source)
    raise PackError(
        f"cannot pack a {type(source).__name__}: give a folder, a .csv/.tsv, .tar files, or a map-style Dataset with "
        "__getitem__ and __len__ (an iterable Dataset has no order to shuffle or to resume)"
    )


def _is_table(path: str) -> bool:
    return path.lower().endswith((".csv", ".tsv"))


def _open_paths(paths: list[str]) -> Source:
    """Several tars as one source; of anything else only one can be packed."""
    if len(paths) == 1:
        return open_source(paths[0])
    for path in paths:
        if os.path.isdir(path) or _is_table(path):
            what = "a table" if _is_table(path) else "a folder"
            how = "put all lines into one table" if _is_table(path) else "put the class folders, or links to them, into one folder"
            raise PackError(
                f"{path} is {what}: of several sources, all are .tar files. To pack them together, {how}; or pack each by itself and "
                "join them with torch.utils.data.ConcatDataset, which FastLoader reads natively"
            )
    from fastload.packing.sources_tar import TarSource

    return TarSource(paths)


def _open_path(text: str) -> Source:
    lower = text.lower()
    if os.path.isdir(text):
        with os.scandir(text) as entries:
            listed = [(entry.name, entry.is_dir()) for entry in entries]
        tars = sorted(name for name, is_dir in listed if name.lower().endswith(".tar") and not is_dir)
        if tars and not any(is_dir for _, is_dir in listed):
            from fastload.packing.sources_tar import TarSource

            return TarSource([str(Path(text, name)) for name in tars])
        from fastload.packing.sources_folder import FolderSource

        return FolderSource(text)
    if lower.endswith(".tar") or any(mark in text for mark in "*?{["):
        from fastload.packing.sources_tar import TarSource

        return TarSource([text])
    if not os.path.exists(text):
        raise PackError(f"{text}: no such folder or file; give a folder of class folders, a .csv/.tsv, or .tar files")
    if lower.endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")):
        raise PackError(f"{text}: a compressed tar cannot be read at any position; unpack it to a plain .tar first")
    raise PackError(f"{text}: not a source fastload knows; give a folder of class folders, a .csv/.tsv, or .tar files")
