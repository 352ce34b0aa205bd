"""The contract of a source: what `pack`, `attach` and `append` ask of it, and how a source is chosen. Then,
what several sources share.

1. **Positions.** A source is an ordered sequence. `len()`, `fields`, `classes` and the optional attributes
   are settled when the object exists, but for `notices`. A constructor raises PackError if the source is
   wrong as a whole.
2. **Samples.** `read(position)` gives the same `Item` for the same position at every call: the packer
   shuffles, reads ahead and resumes. It raises PackError or OSError if this sample cannot be read; `on_error`
   then decides.
3. **Threads.** If `concurrent` is true, several threads call `read` at once; else one thread does. All other
   methods may be called by any thread at any time.
4. **Fields.** Every item has a value for each of `fields` by its name, of the field's kind (`Item`). `fields`
   leaves out the image. A field called `label` is an index into `classes` if these are not None.
5. **Names.** `name(position)` is for messages: a path, or "title, sample n". It reads nothing. Two samples
   should have two names: a resume compares them, and a shuffle orders samples by them.
6. **Places.** A source with `place` (`Placed`) says which bytes of which file an image is; `attach` needs it,
   and native threads that read the files as they lie; `pack` does not. With `read_fields(position)` it gives
   the values of `read(position)` without reading the image.
7. **Resume.** A source with `key`, `stamp` and `fields_of` (`Traced`) says what a sample is made from, so
   that a resume finds what has changed without reading it. Where `stamp` returns UNKNOWN, and for a source
   without these methods, the resume reads each sample that is written already, and compares image and fields.
   No sample is taken for unchanged on its name alone. (NOTE [ pack: what a resume checks ])
8. **Optional attributes.** `attribute_of` reads them; `ABSENT` has what it means that one is not there.
9. **Processes.** A cluster opens the source again on each node, from its path and options; an object that the
   user passed is pickled. Of a `Listed` source the driver alone makes the list, and a task gets the rows of
   its samples.
10. **Choice.** `fastload.sources.CHOICES` is an ordered list of `Choice`: the first whose `recognise` is true
    opens the source. Each module of a source has its own; an object that satisfies `Source` needs none. An
    entry may recognise what cannot be packed: its `open` then raises the PackError that says why, and what to
    do.

docs/reference/sources.md has a whole source as an example.
"""

from __future__ import annotations

import copy
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from typing_extensions import Self

from fastload.common.files import FILE_BYTES, open_regular, read_regular
from fastload.errors import PackError
from fastload.remote.foreign import ForeignFile, ForeignURL, Walk
from fastload.sources.options import ColumnOptions, SourceOptions
from fastload.sources.pixels import Pixels
from fastload.store import Field, Schema
from fastload.store.checked import JSON_BYTES, get_object, parse_json
from fastload.store.kinds.base import Value as Value

T = TypeVar("T")

IMAGE_FIELD = "image"
"""Name of the first image's field."""
INDEX = Field("index", "int")
"""Field of samples without a label: their numbers in the source, from 0."""
UNLABELLED = "without labels: (image, index)"
"""Words for the layout of a source whose only field is `INDEX`."""


@dataclass(frozen=True, slots=True)
class DrawnOn:
    """The picture on which a sample's annotations were drawn, as its source knows it.

    See NOTE [ annotations: the picture that they were drawn on ].

    Attributes:
        size: its (height, width) by the source's files; None: they do not say it.
        upright: True: it is the image turned upright by its EXIF orientation; None: by `size`, if anything.
        file: the file that has the size, for messages.
    """

    size: tuple[int, int] | None = None
    upright: bool | None = None
    file: str = ""


@dataclass(slots=True)
class Item:
    """One sample as its source has it.

    Attributes:
        name: its name in messages: a path, or "source, sample n".
        image: a file's bytes in any format, or pixels as uint8 (height, width, 3) RGB or (height, width)
            grey.
        values: its other fields by name, the same names for every sample. Further images are as `image`, or
            uint16, or of 1 or 4 channels. Masks are integer labels (height, width), or a file's bytes. Boxes
            are rows in the field's format, keypoints (number, K, 2 or 3). Instances are a list of COCO's run
            lengths (dicts of size and counts), masks, or lists of polygons; a polygon is a flat list of x and
            y.
        notices: kinds of losses in reading the image, as `Notice.kind`.
        objects: names of the rows of boxes in messages; (): they have numbers only.
        drawn_on: picture on which annotations were drawn; None: the image as it is.
        images: the images, as `image`, which is then empty, if the source has an `image_list`; else None.
    """

    name: str
    image: bytes | Pixels
    values: dict[str, Value] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    drawn_on: DrawnOn | None = None
    images: Sequence[bytes | Pixels] | None = None

    @property
    def pictures(self) -> Sequence[bytes | Pixels]:
        """The image, or all of them."""
        return (self.image,) if self.images is None else self.images

    @property
    def nbytes(self) -> int:
        """Bytes of its images."""
        return sum(each.nbytes if isinstance(each, np.ndarray) else len(each) for each in self.pictures)


@dataclass(frozen=True, slots=True)
class Place:
    """The bytes of a regular file that are one sample's image, whole and unchanged.

    Attributes:
        path: the file, absolute or as the source was given.
        offset: place of the image's first byte in the file.
        size: number of its bytes.
    """

    path: str
    offset: int
    size: int


@runtime_checkable
class Source(Protocol):
    """An ordered collection of samples; the rules are at the beginning of `fastload/sources/protocol.py`, the
    page Sources has an example."""

    @property
    def title(self) -> str:
        """Name of the source in messages: a folder, a file, a Dataset's class."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of every sample besides the image."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the labels 0, 1, ...; None when labels are not classes with names."""

    @property
    def concurrent(self) -> bool:
        """True if several threads may call `read` at once."""

    def __len__(self) -> int:
        """The number of samples."""

    def name(self, position: int) -> str:
        """Name of the sample at a position in messages."""

    def read(self, position: int) -> Item:
        """The sample at a position, 0 <= position < len()."""


@runtime_checkable
class Placed(Source, Protocol):
    """A source that knows where its images lie."""

    def place(self, position: int) -> Place | None:
        """Place of a sample's image; the bytes there are `read(position).image`. It does not read the image.

        None: this sample's image does not lie in one piece as bytes of a file. Raises OSError or PackError
        where `read` would.
        """


@runtime_checkable
class Traced(Protocol):
    """Optional methods of a source, with which a resume need not read what is written already."""

    def key(self, position: int) -> str:
        """The sample's name, without the path of the source."""

    def stamp(self, position: int) -> tuple[int, int]:
        """Size in bytes, and modification time in nanoseconds, of all that the sample is read from: several
        files have a sum and a latest.

        UNKNOWN: the source does not know all of it without reading the sample. Raises OSError.
        """

    def fields_of(self, position: int) -> dict[str, Value] | None:
        """The sample's fields besides the image; None if they are known only after reading it, and are
        part of what `stamp` covers."""


UNKNOWN = (-1, -1)
"""The stamp of a sample that a resume has to read."""

ABSENT: Mapping[str, Any] = MappingProxyType(
    {
        # The image is 8-bit RGB; otherwise its Field, called image.
        "image_field": Field(IMAGE_FIELD, "image"),
        # Any label is stored; else the number of classes of masks, and of arrays or ints of labels,.
        "label_limits": MappingProxyType({}),
        # by the field's name: other labels are errors, but for 255 in masks
        "says_drawn_on": False,  # no item has drawn_on; True: every item has it
        # Samples have the form that follows from their fields; else a `fastload.store.form.Form` of all
        # fields
        "form": None,
        "layout": "",  # it does not say; else the layout that was found, in words, for the summary
        # Nothing was left out; else `fastload.packing.summary.Notice`s for the summary, read when all is
        # packed
        "notices": (),
        # Samples have one image each; else the name of their field of any number of them: `read` gives them
        # as Item.images. With `described(position)` the source gives a sample's values and the number of its
        # images without reading these, with `places(position)` the Place of each, where they lie in files
        "image_list": "",
        "folder": "",  # its files lie where it does; else their folder
        "image_name": None,  # it has one image; else the name of the one that the user chose
        "box_format": None,  # there is no column of objects; else the format of the boxes in it
    }
)
"""Attributes that a source may have, and what it means that one is not there."""


def attribute_of(source: Source, name: str) -> Any:
    """An optional attribute of a source; `ABSENT` names them."""
    return getattr(source, name, ABSENT[name])


def schema_of(source: Source) -> Schema:
    """The schema of a dataset that a source is packed into. Raises ArgumentError if its fields do not go
    together."""
    return Schema((attribute_of(source, "image_field"), *source.fields))


@dataclass(frozen=True)
class Given:
    """The SRC of a pack and the options for reading it. Properties look at the disk when they are first
    asked.

    Attributes:
        source: the object itself; a path as a str, with its ``~`` expanded.
        options: for reading it.
    """

    source: object
    options: SourceOptions

    @property
    def path(self) -> str:
        """The path; "" if SRC is no path, which no file has."""
        return self.source if isinstance(self.source, str) else ""

    @cached_property
    def is_folder(self) -> bool:
        """True if SRC is the path of a folder."""
        return os.path.isdir(self.path)

    @cached_property
    def folders(self) -> frozenset[str]:
        """Names of the folders in the folder."""
        return frozenset(name for name, below in self._listed if below)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Names of all else in the folder, sorted."""
        return tuple(sorted(name for name, below in self._listed if not below))

    @cached_property
    def index(self) -> dict[str, Any]:
        """The object in the folder's index.json, as MosaicML Streaming and LitData write it.

        {}: there is none, or it is somebody's own file beside class folders. Raises PackError if it cannot be
        read, or is no JSON object.
        """
        path = os.path.join(self.path, "index.json")
        if "index.json" not in self.files:
            return {}
        try:
            return get_object(parse_json(read_regular(path, JSON_BYTES)), "its content")
        except (OSError, ValueError) as error:
            if self.folders:
                return {}
            if isinstance(error, OSError):
                raise PackError(f"{path}: cannot be read: {error.strerror}") from error
            raise PackError(f"{path}: it cannot be read as JSON: {error}") from error

    @cached_property
    def _listed(self) -> list[tuple[str, bool]]:
        if not self.is_folder:
            return []
        with os.scandir(self.path) as entries:
            return [(entry.name, entry.is_dir()) for entry in entries]


class Choice(NamedTuple):
    """An entry of the ordered list from which a source is chosen."""

    recognise: Callable[[Given], bool]
    open: Callable[[Given], Source]


class Files(NamedTuple):
    """A kind of files of which one or several are a source, known by their names.

    Attributes:
        named: returns True for a path of that kind.
        open: the source of paths and patterns.
    """

    named: Callable[[str], bool]
    open: Callable[[list[str], ColumnOptions], Source]

    def in_folder(self) -> Choice:
        """The entry for a folder that holds such files, and no folders."""

        def inside(given: Given) -> list[str]:
            return [str(Path(given.path, name)) for name in given.files if self.named(name)]

        return Choice(
            lambda given: not given.folders and bool(inside(given)),
            lambda given: self.open(inside(given), given.options.columns),
        )


# ---- what several sources share ----------------------------------------------------------------------------


class PartOfRows:
    """The rows of some samples of a source, by position; its length is that of the whole list."""

    def __init__(self, count: int, positions: Sequence[int], rows: Sequence[bytes]) -> None:
        self._count = count
        self._rows = dict(zip(positions, rows, strict=True))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> bytes:
        return self._rows[position]


class Listed:
    """Base of sources that note a row of bytes for each sample, from which they know its name and where it
    lies. Besides the rows a source holds what does not grow with the number of samples, and can be pickled
    without them.

    Attributes:
        lists_files: True if each sample's file was there when the source was listed, so that a node without
            it sees another source.
    """

    lists_files = False
    _rows: Sequence[bytes] | PartOfRows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, positions: Iterable[int]) -> list[bytes]:
        """The rows of some samples."""
        return [self._rows[position] for position in positions]

    def with_rows(self, positions: Sequence[int], rows: Sequence[bytes]) -> Self:
        """The same source, which can be asked for the samples at these positions only, whose rows are
        given."""
        part = copy.copy(self)
        part._rows = PartOfRows(len(self), positions, rows)
        return part


class ImageFiles:
    """Base of sources of which each sample's image is a file of its own.

    Attributes:
        read_file: reads an image's file. Raises OSError.
    """

    read_file: Callable[[str], bytes] = staticmethod(read_regular)


class NumberedInFiles:
    """Titles, names and keys of a source whose samples are numbered in its files, each from 0. Fields are
    known when a sample is read.

    Attributes:
        title: the source, for messages.
        paths: the files, in order.
    """

    def __init__(self, paths: Sequence[str], unit: str, title: str = "") -> None:
        """`unit`: what a sample is called in its file: a row, a record. `title`: by default the first of
        the files."""
        self.paths = paths
        self.title = title or title_of(paths)
        self._unit = unit

    def numbered(self, position: int) -> tuple[int, int]:
        """(file, number in it) of a sample."""
        raise NotImplementedError

    def name(self, position: int) -> str:
        """Name of the sample in messages."""
        file, number = self.numbered(position)
        return f"{self.paths[file]}: {self._unit} {number}"

    def key(self, position: int) -> str:
        """The sample's name, without paths."""
        file, number = self.numbered(position)
        return f"{file}:{number}"

    def fields_of(self, position: int) -> None:
        """Returns None: the fields are known only when the sample is read."""


def title_of(paths: Sequence[str]) -> str:
    """Name of several files in messages."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


_OPEN_MOST = 128
"""Files that stay open: below the usual limit of a process, 1,024, also beside other sources."""


class _Descriptor:
    """An open file, closed when the last thread that reads it lets go of it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # a default, since at the program's end `os` may be gone
        close(self.number)


class FileRanges:
    """The files of a source, opened when they are first read. Any thread may call it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> Sequence[str]:
        return self.paths

    def __setstate__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._open = OrderedDict()
        self._lock = threading.Lock()

    def size(self, number: int) -> int:
        """Size in bytes of a file.

        Raises:
            PackError: it cannot be opened, or is not a regular file.
            RemoteError: it lies in a store, which does not tell it.
        """
        path = self.paths[number]
        if isinstance(path, ForeignURL):
            return path.size
        try:
            file = self._descriptor(number)  # held: it is closed with its last reference
            return os.fstat(file.number).st_size
        except OSError as error:
            raise PackError(f"{self.paths[number]}: cannot be read: {error.strerror}") from error

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Exactly `size` bytes of a file.

        Raises:
            PackError: the file ends before, or the size is over the limit.
            OSError: the file cannot be read.
            RemoteError: it lies in a store, which does not give them.
        """
        if size > FILE_BYTES:
            raise PackError(
                f"{self.paths[number]}: {size:,} bytes at {offset:,} are more than the limit of "
                f"{FILE_BYTES:,}"
            )
        path = self.paths[number]
        if isinstance(path, ForeignURL):
            return bytes(path.read(offset, offset + size))
        file = self._descriptor(number)
        data = os.pread(file.number, size, offset)
        while len(data) < size:
            more = os.pread(file.number, size - len(data), offset + len(data))
            if not more:
                raise PackError(
                    f"{self.paths[number]}: it ends before byte {offset + size:,}, to which a sample "
                    "reaches; copy it again"
                )
            data += more
        return data

    def _descriptor(self, number: int) -> _Descriptor:
        with self._lock:
            found = self._open.get(number)
            if found is None:
                found = self._open[number] = _Descriptor(open_regular(self.paths[number])[0])
                if len(self._open) > _OPEN_MOST:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(number)
        return found


@contextmanager
def listed_file(path: str) -> Iterator[tuple[BinaryIO, int]]:
    """A file that is read in small parts from front to back, and its size. Raises OSError, RemoteError."""
    if isinstance(path, ForeignURL):
        yield cast(BinaryIO, Walk(path)), path.size
        return
    descriptor, size = open_regular(path)
    with open(descriptor, "rb") as file:
        yield file, size


@contextmanager
def read_file(path: str, alone: bool = False) -> Iterator[BinaryIO]:
    """A file that is read in parts of any size and order; `alone`: few of them, far from each other. Raises
    OSError, RemoteError."""
    raw = ForeignFile(path, alone) if isinstance(path, ForeignURL) else io.FileIO(open_regular(path)[0])
    with io.BufferedReader(raw) as file:
        yield file


READABLE_EXTENSIONS = (".gif", ".avif", ".jp2", ".j2k", ".jfif", ".jpe", ".apng")
"""Other pictures that can be packed, by a table that names them."""
OTHER_PICTURES = (
    *READABLE_EXTENSIONS,
    *".heic .heif .jxl .svg .psd .tga .exr .hdr .dng .cr2 .cr3 .nef .arw .orf .raf .rw2 .dcm".split(),
)
"""Pictures by their name, of types that a folder leaves out."""


FIRST_TRIES = 100
"""Samples that are tried for one that can be read, where a field's kind follows from a sample."""


def first_readable(read: Callable[[int], T], count: int) -> T:
    """The result of `read` at the first position where it succeeds; those before it fail again, each as its
    sample's error, when packed.

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
            failures.append(
                PackError(f"{error.filename or position}: cannot be read: {error.strerror or error}")
            )
    raise failures[0]


def file_stamp(path: str) -> tuple[int, int]:
    """Size and time of change of a file, or what stands for it. Raises OSError, RemoteError, or ValueError
    for what is no path."""
    if isinstance(path, ForeignURL):
        return path.stamp
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
