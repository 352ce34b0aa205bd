"""The protocol that every source satisfies, its samples, and the parts that several sources share.

A source is an ordered sequence of samples that can be read at any position, so that the packer may shuffle, resume and read ahead. Shared
parts are the naming of samples by their number in one of several files, ranges of bytes that any thread reads at any position, and the
choice of a sample's image and label where the source does not name them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy.typing as npt

from fastload.common.files import FILE_BYTES, open_regular
from fastload.errors import PackError
from fastload.packing.images import Pixels
from fastload.store import Field, Schema


class NumberedInFiles:
    """Titles, names and keys of a source whose samples are numbered in its files, each from 0. Fields are known when a sample is read.

    Attributes:
        title: the source, for messages.
        paths: the files, in order.
    """

    def __init__(self, paths: Sequence[str], unit: str, title: str = "") -> None:
        """`unit`: what a sample is called in its file: a row, a record. `title`: by default the first of the files."""
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

    def __del__(self) -> None:
        os.close(self.number)


class FileRanges:
    """The files of a source, opened when they are first read. Any thread may call it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, number: int) -> int:
        """Size in bytes of a file.

        Raises:
            PackError: it cannot be opened, or is not a regular file.
        """
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
        """
        if size > FILE_BYTES:
            raise PackError(f"{self.paths[number]}: {size:,} bytes at {offset:,} are more than the limit of {FILE_BYTES:,}")
        file = self._descriptor(number)
        data = os.pread(file.number, size, offset)
        while len(data) < size:
            more = os.pread(file.number, size - len(data), offset + len(data))
            if not more:
                raise PackError(f"{self.paths[number]}: it ends before byte {offset + size:,}, to which a sample reaches; copy it again")
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


T = TypeVar("T")
Value = int | float | str | bytes | npt.NDArray[Any] | dict[str, Any] | list[Any] | bool | None

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the files that torchvision's ImageFolder takes for images, so that both see the same samples."""
READABLE_EXTENSIONS = (".gif", ".avif", ".jp2", ".j2k", ".jfif", ".jpe", ".apng")
"""Other pictures that can be packed, by a table that names them."""
OTHER_PICTURES = (*READABLE_EXTENSIONS, *".heic .heif .jxl .svg .psd .tga .exr .hdr .dng .cr2 .cr3 .nef .arw .orf .raf .rw2 .dcm".split())
"""Pictures by their name, of types that a folder leaves out."""

IMAGE_KEYS = ("image", "img", "pixels", "jpg", "jpeg", "png", "pixel_values", "0")
LABEL_KEYS = ("label", "labels", "target", "cls")
"""Names under which datasets commonly have their images, and their labels."""

IMAGE_FIELD = "image"
"""Name of the first image's field."""
FIRST_TRIES = 100
"""Samples that are tried for one that can be read, where a field's kind follows from a sample."""


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
        name: name of the sample in messages: a path, or "source, sample n".
        image: a file's bytes in any format, or pixels as uint8 (height, width, 3) RGB or (height, width) grey.
        values: its other fields by name; the same names for every sample of a source. Of the kinds of `fastload.store.Field`: an image is
            as `image`, or pixels uint16, or of 1 or 4 channels, as its field says. A mask is labels (height, width) of whole numbers, or
            the bytes of a PNG, TIFF, ... of them. Boxes are an array of rows in the field's format. Keypoints are (number, K, 2 or 3).
            Instances are a list: of COCO's run lengths (a dict of size and counts), of masks, or of lists of polygons. Polygons are a list
            of lists of parts, each a flat list of x and y. An array of any number of rows is an array, or a list of them.
        objects: names of the rows of boxes in messages, such as "annotation 17"; (): the rows have numbers only.
        notices: kinds of losses in reading the image, as `fastload.packing.summary` names them.
        drawn_on: the picture on which values that lie in the image were drawn; None: the image as it is.
    """

    name: str
    image: bytes | Pixels
    values: dict[str, Value] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    drawn_on: DrawnOn | None = None


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
    """An ordered collection of samples.

    Rules: `len()` and `fields` are settled when the object exists; `read` gives the same sample for the same position
    every time; when `concurrent` is true, `read` may be called by several threads at once; `name` is cheap and needs
    no read. Failures are PackError (the source is wrong) or OSError (one sample cannot be read). An attribute `notices`, if
    there is one, holds what the source leaves out (`fastload.packing.summary.Notice`), for the summary. An attribute `image_field`, if
    there is one, is the Field of the image, called image, where it is not 8-bit RGB. An attribute `label_limits`, if there is one, has the
    number of classes of masks and of arrays or ints of labels, by the field's name: other labels are errors, but for 255 in masks. An
    attribute `says_drawn_on`, if there is one and it is True, says that every item has `drawn_on`.
    """

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
        """Name of the sample at a position, for messages."""

    def read(self, position: int) -> Item:
        """The sample at a position, 0 <= position < len()."""


def schema_of(source: Source) -> Schema:
    """The schema of a dataset that a source is packed into. Raises ArgumentError if its fields do not go together."""
    image: Field = getattr(source, "image_field", Field(IMAGE_FIELD, "image"))
    return Schema((image, *source.fields))


@runtime_checkable
class Placed(Source, Protocol):
    """A source that knows where its images lie."""

    def place(self, position: int) -> Place | None:
        """Place of a sample's image; the bytes there are `read(position).image`. It does not read the image.

        None: this sample's image does not lie in one piece as bytes of a file. Raises OSError or PackError where `read` would.
        """


def first_readable(read: Callable[[int], T], count: int) -> T:
    """The result of `read` at the first position where it succeeds; those before it fail again, each as its sample's error, when packed.

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


HEAD = 16
"""Bytes of a value that `is_picture` looks at."""

_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP  ", b"P5", b"P6")


def is_picture(head: bytes) -> bool:
    """Returns True if bytes begin as a file of a common picture format: JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF, JPEG 2000, PNM."""
    return head.startswith(_BEGINNINGS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or head[4:12] == b"ftypavif"


def image_name(title: str, names: Sequence[str], sure: Collection[str], possible: Collection[str], preferred: Sequence[str] = ()) -> str:
    """The name of the value that is the image: a usual name, or else the only one that is sure to be one, or that can be one.

    Args:
        title: the source, for the message.
        names: all names, for the message.
        sure: names of values that are pictures.
        possible: names of values that are bytes.
        preferred: names that come before the usual ones.

    Raises:
        PackError: none can be the image, or several can.
    """
    for name in (*preferred, *IMAGE_KEYS):
        if name in sure or (name in possible and not sure):
            return name
    for found in (sure, possible):
        if len(found) == 1:
            return next(iter(found))
    how_many = "several" if sure or possible else "none"
    raise PackError(f"{title}: {how_many} of {', '.join(names)} can be the image: name one 'image'")


def field_name(name: str, label: str | None) -> str:
    """The field's name of a value that is not the image: ``label`` for the label, and another one for what is called image and is none."""
    return "label" if name == label else "image_field" if name == "image" else name


def label_name(integers: Collection[str], names: Collection[str], preferred: Sequence[str] = ()) -> str | None:
    """The name of the value that becomes the field ``label``: one of that name, or else integers of a usual name."""
    if "label" in names:
        return "label"
    return next((name for name in (*preferred, *LABEL_KEYS) if name in integers), None)
